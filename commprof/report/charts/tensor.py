"""Tensor parallel, block by block: how much of its communication is exposed, and how much the design makes so."""

from __future__ import annotations

from collections import defaultdict

from commprof.report.charts.wording import Json, clean, count
from commprof.units import format_ns

MOST_ROWS = 48


def tensor(report: Json) -> Json | None:
    """Blocks of all groups together, in order of the passes; times are means per call. ``None`` without any."""
    rows = report.get("tensor_parallel") or []
    if not rows:
        return None
    sums: dict[tuple[str, int, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row in rows:
        total = sums[(row["direction"], row["index"], tuple(row["ops"]))]
        for i, key in enumerate(("count", "comm_ns", "exposed_ns", "structural_ns")):
            total[i] += row[key]
    order = sorted(sums, key=lambda key: (key[0] != "forward", key[1], key[2]))
    longest = max((total[1] / max(total[0], 1) for total in sums.values()), default=0) or 1
    calls, comm, exposed, structural = (sum(total[i] for total in sums.values()) for i in range(4))
    return {
        "rows": [_row(key, sums[key], longest) for key in order[:MOST_ROWS]],
        "total": len(order),
        "groups": count(len({row["group_id"] for row in rows}), "group"),
        "calls": f"{calls:,}",
        "comm": format_ns(comm),
        "exposed": format_ns(exposed),
        "structural": format_ns(structural),
    }


def _row(key: tuple[str, int, tuple[str, ...]], total: list[int], longest: float) -> Json:
    direction, index, ops = key
    calls, comm, exposed, structural = total
    each = max(calls, 1)
    return {
        "block": index,
        "direction": clean(direction, 12),
        "ops": clean(", ".join(op.replace("_", "-") for op in ops), 60),
        "calls": f"{calls:,}",
        "comm": format_ns(round(comm / each)),
        "exposed": format_ns(round(exposed / each)),
        "structural": format_ns(round(structural / each)),
        "exposed_width": exposed / each / longest * 100,
        "hidden_width": max(comm - exposed, 0) / each / longest * 100,
    }
