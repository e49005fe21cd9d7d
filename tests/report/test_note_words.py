"""Every code of a note that the program may give is explained where a user can find it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

from markupsafe import escape

import commprof
from commprof.analysis.model import NoteCode
from commprof.report.glossary import GLOSSARY
from commprof.report.html import render_html
from commprof.report.note_words import NOTES
from tests.report.sample_view import sample_view

PACKAGE = Path(commprof.__file__).parent


def test_every_code_has_its_words() -> None:
    codes = get_args(NoteCode)

    terms = {term.slug: term.text for _, terms in GLOSSARY for term in terms}

    assert set(NOTES) == set(codes)
    assert [code for code in codes if not terms.get(f"note-{code}")] == []


def test_every_note_of_the_program_has_a_known_code() -> None:
    given = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # A code that is no constant is held to the type of codes by the type checker.
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Note" and node.args:
                code = node.args[0]
                if isinstance(code, ast.Constant):
                    given[code.value] = path.name

    assert len(given) > 20
    assert set(given) <= set(get_args(NoteCode))


def test_the_page_leads_from_a_note_to_its_meaning() -> None:
    view = sample_view()
    view["report"]["notes"] = [
        {"code": "clocks-aligned", "message": "The clocks differ."}, {"code": "of-later", "message": "Not known yet."},
    ]  # fmt: skip

    page = render_html(view)

    assert '<a href="#g-note-clocks-aligned"><code>clocks-aligned</code></a>' in page
    assert f'<dt id="g-note-clocks-aligned">Clocks aligned</dt><dd>{escape(NOTES["clocks-aligned"].meaning)}' in page
    assert "<code>of-later</code>" in page
    assert "#g-note-of-later" not in page
