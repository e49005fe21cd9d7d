"""Whether two reports are of one job: of the same strategy, and moving the same amounts.

A change of settings leaves these as they are: bucket sizes, prefetching and the number of steps do not alter how many
bytes of gradients are reduced in a step, another precision or gradient accumulation alters them by a whole factor.
Another model, layout or strategy does not: then a comparison is of two jobs, and no effect of one change.
"""

from __future__ import annotations

from typing import Any

from commprof.report.causes import ROLES, strategy_name
from commprof.units import format_bytes

Json = dict[str, Any]

_ALIKE = 0.1
"""Amounts of one job differ by less: data decides how many tokens or unused parameters are sent."""
_WHOLE = 0.01
_MOST_TIMES = 64
"""A whole factor up to this, as exact as that, is precision, accumulation or micro-batches of one model."""
_HARDLY = 0.5
"""Share of the bytes in the same operations below which two runs of unknown strategy have little in common."""
_TOLD_APART_BY_NOTHING = {"zero1": "zero2", "zero3": "fsdp"}
"""Strategies that move the same bytes at the same places: which of the two is named may change between captures."""
_REDUCTIONS = ("reduce_scatter", "all_reduce")


def other_job(base: Json, new: Json) -> list[str]:
    """What shows that the two runs are different jobs, as clauses; empty where nothing does."""
    one, other = (_layout(report) for report in (base, new))
    if one is None or other is None:
        return _hardly_matching(base, new)
    if one != other:
        return [f"the base is {_layout_text(base)}, the new run {_layout_text(new)}"]
    amounts = [_amounts(report) for report in (base, new)]
    return [
        f"per step and rank the base has {format_bytes(round(amounts[0][what]))} of {what}, the new run "
        f"{format_bytes(round(amounts[1][what]))}"
        for what in amounts[0]
        if what in amounts[1] and not _same(amounts[0][what], amounts[1][what])
    ]


def warning(differences: list[str]) -> str | None:
    """One sentence for whoever reads the comparison; ``None`` where the runs are of one job."""
    if not differences:
        return None
    return (
        f"Not comparable as one job: {'; '.join(differences)}. What differs below is between two jobs, and not the "
        "effect of a change."
    )


def _layout(report: Json) -> frozenset[tuple[str, str, int | None]] | None:
    """Kind, name and degree of every part of the strategy; ``None`` where it was not recognised."""
    found = report["strategy"]
    if not found or found["name"] == "unknown" or not found["parts"]:
        return None
    return frozenset(
        (part["kind"], _TOLD_APART_BY_NOTHING.get(name := part.get("name") or "", name), part["degree"])
        for part in found["parts"]
    )


def _layout_text(report: Json) -> str:
    found = report["strategy"]
    parts = [
        f"{strategy_name(part['name'] or part['kind'])}{f' over {n} ranks' if (n := part['degree']) else ''}"
        for part in found["parts"]
    ]
    return " + ".join(dict.fromkeys(parts))


def _amounts(report: Json) -> dict[str, float]:
    """Bytes that one rank hands to collectives in a step by what they are for, means over ranks and steps.

    Gradients are counted where they are reduced: what is gathered depends on what was kept. Empty without calls.
    """
    rows = report["collectives"]
    if not rows:
        return {}
    counted = {name for unit in report["per_step"] for name in unit["steps"]}
    units = sum(unit["rows"] for unit in report["per_step"])
    roles = {(row["group_id"], row["op"]): row["role"] for row in report["groups"]}
    found: dict[str, float] = {}
    for row in rows:
        what = _purpose(roles.get((row["group_id"], row["op"])), row["op"])
        if what and row["step"] in counted and row["size_bytes"]:
            found[what] = found.get(what, 0.0) + row["size_bytes"] / units
    return found


def _purpose(role: str | None, operation: str) -> str | None:
    if role in ("dp", "shard", "edp"):
        return "gradients" if operation in _REDUCTIONS else None
    return f"{ROLES[role].name} messages" if role in ("tp", "pp", "ep", "cp") else None


def _same(one: float, other: float) -> bool:
    small, large = sorted((one, other))
    if large - small <= _ALIKE * large:
        return True
    times = round(large / small) if small else 0
    return 2 <= times <= _MOST_TIMES and abs(large / small - times) <= _WHOLE * times


def _hardly_matching(base: Json, new: Json) -> list[str]:
    """Without a known strategy: whether the same operations move the bytes."""
    sides = []
    for report in (base, new):
        total: dict[str, int] = {}
        for row in report["groups"] or []:
            total[row["op"]] = total.get(row["op"], 0) + (row["bytes"] or 0)
        sides.append(total)
    sums = [sum(side.values()) for side in sides]
    if not all(sums):
        return []
    common = sum(min(sides[0].get(op, 0) / sums[0], sides[1].get(op, 0) / sums[1]) for op in sides[0])
    if common >= _HARDLY:
        return []
    most = [max(side, key=lambda op: (side[op], op)).replace("_", "-") for side in sides]
    return [f"the collectives hardly match (the base sends mostly by {most[0]}, the new run by {most[1]})"]
