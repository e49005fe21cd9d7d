"""``per_step``: every step that means are taken over, averaged over ranks; what noise and comparisons need."""

from __future__ import annotations

from typing import Any

from commprof.analysis.model import Analysis
from commprof.analysis.steps import Unit, units

LENGTHS = (
    "duration", "compute", "comm", "overlap", "exposed_comm", "exposed_host", "exposed_copy", "idle", "idle_host",
)  # fmt: skip


def per_step_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per step, in order; ``steps`` are the marks in it, ``rows`` how many ranks and devices it is a mean of.

    Lengths are rounded to 1 ns, ``None`` where one of them has none.
    """
    found: dict[tuple[str, ...], list[Unit]] = {}
    for rank in analysis.ranks:
        for device in rank.devices:
            for unit in units(device, rank.optimizer_marks):
                found.setdefault(unit.names, []).append(unit)
    return [
        {"steps": list(names), "rows": len(chosen), **{f"{name}_ns": _mean(chosen, name) for name in LENGTHS}}
        for names, chosen in found.items()
    ]


def _mean(chosen: list[Unit], name: str) -> int | None:
    values = [unit.total(name) for unit in chosen]
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else (2 * sum(known) + len(known)) // (2 * len(known))
