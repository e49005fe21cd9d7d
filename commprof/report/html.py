"""One self-contained HTML file from the view dict: opens from disk, loads nothing, runs only its own two scripts.

The page holds Plotly's own bundle once, packed; the page's script unpacks it. A content security policy in the page
allows these two scripts by their hash, so a string of a trace that slipped through the escaping still could not run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

import jinja2
from isal import isal_zlib
from jinja2.bccache import Bucket
from markupsafe import Markup

from commprof.errors import InputRefused
from commprof.report.charts import (
    accounting,
    appendix,
    bucket_sizes,
    buckets,
    calls,
    exposure,
    findings,
    groups,
    hero,
    hta,
    idle,
    pipeline,
    quality,
    split,
    stragglers,
    strategy,
    tensor,
    timeline,
    units,
    unsaid,
    wait_chain,
    waiting,
)
from commprof.report.charts.payload import json_for_script
from commprof.report.charts.wording import STEP, clean, time_base
from commprof.report.glossary import GLOSSARY
from commprof.report.write import MOST_SUBJECT, write_bytes

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("page.js", "tables.js", "split.js", "timeline.js", "heat.js", "start.js")
_STYLES = ("theme.css", "page.css", "hero.css", "sections.css", "tracks.css", "print.css")

_GAP = "\x1f"
"""Stands for Plotly in the rendered template; no other text of the page can hold a control character."""

_PACKING = 1
"""The fastest level: 20 ms for a third of the size; the best one takes ten times as long for another tenth."""


class _CompiledBeside(jinja2.FileSystemBytecodeCache):
    """Compiled templates beside their sources, as Python keeps its own: compiling takes longer than the report.

    Nothing is written without leave to write there, or with ``PYTHONDONTWRITEBYTECODE``.
    """

    def dump_bytecode(self, bucket: Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(exist_ok=True)
            super().dump_bytecode(bucket)


def render_html(view: dict[str, Any]) -> str:
    """The report as the text of one HTML file, at most 10 MB.

    Two renders of one view are identical; of two views that differ in ``created`` alone, only that time differs.
    Raises ``InputRefused`` when the plotly package is not installed.
    """
    return b"".join(_pieces(view)).decode()


def write_html(view: dict[str, Any], path: str | Path) -> None:
    """Write the report to ``path`` (UTF-8), whole or not at all; missing folders on the way are made."""
    write_bytes(b"".join(_pieces(view)), path)


def _pieces(view: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
    """The page before Plotly, Plotly, and the page after it; Plotly's megabytes never pass through the template."""
    report = view["report"]
    data = {
        "split": split.split_chart(report),
        "timeline": timeline.timeline(view),
        "calls": calls.calls(report),
        "waiting": waiting.waiting(report),
    }
    plotly = _plotly_script()
    packed = _packed(plotly)
    own_script = f'"use strict";\n(() => {{\n{_joined(_SCRIPTS)}}})();\n'
    page = {
        "title": f"{clean(report['input']['path'], 80)} · commprof",
        "subject": clean(report["input"]["path"], MOST_SUBJECT),
        "path": clean(report["input"]["path"], 120),
        "version": clean(report["commprof_version"], 20),
        "created": clean(view["created"], 40),
        "hero": hero.hero(view),
        **_sections(view, data),
        "glossary": GLOSSARY,
        "data": {name: json_for_script(_of_browser(name, columns)) for name, columns in data.items()},
        "style": Markup(_joined(_STYLES)),
        "script": Markup(own_script),
        "plotly": Markup(_GAP),
        "policy": _policy(plotly, own_script.encode()),
    }
    before, gap, after = _template().render(page).partition(_GAP)
    assert gap
    return before.encode("utf-8", "replace"), packed, after.encode("utf-8", "replace")


def _sections(view: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The sections of the page by name; one whose part of the report is null or empty is ``None``."""
    report = view["report"]
    base = time_base(report)
    found = {
        **data,
        "split_table": split.split_table(report),
        "exposure": exposure.exposure(report, base),
        "idle": idle.idle(report, base),
        "buckets": buckets.buckets(view),
        "bucket_sizes": bucket_sizes.bucket_sizes(report, base),
        "tensor": tensor.tensor(report),
        "units": units.units(view),
        "pipeline": pipeline.pipeline(report),
        "stragglers": stragglers.stragglers(report, base),
        "harmless": stragglers.harmless(report, base),
        "wait_chain": wait_chain.wait_chain(report),
        "matching": waiting.matching(report),
        "strategy": strategy.strategy(report),
        "groups": groups.groups(report),
        "imbalance": pipeline.imbalance(report),
        "contention": pipeline.contention(report),
        "bounds": accounting.bounds(report, base),
        "limits": appendix.limits(report),
        "foreign": appendix.foreign(report),
        "quality": quality.quality(report),
        "hta": hta.hta_section(report),
        "unsaid": unsaid.unsaid(report),
    }
    anchors = found["groups"]["anchors"] if found["groups"] else {}
    present = {name for name, part in found.items() if part}
    return {
        **found,
        "base": base,
        "per": "per step" if base == STEP else "in the window",
        "findings": findings.findings(report, base, present, anchors),
        "no_calls": report["collectives"] is None,
    }


def _of_browser(name: str, columns: dict[str, Any] | None) -> Any:
    """What the scripts need of a section; its tables are in the page already."""
    return columns["maps"] if name == "waiting" and columns else columns


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_CompiledBeside(str(_TEMPLATES / "__pycache__"), "%s.jinja"),
    )
    return environment.get_template("report.html.j2")


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def _plotly_script() -> bytes:
    """Plotly's bundle, found without importing the package, which would take longer than the whole report."""
    found = importlib.util.find_spec("plotly")
    places = (found.submodule_search_locations if found else None) or []
    bundles = [Path(place) / "package_data" / "plotly.min.js" for place in places]
    if not any(bundle.is_file() for bundle in bundles):
        raise InputRefused("the package plotly is not installed", hint="pip install 'plotly>=6'")
    return next(bundle for bundle in bundles if bundle.is_file()).read_bytes()


def _packed(script: bytes) -> bytes:
    """A script as base64 of zlib, which every browser since May 2023 unpacks by itself."""
    return base64.b64encode(isal_zlib.compress(script, _PACKING))


def _policy(*scripts: bytes) -> str:
    """A content security policy: the given scripts by their hash, styles of the page, and nothing from elsewhere."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'"
