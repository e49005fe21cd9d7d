"""The ranked findings: what costs time, the evidence, and what to try."""

from __future__ import annotations

from typing import Any

from commprof.report.charts.wording import Json, clean, rank_ranges, share_of
from commprof.units import format_bytes, format_gbps, format_ns

MOST_FINDINGS = 20
MOST_EVIDENCE = 12


def findings(report: Json, base: str) -> Json | None:
    """Findings in the order of the report; ``None`` without any."""
    rows = report["findings"] or []
    if not rows:
        return None
    return {"rows": [_finding(row, base) for row in rows[:MOST_FINDINGS]], "total": len(rows)}


def _finding(row: Json, base: str) -> Json:
    where = [f"{'rank' if len(row['ranks']) == 1 else 'ranks'} {rank_ranges(row['ranks'])}"] if row["ranks"] else []
    if row["steps"]:
        steps = ", ".join(clean(step, 60) for step in row["steps"][:6])
        where.append(steps + (f" and {len(row['steps']) - 6} more" if len(row["steps"]) > 6 else ""))
    if row.get("cause"):
        where.append(f"cause: {clean(row['cause'], 40)}")
    confidence = row["confidence"]
    return {
        "id": clean(row["id"], 40),
        "severity": clean(row["severity"], 10),
        "title": clean(row["title"], 300),
        "charged": format_ns(row["charged_ns"]),
        "recoverable": format_ns(row["recoverable_ns"]),
        "share": share_of(row["share_of_step"], base),
        "where": clean("; ".join(where), 400),
        "evidence": [
            {"what": clean(item["what"], 200), "value": with_unit(item["value"], item["unit"], base)}
            for item in row["evidence"][:MOST_EVIDENCE]
        ],
        "advice": [clean(line, 600) for line in row["advice"][:8]],
        "confidence": {"bound": "an upper bound", "estimate": "an estimate"}.get(confidence, clean(confidence, 20)),
    }


def with_unit(value: Any, unit: str | None, base: str) -> str:
    """A piece of evidence as text: known units through ``commprof.units``, others as they are."""
    if value is None:
        return "n/a"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value, 120)
    if unit == "ns":
        return format_ns(round(value))
    if unit in ("bytes", "B"):
        return format_bytes(round(value))
    if unit in ("GB/s", "gbps"):
        return format_gbps(value)
    if unit and unit.startswith("share of "):
        whole = unit.removeprefix("share of ")
        return share_of(value, base if whole in ("step", "step time") else clean(whole, 40))
    shown = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    return f"{shown} {clean(unit, 40)}" if unit else shown
