"""What decided when each call started: its launch, the compute before it, or the communication before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.passes import last_launched, previous_call
from commprof.analysis.phases import Phase
from commprof.analysis.places import NOWHERE
from commprof.analysis.scene import DeviceScene, Scene
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

NEAR_NS = 20_000
"""Start of a kernel after what it waited for: 1 to 15 us on an A100 and an MI300X, more on busy devices."""


@dataclass(slots=True, eq=False)
class Timing:
    """One entry per call, shape ``(calls,)``, nanoseconds; ``NOT_LAUNCHED`` where nothing tells.

    ``ready`` is the end of the last compute that the launching thread launched on the main stream before the call and
    ``after`` that of the last compute that ended there before the call started. ``ready_phase`` is the phase of the
    former. ``stream_end`` and ``group_end`` are ends of the communication before it, on its stream and in its group on
    other streams; ``stream_call`` is the row of the former (-1: none).
    """

    launched: Int64Array
    ready: Int64Array
    ready_phase: Phase
    after: Int64Array
    stream_end: Int64Array
    stream_call: Int64Array
    group_end: Int64Array

    @property
    def lag(self) -> Int64Array:
        """Launch after ready, 0 where it is earlier or one of them is unknown."""
        known = (self.launched != NOT_LAUNCHED) & (self.ready != NOT_LAUNCHED)
        return np.where(known, np.maximum(self.launched - self.ready, 0), 0)


def timing_of(scene: Scene, phases: list[Phase]) -> Timing:
    """Timing of all calls; ``phases`` are those of the compute of each device."""
    calls = scene.calls
    count = len(calls)
    unknown = np.full(count, NOT_LAUNCHED)
    before = previous_call(calls.device, calls.stream)
    ends = np.where(before >= 0, calls.end[before], NOT_LAUNCHED) if count else unknown
    timing = Timing(
        np.where(calls.graph, NOT_LAUNCHED, calls.issued) if scene.on_cpu else calls.launched,
        unknown,
        np.full(count, NOWHERE, np.int8),
        unknown.copy(),
        ends,
        before,
        _group_end(scene),
    )
    for device, phase in zip(scene.devices, phases, strict=True):
        mine = np.flatnonzero(calls.device == device.work.device)
        if len(device.work.compute_start) and not scene.on_cpu:
            row = last_launched(calls.thread[mine], timing.launched[mine], device)
            there = row >= 0
            timing.ready[mine[there]] = device.work.compute_end[row[there]]
            timing.ready_phase[mine[there]] = phase[row[there]]
        timing.after[mine] = _ended_before(calls.start[mine], device)
    return timing


def _ended_before(start: Int64Array, device: DeviceScene) -> Int64Array:
    """End of the last compute of the main stream that was over when each call started (of a CPU: any)."""
    ends = np.sort(device.work.compute_end[device.on_main])
    place = np.searchsorted(ends, start, side="right") - 1
    out = np.full(len(start), NOT_LAUNCHED)
    out[place >= 0] = ends[place[place >= 0]]
    return out


def _group_end(scene: Scene) -> Int64Array:
    """Latest end among the calls of the same group that started before each call on other streams."""
    calls = scene.calls
    out = np.full(len(calls), NOT_LAUNCHED)
    for group in np.unique(calls.group[calls.group >= 0]).tolist():
        rows = np.flatnonzero((calls.group == group) & ~calls.fused)
        streams = np.unique(calls.stream[rows])
        if len(streams) < 2:
            continue
        for stream in streams.tolist():
            other, mine = rows[calls.stream[rows] != stream], rows[calls.stream[rows] == stream]
            reach = np.maximum.accumulate(calls.end[other])
            place = np.searchsorted(calls.start[other], calls.start[mine], side="left") - 1
            out[mine[place >= 0]] = reach[place[place >= 0]]
    return out


def waited_for(start: Int64Array, end: Int64Array, base: Int64Array, *, near: int = NEAR_NS) -> NDArray[np.bool_]:
    """Whether each start came right after ``end`` and not after an earlier ``base`` that allowed it."""
    known = end != NOT_LAUNCHED
    from_end = start - np.where(known, end, start)
    right_after: NDArray[np.bool_] = known & (end > base) & (from_end <= near) & (from_end >= 0)
    return right_after
