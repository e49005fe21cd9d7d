"""Instants at which the device had nothing to compute because the CPU had not launched it yet (``spec``: section 3)."""

from __future__ import annotations

import numpy as np

from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, RuntimeCalls

_NEVER = np.iinfo(np.int64).max
_BEFORE_CAPTURE = np.iinfo(np.int64).min


def host_bound(work: Work, runtime: RuntimeCalls, blocking: Int64Array) -> IntervalSet:
    """The host-bound instants alone, see :func:`unlaunched`."""
    return unlaunched(work, runtime, blocking)[0]


def unlaunched(
    work: Work, runtime: RuntimeCalls, blocking: Int64Array, latency: int = 0
) -> tuple[IntervalSet, IntervalSet]:
    """The host-bound instants, and those at which the next compute was not launched because its thread waited.

    Host-bound are instants outside compute that come before the earliest launch of any compute that is still to start.

    After the start of the last compute nothing is left to launch, so nothing there is host-bound. An instant at which
    the launching thread waits inside a ``*Synchronize*`` or ``*Memcpy*`` call does not count:
    then the host waited for the device. ``blocking`` are the rows of such calls in ``runtime``; a launch counts
    ``latency`` nanoseconds after its start.
    """
    gap_start, gap_end, thread = _gaps(work, latency)
    bound, blocked = empty(), empty()
    call_thread = thread_keys(runtime.pid[blocking], runtime.tid[blocking])
    for key in np.unique(thread).tolist():
        mine = thread == key
        own_calls = blocking[call_thread == key]
        waiting = union(runtime.start[own_calls], runtime.end[own_calls])
        gaps = union(gap_start[mine], gap_end[mine])
        bound, blocked = bound | (gaps - waiting), blocked | (gaps & waiting)
    return bound - work.compute, blocked - work.compute


def _gaps(work: Work, latency: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Stretches that end with the launch to wait for, in order of start, and the thread of that launch."""
    start, launch, thread = _launches_by_start(work, latency)
    if not len(start):
        return start, launch, thread
    earliest, owner = _suffix_minimum(launch)
    # Between two compute starts the next launch to wait for is the same.
    gap_start = np.concatenate([[_BEFORE_CAPTURE], start[:-1]])
    gap_end = np.minimum(start, earliest)
    keep = gap_start < gap_end
    return gap_start[keep], gap_end[keep], thread[owner[keep]]


def _launches_by_start(work: Work, latency: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Compute events by start with their launch; those from before the capture launched long ago, other unlinked ones
    are left out."""
    linked = work.compute_launch != NOT_LAUNCHED
    if not linked.any():
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    first_linked = work.compute_start[linked].min()
    known = linked | (work.compute_start < first_linked)
    order = np.flatnonzero(known)
    order = order[np.argsort(work.compute_start[order], kind="stable")]
    launch = np.where(linked[order], work.compute_launch[order] + latency, _BEFORE_CAPTURE)
    return work.compute_start[order], launch, work.compute_thread[order]


def _suffix_minimum(launch: Int64Array) -> tuple[Int64Array, Int64Array]:
    """For each position the smallest launch from there on, and the position that holds it."""
    lowest = np.minimum.accumulate(launch[::-1])[::-1]
    position = np.where(launch == lowest, np.arange(len(launch)), _NEVER)
    return lowest, np.minimum.accumulate(position[::-1])[::-1]
