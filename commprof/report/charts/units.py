"""Sharded layers (FSDP, ZeRO): when each gather was issued, ran and was needed, in one step of one rank."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from commprof.report.causes import EXPOSED, named
from commprof.report.charts.tracks import Axis, compute_of, parts_of, step_entry
from commprof.report.charts.wording import Json, clean
from commprof.units import format_ns

MOST_DRAWN = 40
MOST_ROWS = 60


def units(view: Json) -> Json | None:
    """``{"chart", "rows", "total"}``; ``None`` where no layer is gathered or scattered."""
    rows = view["report"].get("units") or []
    if not rows:
        return None
    sums: dict[tuple[str | None, str, str | None], list[Json]] = defaultdict(list)
    for row in rows:
        sums[(row["module"], row["op"], row["direction"])].append(row)
    order = sorted(sums, key=lambda key: (-sum(row["exposed_ns"] or 0 for row in sums[key]), str(key)))
    return {
        "chart": _chart(view, rows),
        "rows": [_summary(key, sums[key]) for key in order[:MOST_ROWS]],
        "total": len(order),
    }


def _chart(view: Json, rows: list[Json]) -> Json:
    exposed: dict[tuple[int, str | None], int] = defaultdict(int)
    for row in rows:
        exposed[(row["rank"], row["step"])] += row["exposed_ns"] or 0
    drawn = {(entry["rank"], entry["step"]) for entry in view.get("timeline") or []}
    rank, step = min(exposed, key=lambda key: (key not in drawn, -exposed[key], key[0], str(key[1])))
    mine = [row for row in rows if (row["rank"], row["step"]) == (rank, step)]
    entry = step_entry(view, rank, step)
    kept = sorted(sorted(mine, key=lambda r: -(r["exposed_ns"] or 0))[:MOST_DRAWN], key=lambda r: r["start_ns"])
    keys = ("issued_ns", "start_ns", "end_ns", "needed_ns")
    times = [row[key] for row in kept for key in keys if row[key] is not None]
    if entry:
        times = [min(max(t, entry["start_ns"]), entry["end_ns"]) for t in times]
    axis = Axis(min(times), max(times))
    return {
        "rank": rank,
        "step": clean(step, 60),
        "ticks": axis.ticks(entry["start_ns"] if entry else axis.first),
        "compute": compute_of(axis, entry),
        "rows": [_drawn(row, axis, entry) for row in kept],
        "total": len(mine),
    }


def _drawn(row: Json, axis: Axis, entry: Json | None) -> Json:
    issued = row["issued_ns"] if row["issued_ns"] is not None else row["start_ns"]
    marks = [
        {"kind": kind, "left": axis.at(row[key])}
        for kind, key in (("launched", "issued_ns"), ("needed", "needed_ns")) if row[key] is not None
    ]  # fmt: skip
    return {
        "name": clean(row["module"] or "unknown", 60),
        "op": clean(row["op"], 20).replace("_", "-"),
        "direction": clean(row["direction"] or "n/a", 12),
        "bars": parts_of(axis, row["start_ns"], row["end_ns"], entry),
        "wait": axis.bar(issued, row["start_ns"], "line"),
        "marks": marks,
        "slack": format_ns(row["slack_ns"]),
        "exposed": format_ns(row["exposed_ns"]),
        "cause": named(EXPOSED, row["cause"]) if row["cause"] else "",
    }


def _summary(key: tuple[str | None, str, str | None], rows: list[Json]) -> Json:
    module, op, direction = key
    slack = [row["slack_ns"] for row in rows if row["slack_ns"] is not None]
    causes = [row["cause"] for row in rows if row["cause"]]
    return {
        "name": clean(module or "unknown", 80),
        "op": clean(op, 20).replace("_", "-"),
        "direction": clean(direction or "n/a", 12),
        "calls": f"{len(rows):,}",
        "length": format_ns(round(median(row["end_ns"] - row["start_ns"] for row in rows))),
        "slack": format_ns(round(median(slack))) if slack else "n/a",
        "exposed": format_ns(round(sum(row["exposed_ns"] or 0 for row in rows) / len(rows))),
        "cause": named(EXPOSED, max(sorted(set(causes)), key=causes.count)) if causes else "n/a",
    }
