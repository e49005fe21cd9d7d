"""Where communication is exposed: by operation, group, stream and whatever else the report breaks it down by."""

from __future__ import annotations

from collections.abc import Callable

from commprof.report.charts.wording import (
    COMM,
    Json,
    clean,
    count,
    has_step_marks,
    micro_steps,
    rank_ranges,
    ratio,
    share_of,
)
from commprof.units import format_bytes, format_gbps, format_ns

MOST_ROWS = 30
MOST_GROUP_ROWS = 100

_TITLES = {
    "op": "operation",
    "group": "process group",
    "phase": "phase",
    "cause": "cause",
    "bucket": "bucket",
    "module": "module",
    "stream": "stream",
}


def exposure(report: Json, base: str) -> Json | None:
    """Tables of hidden and exposed time, one for each way to break communication down; ``None`` without rows.

    Times are means per rank over the steps that its mean uses (closed ones, where there are any), or over the window.
    """
    counted = _counted(report["ranks"])
    rows = [row for row in report["exposure"] or [] if (row["rank"], row["step"]) in counted]
    if not rows:
        return None
    step_ns = sum(counted.values())
    windows = len(counted)
    tables = []
    present = {row["by"] for row in rows}
    for by in [*(by for by in _TITLES if by in present), *sorted(present - _TITLES.keys())]:
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


def _counted(ranks: list[Json]) -> dict[tuple[int, str], int]:
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
            return "unknown"
        return clean(known.get(name, f"stream {name}" if by == "stream" else name), 90)

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


def groups(report: Json) -> Json | None:
    """Total, hidden and exposed time, calls and bytes of every process group and operation (C212)."""
    rows = report["groups"] or []
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: (-(row["exposed_ns"] or 0), str(row["group"]), row["op"]))
    bandwidth = any(row.get("busbw_gbps_median") is not None for row in rows)
    waits = any(row.get("wait_ns") is not None for row in rows)
    return {
        "rows": [_group_row(row) for row in ordered[:MOST_GROUP_ROWS]],
        "total": len(rows),
        "bandwidth": bandwidth,
        "waits": waits,
    }


def _group_row(row: Json) -> Json:
    name = row["description"] or row["group"]
    size = row["group_size"]
    members = count(size, "rank")
    if row["ranks"]:
        members = f"{members}: {rank_ranges(row['ranks'])}" if len(row["ranks"]) == size else f"{members}, partly known"
    unsized = row.get("calls_without_size") or 0
    role = row.get("role")
    return {
        "name": clean(name if name is not None else "unknown", 60),
        "role": clean(role, 20) if role and role != "unknown" else None,
        "members": clean(members, 60),
        "op": clean(row["op"], 40),
        "calls": f"{row['calls']:,}",
        "bytes": format_bytes(None if unsized == row["calls"] else row["bytes"]),
        "bytes_note": f"{unsized:,} without size" if 0 < unsized < row["calls"] else None,
        "comm": format_ns(row["comm_ns"]),
        "hidden": format_ns(row["overlap_ns"]),
        "exposed": format_ns(row["exposed_ns"]),
        "hidden_share": share_of(ratio(row["overlap_ns"], row["comm_ns"]), COMM),
        "wait": format_ns(row.get("wait_ns")),
        "busbw": format_gbps(row.get("busbw_gbps_median")),
    }
