"""Where communication is exposed: by cause, phase, operation, group and whatever else the report breaks it down by."""

from __future__ import annotations

from collections.abc import Callable

from commprof.report.causes import EXPOSED
from commprof.report.charts.wording import (
    COMM,
    Json,
    clean,
    has_step_marks,
    micro_steps,
    ratio,
    share_of,
)
from commprof.units import format_ns

MOST_ROWS = 30

_TITLES = {
    "cause": "cause",
    "phase": "phase",
    "op": "operation",
    "group": "process group",
    "bucket": "bucket",
    "module": "module",
    "stage": "stage",
    "stream": "stream",
}
"""Ways to break communication down, the most telling first."""

_NAMELESS = {"bucket": "no bucket", "module": "no module known", "phase": "phase not known"}

_OPTIONAL = ("cause", "phase", "bucket", "module")
"""Left out where the trace tells nothing of it: a table with one row "unknown" says nothing."""


def exposure(report: Json, base: str) -> Json | None:
    """Tables of hidden and exposed time, one for each way to break communication down; ``None`` without rows.

    Times are means per rank over the steps that its mean uses (closed ones, where there are any), or over the window.
    """
    counted = counted_windows(report["ranks"])
    rows = [row for row in report["exposure"] or [] if (row["rank"], row["step"]) in counted]
    if not rows:
        return None
    step_ns = sum(counted.values())
    windows = len(counted)
    tables = []
    present = {row["by"] for row in rows}
    for by in [*(by for by in _TITLES if by in present), *sorted(present - _TITLES.keys())]:
        if by in _OPTIONAL and not any(row["name"] not in (None, "unknown") for row in rows if row["by"] == by):
            continue
        sums: dict[str | None, list[int]] = {}
        for row in rows:
            if row["by"] == by:
                total = sums.setdefault(row["name"], [0, 0, 0, 0])
                for i, key in enumerate(("calls", "comm_ns", "hidden_ns", "exposed_ns")):
                    total[i] += row[key] or 0
        tables.append(_table(by, sums, windows, step_ns, base, _namer(by, report)))
    step = "micro-step" if micro_steps(report) else "step"
    per = f"per rank and {step}" if has_step_marks(report) else "per rank, in the window"
    return {"tables": tables, "per": per}


def counted_windows(ranks: list[Json]) -> dict[tuple[int, str], int]:
    """Duration of every window that counts towards a mean, by rank and name."""
    counted: dict[tuple[int, str], int] = {}
    for rank in ranks:
        closed = [step for step in rank["steps"] if not step["open"]] or rank["steps"]
        for step in closed:
            key = (rank["rank"], step["name"])
            counted[key] = counted.get(key, 0) + step["duration_ns"]
    return counted


def _namer(by: str, report: Json) -> Callable[[str | None], str]:
    known = {}
    if by == "group":
        for row in report["groups"] or []:
            if row["description"] and row["description"] != row["group"]:
                known[row["group"]] = f"{row['description']} ({row['group']})"

    def name_of(name: str | None) -> str:
        if name is None:
            return _NAMELESS.get(by, "unknown")
        if by == "cause":
            return EXPOSED[name].name if name in EXPOSED else clean(name, 40)
        if by in ("stream", "bucket", "stage"):
            return clean(name if name.startswith(by) else f"{by} {name}", 90)
        return clean(known.get(name, name), 90)

    return name_of


def _table(
    by: str,
    sums: dict[str | None, list[int]],
    windows: int,
    step_ns: int,
    base: str,
    name_of: Callable[[str | None], str],
) -> Json:
    ordered = sorted(sums.items(), key=lambda item: (-item[1][3], -item[1][1], str(item[0])))
    longest = max((total[1] for _, total in ordered), default=0) or 1
    rows = []
    for name, (calls, comm, hidden, exposed) in ordered[:MOST_ROWS]:
        rows.append(
            {
                "name": name_of(name),
                "meaning": EXPOSED[name].meaning if by == "cause" and name in EXPOSED else None,
                "calls": f"{calls / windows:,.0f}" if calls % windows == 0 else f"{calls / windows:,.1f}",
                "comm": format_ns(round(comm / windows)),
                "exposed": format_ns(round(exposed / windows)),
                "share": share_of(ratio(exposed, step_ns), base),
                "hidden": share_of(ratio(hidden, comm), COMM),
                "exposed_width": exposed / longest * 100,
                "hidden_width": hidden / longest * 100,
            }
        )
    return {"by": by, "title": _TITLES.get(by, clean(by, 30)), "rows": rows, "total": len(ordered)}
