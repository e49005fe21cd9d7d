"""The summary as Markdown, for a pull request or a chat."""

from __future__ import annotations

import re
from typing import Any

from commprof.report.terminal import mean_lines, of_what
from commprof.units import format_bytes, format_ns, format_share

_MOST_RANKS = 64
_MOST_CALLS = 20


def render_markdown(view: dict[str, Any]) -> str:
    """Verdict, mean split, split per rank, groups, the calls with the most exposed time, notes."""
    report, headline = view["report"], view["headline"]
    of = of_what(report)
    parts = [f"# {_text(headline['question'])}", f"**{_text(headline['answer'])}**"]
    parts += [_text(headline[key]) for key in ("gain", "where") if headline[key]]
    parts.append(f"{_text(report['input']['path'])}: {_text(headline['ranks'])}")
    parts.append(
        _table(
            ["", "time", "share"],
            [
                [label.strip(), format_ns(ns), "" if whole == "" else f"{format_share(share)} of {whole or of}"]
                for label, ns, share, whole in mean_lines(report)
            ],
        )
    )
    parts += ["## By rank", _ranks(report, of)]
    if report["groups"]:
        parts += ["## By process group and operation, whole capture, all ranks", _groups(report)]
    if report["collectives"]:
        parts += ["## Calls with the most exposed time", _calls(report)]
    parts += ["## Notes", "\n".join(f"- {_text(note['message'])}" for note in report["notes"])]
    return "\n\n".join(parts) + "\n"


def _ranks(report: dict[str, Any], of: str) -> str:
    rows = []
    for row in report["ranks"][:_MOST_RANKS]:
        mean = row["mean"]
        if mean is None:
            continue
        idle = mean["idle_ns"] / mean["duration_ns"] if mean["duration_ns"] else None
        rows.append(
            [
                str(row["rank"]),
                str(mean["steps"]),
                format_ns(mean["duration_ns"]),
                format_ns(mean["compute_ns"]),
                format_ns(mean["comm_ns"]),
                f"{format_ns(mean['overlap_ns'])}, {format_share(mean['overlap_ratio'])} of communication time",
                f"{format_ns(mean['exposed_comm_ns'])}, {format_share(mean['comm_share'])} of {of}",
                format_ns(mean["exposed_copy_ns"]),
                f"{format_ns(mean['idle_ns'])}, {format_share(idle)} of {of}",
            ]
        )
    head = ["rank", "steps", "length", "compute", "communication", "hidden", "exposed", "exposed copies", "idle"]
    return _table(head, rows)


def _groups(report: dict[str, Any]) -> str:
    rows = [
        [
            row["op"],
            _text(row["description"] or row["group"] or "unknown"),
            str(row["group_size"] or "n/a"),
            str(row["calls"]),
            "n/a" if row["calls_without_size"] == row["calls"] else format_bytes(row["bytes"]),
            format_ns(row["comm_ns"]),
            format_ns(row["exposed_ns"]),
        ]
        for row in report["groups"]
    ]
    return _table(["operation", "group", "ranks", "calls", "bytes", "time in calls", "exposed"], rows)


def _calls(report: dict[str, Any]) -> str:
    by_exposed = sorted(report["collectives"], key=lambda row: (-row["exposed_ns"], row["start_ns"], row["rank"]))
    rows = [
        [
            str(row["rank"]),
            _text(row["step"] or "n/a"),
            row["op"],
            _text(row["group"] or "unknown"),
            format_bytes(row["size_bytes"]),
            format_ns(row["duration_ns"]),
            format_ns(row["exposed_ns"]),
        ]
        for row in by_exposed[:_MOST_CALLS]
    ]
    return _table(["rank", "step", "operation", "group", "size", "duration", "exposed"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(text: str) -> str:
    """Text of a trace as plain text: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", " ".join(str(text).split()))
