"""Every code of a note that the program may give is explained where a user can find it."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import get_args

from markupsafe import escape

import commprof
from commprof.analysis.model import NoteCode
from commprof.report.glossary import GLOSSARY
from commprof.report.html import render_html
from commprof.report.note_words import NOTES
from tests.builders.command import call
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


def test_every_known_code_is_given_somewhere() -> None:
    """In a call of ``Note``, or as a word of a module that calls it with a code of its own choice: what no run can show
    needs no explanation."""
    given = {"cannot-be-hidden"}  # the diagnosis gives pairs of code and message
    assert "cannot-be-hidden" in (PACKAGE / "diagnosis" / "diagnose.py").read_text(encoding="utf-8")
    for path in sorted((PACKAGE / "analysis").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        calls = [
            node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Note"
        ]
        codes = [call.args[0] for call in calls]
        given |= {code.value for code in codes if isinstance(code, ast.Constant)}
        if not all(isinstance(code, ast.Constant) for code in codes):
            given |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)} & set(NOTES)

    assert sorted(set(NOTES) - given) == []


def test_the_schema_of_the_report_explains_every_code() -> None:
    code, out, _ = call("schema")

    told = json.loads(out)["$defs"]["Note"]["properties"]["code"]["description"].splitlines()
    assert code == 0
    assert told == [f"{name}: {word.meaning}" for name, word in NOTES.items()]


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
