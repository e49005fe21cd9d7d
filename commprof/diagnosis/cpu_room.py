"""By how much a step is longer than its devices and its communication need: all that faster CPUs could give back."""

from __future__ import annotations

import numpy as np

from commprof.analysis.device_floor import device_floors
from commprof.analysis.model import Analysis
from commprof.analysis.pipeline import Pipeline
from commprof.analysis.places import PURPOSES
from commprof.analysis.steps import units
from commprof.diagnosis.ground import Ground
from commprof.intervals import Int64Array

_RANKS = 16
"""Ranks that are looked at, evenly spread: those of one role need the same."""
_ERROR = 0.02
"""By so much of it what one rank needs may come out too high: the largest of several picks that, and what is left would
be no bound."""


def cpu_room(ground: Ground) -> int | None:
    """Nanoseconds per step, a mean over ranks; ``None`` where the critical path, or what was launched before what, is
    not known."""
    floor = _floor(ground, messages=True)
    if floor is None:
        return None
    if ground.analysis.pipeline is not None:
        # While messages travel a stage may have nothing to do anyway: the one or the other is sure, not both.
        floor = max(floor, _floor(ground, messages=False) or 0.0)
    steps = [unit for rank in ground.analysis.ranks for unit in units(rank.devices[0], rank.optimizer_marks)]
    return max(int(np.mean([unit.total("duration") or 0 for unit in steps]) - floor), 0)


def _floor(ground: Ground, messages: bool) -> float | None:
    """What a step needs with messages between stages, or with the bubble of the pipeline in their place. The rank that
    needs the most decides: the others wait for it."""
    analysis, names = ground.analysis, [step.unit.names for step in ground.steps]
    if analysis.critical_path is None:
        return None
    by_role: dict[int, list[float]] = {}
    inside = 0.0
    for at in np.unique(np.linspace(0, len(analysis.ranks) - 1, _RANKS).astype(int)).tolist():
        found = device_floors(analysis.ranks[at], _transfers(analysis, at, messages), names)
        if found is None:
            return None
        whole = float(np.mean([floor.whole for floor in found]))
        by_role.setdefault(int(analysis.critical_path.role[at]), []).append(whole)
        inside = max(inside, float(np.mean([floor.pipeline for floor in found])) / max(whole, 1.0))
    needed = [max(float(np.mean(values)), (1 - _ERROR) * max(values)) for values in by_role.values()]
    return max(needed) if messages else max(needed) + _bubble(analysis.pipeline, min(needed) * inside)


def _transfers(analysis: Analysis, at: int, messages: bool) -> Int64Array:
    """Transfers of the calls of one rank; nothing of a call that nobody can tell from waiting."""
    waits, rank = analysis.waiting[at], analysis.ranks[at]
    known = np.where(waits.transfer >= 0, waits.transfer, np.maximum(waits.own, 0))
    left = np.where(waits.wait >= 0, rank.calls.duration - waits.wait, 0) if messages else 0
    found = np.where(rank.places.purpose == PURPOSES.index("point-to-point"), left, known)
    return np.minimum(found, rank.calls.duration)


def _bubble(pipeline: Pipeline | None, work: float) -> float:
    """What the schedule leaves empty beside the work of a stage inside the pipeline."""
    if pipeline is None or not pipeline.ideal_share:
        return 0.0
    return work * pipeline.ideal_share / (1 - pipeline.ideal_share)
