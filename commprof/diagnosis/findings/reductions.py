"""The gradient reductions of the reference steps: what several rules look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.diagnosis.ground import REDUCTIONS, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED
from commprof.trace.operations import OPERATIONS

NOT_OVERLAP = (
    "blocking-wait", "device-synchronisation", "on-compute-stream", "serialised", "first-use", "profiler-start",
)  # fmt: skip
"""Causes for which no schedule of reductions is to blame."""


@dataclass(slots=True, eq=False)
class Reductions:
    """Gradient reductions of one reference step in order of launch: rows of the rank's calls, their sizes, and how
    much of them was hidden, nanoseconds."""

    calls: Int64Array
    size: Int64Array
    duration: int
    hidden: int


def reductions(ground: Ground, rows: Mask) -> list[Reductions]:
    """The gradient reductions of every step, also those that nothing exposes; ``rows`` are the exposed ones."""
    return [_of_step(ground, step, np.unique(ground.exposed.call[rows & (ground.exposed.step == index)]))
            for index, step in enumerate(ground.steps)]  # fmt: skip


def _of_step(ground: Ground, step: ReferenceStep, exposed: Int64Array) -> Reductions:
    """Calls of the step of the same operation and groups as the exposed gradient reductions."""
    calls, shares, places = step.rank.calls, step.rank.shares, step.rank.places
    windows = [number for number, name in enumerate(shares.step_names) if name in step.unit.names]
    mine = np.isin(shares.step, windows) & (calls.device == step.device.device) & ~calls.fused
    mine &= np.isin(calls.operation, [OPERATIONS.index(name) for name in REDUCTIONS])
    if len(exposed):
        mine &= np.isin(calls.group, calls.group[exposed]) & np.isin(places.purpose, places.purpose[exposed])
        mine &= ~np.isin(places.phase, (0, 3))
    found = np.flatnonzero(mine)
    order = np.where(calls.launched[found] == NOT_LAUNCHED, calls.start[found], calls.launched[found])
    found = found[np.argsort(order, kind="stable")]
    duration = calls.duration[found]
    return Reductions(
        found, calls.size_bytes[found], int(duration.sum()), int((duration - shares.touched[found]).sum())
    )


def of_gradients(ground: Ground) -> tuple[Mask, list[Reductions]]:
    """Exposed rows of gradient reductions, and all gradient reductions of every step."""
    rows = ground.gradients()
    return rows, reductions(ground, rows)


def unhidden(ground: Ground, found: list[Reductions]) -> bool:
    """Whether next to nothing of the reductions runs beside compute."""
    duration = sum(step.duration for step in found)
    return bool(duration) and sum(step.hidden for step in found) < ground.limits.no_overlap * duration


def facts(ground: Ground, rows: Mask, found: list[Reductions]) -> tuple[Evidence, ...]:
    """What findings on gradient reductions rest on."""
    duration, hidden = sum(s.duration for s in found), sum(s.hidden for s in found)
    sized = [int(step.size[step.size >= 0].sum()) for step in found]
    return (
        Evidence("exposed", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
        Evidence("reductions per step", round(sum(len(s.calls) for s in found) / len(found), 1), "calls"),
        Evidence("bytes reduced per step", sum(sized) // len(found), "bytes"),
        Evidence("hidden behind compute", hidden / duration if duration else None, "share of communication time"),
    )  # fmt: skip


def last_is_large(ground: Ground, found: list[Reductions]) -> bool:
    """Whether the last reduction holds so many of the gradients that hardly anything could run before it."""
    limits = ground.limits
    return all(
        len(step.size)
        and int(step.size[-1]) >= limits.large_bucket
        and int(step.size[-1]) >= limits.large_bucket_share * int(step.size[step.size >= 0].sum())
        for step in found
    )
