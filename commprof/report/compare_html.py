"""The comparison of two runs as one HTML file: tables and two bars, no script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from commprof.report.charts.wording import clean, rank_ranges
from commprof.report.compare_view import compared_name, compared_paths, words
from commprof.report.write import MOST_SUBJECT, write_bytes
from commprof.units import format_bytes, format_ns, format_share

_TEMPLATES = Path(__file__).parent / "templates"
_STYLES = ("theme.css", "page.css", "hero.css", "sections.css", "compare.css", "print.css")
_PARTS = (
    ("compute", "compute", "Compute"), ("exposed_comm", "exposed", "Exposed communication"),
    ("exposed_copy", "copy", "Exposed copies"), ("idle", "idle", "Idle"),
)  # fmt: skip
_MOST_ROWS = 40

Json = dict[str, Any]


def render_comparison(comparison: Json) -> str:
    """The page as text; the same comparison gives the same text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    style = "\n".join((_TEMPLATES / name).read_text(encoding="utf-8") for name in _STYLES)
    return environment.get_template("compare.html.j2").render(
        title=f"{clean(comparison['new']['path'], 60)} against {clean(comparison['base']['path'], 60)} · commprof",
        subject=clean(compared_paths(comparison), MOST_SUBJECT),
        style=Markup(style),
        version=clean(comparison["commprof_version"], 20),
        summary=clean(comparison["summary"], 400),
        runs=[(name, _run(comparison[side])) for name, side in (("Base", "base"), ("New", "new"))],
        comparable=comparison["comparable"],
        warning=clean(comparison["warning"], 600) if comparison["warning"] else None,
        bars=_bars(comparison["split"]),
        split=[_difference(row, clean(row["name"], 60)) for row in comparison["split"]],
        shares=[_share(row) for row in comparison["shares"]],
        of=comparison["of"],
        kinds=[
            (title, [_difference(row, compared_name(row, 80)) for row in rows[:_MOST_ROWS]], len(rows))
            for title, rows in (
                ("By operation", comparison["operations"]), ("By process group", comparison["groups"]),
            )
            if rows
        ],
        buckets=[_bucket(row) for row in comparison["buckets"][:_MOST_ROWS]],
        findings=[_finding(row) for row in comparison["findings"]],
        verdicts=[
            (side.capitalize(), clean(comparison["verdicts"][side]["summary"], 400)) for side in ("base", "new")
        ],
    )  # fmt: skip


def write_comparison(comparison: Json, path: str | Path) -> None:
    """Write the page to ``path``, whole or not at all."""
    write_bytes(render_comparison(comparison).encode("utf-8", "replace"), path)


def _run(side: Json) -> Json:
    return {
        "path": clean(side["path"], 120),
        "ranks": f"{'rank' if len(side['ranks']) == 1 else 'ranks'} {rank_ranges(side['ranks'])}",
        "steps": f"{side['steps']} step{'s' if side['steps'] != 1 else ''}",
        "devices": ", ".join(clean(name, 60) for name in side["devices"]) or "CPU",
    }


def _bars(split: list[Json]) -> list[Json]:
    """Both steps as bars on one scale."""
    known = {row["key"]: row for row in split}
    if not known:
        return []
    longest = max(known["duration"]["base_ns"], known["duration"]["new_ns"]) or 1
    return [
        {
            "name": name,
            "total": format_ns(known["duration"][f"{side}_ns"]),
            "parts": [
                {
                    "class": style, "label": label, "text": format_ns(known[key][f"{side}_ns"]),
                    "width": f"{100 * known[key][f'{side}_ns'] / longest:.3f}",
                }
                for key, style, label in _PARTS
            ],
        }
        for name, side in (("Base", "base"), ("New", "new"))
    ]  # fmt: skip


def _difference(row: Json, name: str) -> Json:
    said = row.get("words") or words(row)
    worse = bool(row["change_ns"]) and (row["change_ns"] > 0) != (row.get("key") == "overlap")
    tone = "" if row["significant"] is False or not row["change_ns"] else "worse" if worse else "better"
    return {
        "name": name,
        "base": format_ns(row["base_ns"]),
        "new": format_ns(row["new_ns"]),
        "noise": "n/a" if row["noise_ns"] is None else f"± {format_ns(row['noise_ns'])}",
        "words": said,
        "tone": "" if row.get("key") == "compute" else tone,
    }


def _share(row: Json) -> Json:
    return {"name": row["name"], "of": row["of"], "base": format_share(row["base"]), "new": format_share(row["new"])}


def _bucket(row: Json) -> Json:
    return {
        "index": row["index"],
        **{f"{side}_size": format_bytes(row[f"{side}_size_bytes"]) for side in ("base", "new")},
        **{f"{side}_exposed": format_ns(row[f"{side}_exposed_ns"]) for side in ("base", "new")},
    }


def _finding(row: Json) -> Json:
    return {
        "title": clean(row["title"], 300),
        "status": row["status"],
        "changed": clean(row["changed"], 300) if row["changed"] else None,
        "base": "not found" if row["status"] == "new" else format_ns(row["base_ns"]),
        "new": "not found" if row["status"] == "gone" else format_ns(row["new_ns"]),
    }
