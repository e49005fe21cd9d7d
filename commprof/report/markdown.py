"""The summary as Markdown, for a pull request or a chat."""

from __future__ import annotations

import re
from typing import Any

from commprof.report import summary
from commprof.report.causes import EXPOSED, named
from commprof.report.charts.findings import with_unit
from commprof.report.charts.pipeline import longest_stage
from commprof.report.charts.strategy import strategy
from commprof.report.charts.wording import base_of_findings, clean, share_of, time_base
from commprof.report.summary import of_what
from commprof.units import format_bytes, format_gbps, format_ns, format_share

_MOST_RANKS = 64
_MOST_CALLS = 20
_MOST_FINDINGS = 10
_MOST_GROUPS = 40


def render_markdown(view: dict[str, Any]) -> str:
    """Verdict, mean split, findings, causes, late ranks, strategy, ranks, groups, calls with the most exposed time."""
    report, headline = view["report"], view["headline"]
    of = of_what(report)
    parts = [f"# {_text(headline['question'])}", f"**{_text(headline['answer'])}**"]
    parts += [_text(headline[key]) for key in ("gain", "where") if headline[key]]
    parts.append(f"{_text(report['input']['path'])}: {_text(headline['ranks'])}")
    parts.append(
        _table(
            ["", "time", "share"],
            [
                [
                    line.label.strip(),
                    format_ns(line.ns),
                    "" if line.whole == "" else share_of(line.share, line.whole or of),
                ]
                for line in summary.mean_lines(report)
            ],
        )
    )
    parts += [*_findings(report), *_causes(report), *_late(report)]
    if line := longest_stage(report):
        parts.append(_text(f"{line}."))
    parts += _strategy(report)
    parts += ["## By rank", _ranks(report, of)]
    if report["groups"]:
        parts += ["## By process group and operation, whole capture, all ranks", _groups(report)]
    if report["collectives"]:
        parts += ["## Calls with the most exposed time", _calls(report)]
    parts += ["## Notes", "\n".join(f"- {_text(note['message'])}" for note in report["notes"])]
    return "\n\n".join(parts) + "\n"


def _findings(report: dict[str, Any]) -> list[str]:
    """Each finding with its time, evidence and advice, largest first."""
    found = summary.top_findings(report, _MOST_FINDINGS)
    if not found:
        return []
    base = base_of_findings(report, time_base(report))
    parts = [f"## {summary.findings_title(report)}"]
    for finding in found:
        row = report["findings"][finding.number - 1]
        lines = [
            f"{finding.number}. **{_text(finding.title)}**: {finding.time}, {finding.share} ({finding.confidence})"
        ]
        evidence = [
            f"{_text(item['what'])}: {_text(with_unit(item['value'], item.get('unit'), base))}"
            for item in row["evidence"][:6]
        ]
        if evidence:
            lines.append(f"   - seen: {'; '.join(evidence)}")
        lines += [f"   - {_text(line)}" for line in row["advice"][:4]]
        parts.append("\n".join(lines))
    return parts


def _causes(report: dict[str, Any]) -> list[str]:
    rows = summary.causes(report, len(EXPOSED))
    if not rows:
        return []
    body = [[_text(row["name"]), row["exposed"], row["share"], _text(row["meaning"] or "")] for row in rows]
    return [
        f"## {summary.causes_title(report, 'Why communication is exposed')}",
        _table(["cause", "exposed", "share", "meaning"], body),
    ]


def _late(report: dict[str, Any]) -> list[str]:
    rows, harmless = summary.late(report, 10), summary.harmless_line(report)
    also = [_text(harmless)] if harmless else []
    if not rows:
        return also
    body = [
        [_text(row["name"]), _text(row["kind"]), _text(row["cause"]), row["charged"], row["share"], row["last"],
         " → ".join(row["chain"]) or "n/a"]
        for row in rows
    ]  # fmt: skip
    head = [
        "late",
        "when",
        "cause",
        f"charged {summary.per_what(report)}: what each of the others waits on average",
        "share",
        "arrival",
        "chain of ranks",
    ]
    return ["## Who the others wait for", _table(head, body), *also]


def _strategy(report: dict[str, Any]) -> list[str]:
    found = strategy(report)
    if not found:
        return []
    rows = [
        [_text(part["name"]), _text(part["formula"]), part["expected"], part["measured"]] for part in found["parts"]
    ]
    lines = [f"## Strategy: {_text(found['name'])}"]
    if found["evidence"]:
        lines.append("\n".join(f"- {_text(line)}" for line in found["evidence"]))
    if rows:
        lines.append(
            _table(["part", "formula", "bytes by formula", f"bytes sent by each rank {summary.per_what(report)}"], rows)
        )
    return lines


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
                f"{format_ns(mean['exposed_comm_ns'])}, {share_of(mean['comm_share'], of)}",
                format_ns(mean["exposed_copy_ns"]),
                f"{format_ns(mean['idle_ns'])}, {share_of(idle, of)}",
            ]
        )
    head = ["rank", "steps", "length", "compute", "communication", "hidden", "exposed", "exposed copies", "idle"]
    return _table(head, rows)


def _groups(report: dict[str, Any]) -> str:
    rows = [
        [
            row["op"],
            _text(summary.group_name([row])),
            str(row["group_size"] or "n/a"),
            str(row["calls"]),
            "n/a" if row["calls_without_size"] == row["calls"] else format_bytes(row["bytes"]),
            format_ns(row["comm_ns"]),
            format_ns(row["exposed_ns"]),
            format_ns(row.get("exposed_wait_ns")),
            format_gbps(row.get("busbw_gbps_median")),
        ]
        for row in report["groups"][:_MOST_GROUPS]
    ]
    head = [
        "operation",
        "group",
        "ranks",
        "calls",
        "bytes",
        "time in calls",
        "exposed",
        "of it waiting",
        "bus bandwidth",
    ]
    return _table(head, rows)


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
            _text(named(EXPOSED, row["cause"]) if row.get("cause") else "n/a"),
        ]
        for row in by_exposed[:_MOST_CALLS]
    ]
    return _table(["rank", "step", "operation", "group", "size", "duration", "exposed", "cause"], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _text(text: str) -> str:
    """Text of a trace as plain text: nothing in it is markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", " ".join(clean(text, 2000).split()))
