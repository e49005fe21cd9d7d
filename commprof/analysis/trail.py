"""What the CPU of a rank did, kept small: all that the critical path of the run needs after the columns are gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.behaviour import INPUT_RANGE
from commprof.analysis.host_delays import Stalls, launches_of, launching_of
from commprof.analysis.ranges import find_ranges
from commprof.analysis.scene import Scene
from commprof.analysis.syncs import Syncs
from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.model import NOT_LAUNCHED, Calls

SHORTEST_WAIT_NS = 5_000
"""A wait that returns sooner found the device done: the CPU went on as if it had not asked."""
_CONVERTED_NS = 10_000
"""Times of the device are converted to the clock of the CPU, by a few us too late or too early."""


@dataclass(slots=True, eq=False)
class Progress:
    """How far compute was: nanoseconds of compute since the first.

    Of shape ``(calls,)``, ``before`` of all that was launched before a call, ``at_end`` of what had run when it ended.
    ``at_steps`` of what had run when each window began, in order of the windows.
    """

    before: Int64Array
    at_end: Int64Array
    at_steps: Int64Array


@dataclass(slots=True, eq=False)
class Trail:
    """Instants on the clock of the rank, nanoseconds.

    ``host`` are the host-bound ones, ``waits`` those at which a thread waits for the device, ``inputs`` those at which
    the loop fetches its next batch, ``pauses`` other stretches without a launch, ``launching`` those inside the launch
    of communication. ``done[i]`` is the end of the last compute that was over when wait ``i`` ended, ``gap`` the mean
    time between two launches where neither a wait, an input nor a pause lies between them, 0 without any.
    ``progress`` is that of compute at every call.
    """

    host: IntervalSet
    waits: IntervalSet
    done: Int64Array
    inputs: IntervalSet
    pauses: IntervalSet
    launching: IntervalSet
    gap: float
    progress: Progress | None = None


def find_trail(scene: Scene, syncs: Syncs) -> Trail | None:
    """The trail of one rank; ``None`` where it has several devices, or nothing is linked to its launch."""
    device = scene.devices[0]
    if len(scene.devices) != 1 or scene.on_cpu or device.host is None:
        return None
    launches = launches_of(scene)
    long = syncs.end - syncs.start >= SHORTEST_WAIT_NS
    waits = union(syncs.start[long], syncs.end[long])
    loading = find_ranges(scene.rank, INPUT_RANGE)
    stalls = Stalls(union(loading.start, loading.end), launches, union(syncs.start, syncs.end))
    usual = _gap(launches, waits | stalls.inputs | stalls.pauses)
    done = _done(device.work, waits.ends)
    progress = _progress(device.work, scene.calls, device.start)
    return Trail(device.host, waits, done, stalls.inputs, stalls.pauses, launching_of(scene), usual, progress)


def _progress(work: Work, calls: Calls, steps: Int64Array) -> Progress:
    """A call of which the trace tells no launch counts as launched when it starts."""
    issued = np.where(calls.issued == NOT_LAUNCHED, calls.start, calls.issued)
    linked = np.flatnonzero(work.compute_launch != NOT_LAUNCHED)
    order = linked[np.argsort(work.compute_launch[linked], kind="stable")]
    first = int(work.compute_start.min(initial=0))
    until = np.append(first, np.maximum.accumulate(work.compute_end[order]))
    last = until[np.searchsorted(work.compute_launch[order], issued, side="left")]
    return Progress(
        *(work.compute.within(np.full(len(at), first), np.maximum(at, first)) for at in (last, calls.end, steps))
    )


def _done(work: Work, instants: Int64Array) -> Int64Array:
    """End of the last compute that was over at each instant of the CPU, the instant itself without any.

    If all that was launched by then ends no later than times of the device can be wrong, it was over.
    """
    ends = work.compute.ends
    place = np.searchsorted(ends, instants, side="right") - 1
    out = np.where(place >= 0, np.append(ends, 0)[place], instants)
    linked = work.compute_launch != NOT_LAUNCHED
    order = np.argsort(work.compute_launch[linked], kind="stable")
    until = np.maximum.accumulate(work.compute_end[linked][order])
    place = np.searchsorted(work.compute_launch[linked][order], instants, side="right") - 1
    last = np.where(place >= 0, np.append(until, 0)[place], out)
    return np.where((last > out) & (last <= instants + _CONVERTED_NS), np.minimum(last, instants), out)


def _gap(launches: Int64Array, left_out: IntervalSet) -> float:
    gap = np.diff(launches)
    plain = gap[left_out.within(launches[:-1], launches[1:]) == 0] if len(gap) else gap
    return float(plain.mean()) if len(plain) else 0.0
