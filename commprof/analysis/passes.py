"""The backward pass on the device, by window: from its first compute to its last, which is where the tail begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.phases import BACKWARD, EVERYWHERE, Phase, Phases
from commprof.analysis.scene import DeviceScene, Scene
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

NEVER = np.iinfo(np.int64).max


@dataclass(slots=True, eq=False)
class BackwardPass:
    """For each entry of ``step_names``: start of the first and end of the last backward compute of one device.

    ``known`` is false where the window holds none; then ``end`` is :data:`NEVER`. Where the phase of no compute is
    known, the last compute of the window stands for that of the backward pass (``assumed``).
    """

    start: Int64Array
    end: Int64Array
    known: NDArray[np.bool_]
    assumed: bool


def compute_phase(phases: Phases, scene: Scene, device: DeviceScene) -> Phase:
    """Phase of each compute event of a device."""
    work = device.work
    if scene.on_cpu:
        return phases.by_place(work.compute_start)
    if scene.by_time:
        return phases.of(np.full(len(work.compute_start), EVERYWHERE), work.compute_start)
    return phases.of(work.compute_thread, work.compute_launch)


def backward_pass(phase: Phase, scene: Scene, device: DeviceScene) -> BackwardPass:
    """The backward pass in every window of a device; ``phase`` is that of its compute."""
    work, steps = device.work, len(scene.shares.step_names)
    assumed = not (phase >= 0).any()
    rows = np.flatnonzero((phase == BACKWARD) | assumed)
    start, end = np.full(steps, NEVER), np.full(steps, np.iinfo(np.int64).min)
    if len(device.start):
        place = np.searchsorted(device.start, work.compute_start[rows], side="right") - 1
        inside = (place >= 0) & (work.compute_start[rows] < device.end[np.maximum(place, 0)])
        step = device.steps[place[inside]]
        np.minimum.at(start, step, work.compute_start[rows[inside]])
        np.maximum.at(end, step, work.compute_end[rows[inside]])
    known = start != NEVER
    return BackwardPass(start, np.where(known, end, NEVER), known, assumed)


def ends_of_passes(phases: Phases, phase: Phase, scene: Scene, device: DeviceScene) -> Int64Array:
    """End of the last compute of every backward pass on a device, :data:`NEVER` where there is none.

    Entry 0 is for what comes before the first pass, ``i`` for what was launched since pass ``i`` of
    ``phases.passes`` began, counted from 1.
    """
    work = device.work
    instant = work.compute_start if scene.on_cpu or scene.by_time else work.compute_launch
    rows = np.flatnonzero(phase == BACKWARD)
    ends = np.full(len(phases.passes) + 1, np.iinfo(np.int64).min)
    np.maximum.at(ends, np.searchsorted(phases.passes.starts, instant[rows], side="right"), work.compute_end[rows])
    return np.where(ends == np.iinfo(np.int64).min, NEVER, ends)


def last_launched(thread: Int64Array, instant: Int64Array, device: DeviceScene) -> Int64Array:
    """For each launch the last compute event that its thread launched before it on the main compute stream, else -1."""
    work = device.work
    rows = np.flatnonzero(device.on_main & (work.compute_launch != NOT_LAUNCHED))
    out = np.full(len(instant), -1, np.int64)
    for key in np.unique(thread).tolist():
        mine = rows[work.compute_thread[rows] == key]
        mine = mine[np.argsort(work.compute_launch[mine], kind="stable")]
        asked = np.flatnonzero((thread == key) & (instant != NOT_LAUNCHED))
        before = np.searchsorted(work.compute_launch[mine], instant[asked], side="left") - 1
        there = before >= 0
        out[asked[there]] = mine[before[there]]
    return out


def previous_call(device: Int64Array, stream: Int64Array) -> Int64Array:
    """For each call, in order of start, the row of the call before it on its stream, -1 for the first."""
    out = np.full(len(stream), -1, np.int64)
    order = np.lexsort((np.arange(len(stream)), stream, device))
    same = (stream[order][1:] == stream[order][:-1]) & (device[order][1:] == device[order][:-1])
    out[order[1:][same]] = order[:-1][same]
    return out
