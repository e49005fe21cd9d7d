"""DDP's gradient buckets: one step as a chart against the compute of the rank, and every bucket over all steps."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from commprof.report.charts.tracks import Axis, compute_of, parts_of, step_entry
from commprof.report.charts.wording import Json, clean, micro_steps
from commprof.units import format_bytes, format_ns

MOST_DRAWN = 40
MOST_ROWS = 60
MOST_NAMES = 6


def buckets(view: Json) -> Json | None:
    """``{"chart", "rows", "total"}``; ``None`` without buckets."""
    rows = lasting(view["report"])
    if not rows:
        return None
    by_index = defaultdict(list)
    for row in rows:
        by_index[row["index"]].append(row)
    order = sorted(by_index)
    return {
        "chart": _chart(view, rows),
        "rows": [_summary(by_index[key]) for key in order[:MOST_ROWS]],
        "total": len(order),
        "micro": micro_steps(view["report"]),
    }


def lasting(report: Json) -> list[Json]:
    """Rows of the buckets that the run keeps: DDP reduces all in one in its first iteration, and never again (C134)."""
    return [row for row in report.get("buckets") or [] if row["layout"] != "first-iteration"]


def _chart(view: Json, rows: list[Json]) -> Json:
    """One step of the rank with the most exposed buckets, the step of the timeline if that has buckets."""
    sums: dict[tuple[int, str | None], int] = defaultdict(int)
    for row in rows:
        sums[(row["rank"], row["step"])] += row["exposed_ns"] or 0
    drawn = {(entry["rank"], entry["step"]) for entry in view.get("timeline") or []}
    rank, step = min(sums, key=lambda key: (key not in drawn, -sums[key], key[0], str(key[1])))
    mine = sorted((r for r in rows if (r["rank"], r["step"]) == (rank, step)), key=lambda r: r["start_ns"])
    entry = step_entry(view, rank, step)
    # Launches may lie far before: the CPU runs ahead, which is harmless. They do not stretch the axis.
    times = [t for row in mine for t in (row["ready_ns"], row["start_ns"], row["end_ns"]) if t is not None]
    first, last = min(times), max(times)
    known = [(r["backward_start_ns"], r["backward_end_ns"]) for r in mine if r.get("backward_end_ns") is not None]
    backward = max(known, key=lambda span: span[1]) if known else None
    if backward:
        last = max(last, backward[1])
        # Of a long backward pass (pipelines) only as much as the buckets themselves take.
        first = min(first, max(backward[0] or first, 2 * first - last))
    # Some compute before the first bucket and after the last shows what the buckets run beside.
    margin = (last - first) // 25
    axis = Axis(max(first - margin, entry["start_ns"]) if entry else first, last + margin)
    kept = sorted(sorted(mine, key=lambda r: -(r["exposed_ns"] or 0))[:MOST_DRAWN], key=lambda r: r["start_ns"])
    return {
        "rank": rank,
        "step": clean(step, 60),
        "ticks": axis.ticks(entry["start_ns"] if entry else axis.first),
        "compute": compute_of(axis, entry),
        "backward": None if backward is None else axis.bar(backward[0] or first, backward[1], "span"),
        "rows": [_drawn(row, axis, entry) for row in kept],
        "total": len(mine),
        "tail": format_ns(sum(row["tail_ns"] or 0 for row in mine)),
        "has_tail": any(row["tail"] for row in mine),
    }


def _drawn(row: Json, axis: Axis, entry: Json | None) -> Json:
    marks = [
        {"kind": kind, "left": axis.at(row[key])} for kind, key in (("ready", "ready_ns"), ("launched", "launched_ns"))
        if row[key] is not None
    ]  # fmt: skip
    begin = min((row[key] for key in ("ready_ns", "launched_ns") if row[key] is not None), default=row["start_ns"])
    return {
        "index": row["index"],
        "size": format_bytes(row["size_bytes"]),
        "bars": parts_of(axis, row["start_ns"], row["end_ns"], entry),
        "wait": axis.bar(begin, row["start_ns"], "line"),
        "marks": marks,
        "lag": format_ns(row["lag_ns"]),
        "queued": format_ns(row["queued_ns"]),
        "exposed": format_ns(row["exposed_ns"]),
        "tail": bool(row["tail"]),
    }


def _summary(rows: list[Json]) -> Json:
    """One bucket over all ranks and steps."""
    first = rows[0]
    names = first.get("parameters") or []
    return {
        "index": first["index"],
        "size": format_bytes(first["size_bytes"]),
        "parameters": len(names) or None,
        "names": [clean(name, 80) for name in names[:MOST_NAMES]],
        "more": max(len(names) - MOST_NAMES, 0),
        "calls": f"{len(rows):,}",
        "lag": _middle(rows, "lag_ns"),
        "queued": _middle(rows, "queued_ns"),
        "delay": _middle(rows, "start_delay_ns"),
        "length": format_ns(round(median(row["end_ns"] - row["start_ns"] for row in rows))),
        "exposed": _middle(rows, "exposed_ns"),
        "tail": f"{sum(bool(row['tail']) for row in rows):,} of {len(rows):,}",
        "is_tail": 2 * sum(bool(row["tail"]) for row in rows) > len(rows),
    }


def _middle(rows: list[Json], key: str) -> str:
    known = [row[key] for row in rows if row[key] is not None]
    return format_ns(round(median(known))) if known else "n/a"
