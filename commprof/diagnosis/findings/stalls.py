"""What fetching of inputs and pauses on the critical path cost in every step, by when the CPUs fetched and paused.

Waiting for a rank scatters over steps with all that goes on besides; the trace tells what made the rank late itself. If
that is about the same in every step, so is what it costs, whoever waits for it and whatever else is exposed meanwhile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.steps import units
from commprof.diagnosis.cpu_room import cpu_room
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.on_path import OnPath
from commprof.intervals import Int64Array

_STALLS = ("inputs", "pauses")


def stalls_by_step(ground: Ground, path: OnPath | None) -> Int64Array | None:
    """Nanoseconds per reference step of what is asked of inputs and pauses on the path, no more than faster CPUs could
    give back; ``None`` where nothing is."""
    asked = {} if path is None else {kind: path.parts[kind] for kind in _STALLS if kind in path.parts}
    if not any(ns.any() for ns in asked.values()):
        return None
    total = np.zeros(len(ground.steps))
    for kind, ns in asked.items():
        for index in np.flatnonzero(ns).tolist():
            total += int(ns[index]) * _spread(ground, index, kind)
    room: int | None = ground.once("cpu room", lambda: cpu_room(ground))
    if room is not None:
        total *= min(1.0, room * len(total) / max(float(total.sum()), 1.0))
    return total.astype(np.int64)


def _spread(ground: Ground, index: int, kind: str) -> NDArray[np.float64]:
    """What part of all that a rank fetches or pauses falls into each of the reference steps."""
    rank = ground.analysis.ranks[index]
    windows = units(rank.devices[0], rank.optimizer_marks)
    if rank.trail is None or not windows:
        return np.zeros(len(ground.steps))
    begin = np.array([unit.splits[0].start for unit in windows], np.int64)
    end = np.array([unit.splits[-1].end for unit in windows], np.int64)
    spent = getattr(rank.trail, kind).within(begin, end)
    by_name = dict(zip((unit.names for unit in windows), spent.tolist(), strict=True))
    return np.array([by_name.get(step.unit.names, 0) for step in ground.steps]) / max(int(spent.sum()), 1)
