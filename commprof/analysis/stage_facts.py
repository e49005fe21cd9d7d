"""What a rank of a pipeline keeps of itself, so that the bubble can be measured once all stages are there."""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec
import numpy as np

from commprof.analysis.idle import idle_of
from commprof.analysis.passes import BackwardPass
from commprof.analysis.phases import FORWARD, Phase
from commprof.analysis.places import CallPlaces
from commprof.analysis.purposes import POINT_TO_POINT
from commprof.analysis.ranges import codes_of
from commprof.analysis.scene import Scene
from commprof.intervals import Int64Array, IntervalSet

_MESSAGES = re.compile(r"^c10d::(?:send|recv_)$")
NEVER = np.iinfo(np.int64).max


@dataclass(slots=True, eq=False)
class StageFacts:
    """Idle and computing instants of the first device, and for each step (index into the names of the steps) where its
    first forward compute starts (:data:`NEVER`: none) and its last backward compute ends, and the compute in it;
    nanoseconds.

    ``boundary`` are the sides of the tensor that stages hand on, where the trace shows them.
    """

    idle: IntervalSet
    compute_set: IntervalSet
    forward_start: Int64Array
    backward_end: Int64Array
    compute: Int64Array
    boundary: tuple[int, ...] | None


def stage_facts(
    scene: Scene, places: CallPlaces, phases: list[Phase], backward: list[BackwardPass]
) -> StageFacts | None:
    """The facts of one rank, ``None`` where it exchanges no messages; ``phases`` are those of its compute."""
    if not (places.purpose == POINT_TO_POINT).any():
        return None
    device, phase, passed = scene.devices[0], phases[0], backward[0]
    steps = len(scene.shares.step_names)
    start, compute = np.full(steps, NEVER), np.zeros(steps, np.int64)
    work = device.work
    if len(device.start):
        rows = np.flatnonzero(phase == FORWARD)
        place = np.searchsorted(device.start, work.compute_start[rows], side="right") - 1
        inside = (place >= 0) & (work.compute_start[rows] < device.end[np.maximum(place, 0)])
        np.minimum.at(start, device.steps[place[inside]], work.compute_start[rows[inside]])
        compute[device.steps] = work.compute.within(device.start, device.end)
    end = np.where(passed.known & ~np.bool_(passed.assumed), passed.end, NEVER)
    return StageFacts(idle_of(device), work.compute, start, end, compute, _boundary(scene))


def _boundary(scene: Scene) -> tuple[int, ...] | None:
    """The most frequent shape of a tensor that is sent or received."""
    table = scene.rank.operators
    rows = np.flatnonzero(np.isin(table.name, codes_of(scene.rank, _MESSAGES)))
    count: dict[tuple[int, ...], int] = {}
    for row in rows.tolist():
        args = table.args.get(row)
        shape = None if args is None else _first_shape(bytes(args.dims))
        if shape:
            count[shape] = count.get(shape, 0) + 1
    return max(count, key=lambda shape: (count[shape], len(shape))) if count else None


def _first_shape(dims: bytes) -> tuple[int, ...] | None:
    """The first list of whole numbers in ``Input Dims``, however deep it lies."""
    try:
        value = msgspec.json.decode(dims) if dims else None
    except msgspec.DecodeError:
        return None
    while isinstance(value, list) and value:
        if all(isinstance(side, int) for side in value):
            return tuple(value)
        value = value[0]
    return None
