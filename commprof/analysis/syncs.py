"""Calls in which a CPU thread waits for the device, why it made them, and which launches they hold up."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.places import CAUSES
from commprof.analysis.ranges import NONE, codes_of, find_ranges
from commprof.analysis.scene import Scene
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED

RATE_LIMITER, BLOCKING_WAIT, SYNCHRONISATION = (
    CAUSES.index(name) for name in ("rate-limiter", "blocking-wait", "device-synchronisation")
)
BY_SYNCS = (RATE_LIMITER, BLOCKING_WAIT, SYNCHRONISATION)
_WAITS = re.compile(r"Synchronize|Memcpy")
_COPIES = re.compile(r"Memcpy")
_WAITED_NS = 20_000
"""A copy that only enqueues returns sooner; one from or to pageable memory waits for the device."""
_LIMITER = re.compile(r"FullyShardedDataParallel\.rate_limiter")
_NAMING = re.compile(
    r"FullyShardedDataParallel\.rate_limiter|^aten::(?:item|_local_scalar_dense|is_nonzero|nonzero|equal)$"
    r"|^FSDP::|^Optimizer\.step#|^enumerate\(DataLoader\)"
)
_READS = re.compile(r"^aten::")


@dataclass(slots=True, eq=False)
class Syncs:
    """Waiting calls in order of start; ``cause`` is an index into ``CAUSES``, ``operator`` into ``names``."""

    start: Int64Array
    end: Int64Array
    thread: Int64Array
    cause: NDArray[np.int8]
    operator: NDArray[np.int32]
    names: list[str]

    def __len__(self) -> int:
        return len(self.start)

    def spans(self, thread: int | None = None) -> IntervalSet:
        """All instants in which the thread (by default any) waits."""
        mine = slice(None) if thread is None else self.thread == thread
        return union(self.start[mine], self.end[mine])

    def covering(self, start: Int64Array, end: Int64Array) -> Int64Array:
        """The last waiting call that began before the end of each stretch and ended after its start, -1 for none."""
        row = np.searchsorted(self.start, end, side="left") - 1
        there = row >= 0
        there[there] = self.end[row[there]] > start[there]
        return np.where(there, row, NONE)


def find_syncs(scene: Scene) -> Syncs:
    """The waiting calls of one rank.

    A wait inside FSDP's rate limiter is its own. One that follows a launch of communication, with nothing launched
    in between and no operator that reads a value, waits for that communication; any other one waits for the device.
    """
    runtime, calls = scene.rank.runtime, scene.calls
    rows = np.flatnonzero(np.isin(runtime.name, codes_of(scene.rank, _WAITS)))
    copies = np.isin(runtime.name[rows], codes_of(scene.rank, _COPIES))
    rows = rows[~copies | (runtime.end[rows] - runtime.start[rows] >= _WAITED_NS)]
    rows = rows[np.argsort(runtime.start[rows], kind="stable")]
    thread = thread_keys(runtime.pid[rows], runtime.tid[rows])
    start = runtime.start[rows]
    ranges = find_ranges(scene.rank, _NAMING)
    around = ranges.innermost(thread, start)
    names: dict[str, int] = {}
    operator = np.array(
        [
            names.setdefault(scene.rank.names[runtime.name[row] if place == NONE else ranges.name[place]], len(names))
            for row, place in zip(rows.tolist(), around.tolist(), strict=True)
        ],
        np.int32,
    )
    listed = list(names)
    reads = np.array([bool(_READS.search(listed[code])) for code in operator.tolist()], np.bool_)
    cause = np.full(len(rows), SYNCHRONISATION, np.int8)
    cause[_after_communication(thread, start, scene.launch, scene.thread, calls.issued, calls.thread) & ~reads] = (
        BLOCKING_WAIT
    )
    cause[[bool(_LIMITER.search(listed[code])) for code in operator.tolist()]] = RATE_LIMITER
    return Syncs(start, runtime.end[rows], thread, cause, operator, listed)


def _after_communication(
    thread: Int64Array, start: Int64Array, launch: Int64Array, by: Int64Array, issued: Int64Array, caller: Int64Array
) -> NDArray[np.bool_]:
    """Whether the last thing that the thread enqueued before each instant was communication."""
    compute = _last_before(thread, start, by[launch != NOT_LAUNCHED], launch[launch != NOT_LAUNCHED])
    comm = _last_before(thread, start, caller[issued != NOT_LAUNCHED], issued[issued != NOT_LAUNCHED])
    return comm > compute


def _last_before(thread: Int64Array, instant: Int64Array, by: Int64Array, launch: Int64Array) -> Int64Array:
    """Start of the last launch of each thread before each instant, ``NOT_LAUNCHED`` for none."""
    out = np.full(len(instant), NOT_LAUNCHED)
    for key in np.unique(thread).tolist():
        times = np.sort(launch[by == key])
        asked = np.flatnonzero(thread == key)
        place = np.searchsorted(times, instant[asked], side="left") - 1
        there = place >= 0
        out[asked[there]] = times[place[there]]
    return out


def held_up(syncs: Syncs, scene: Scene) -> Int64Array:
    """For each call the wait that held up its launch: one that fills at least half of the time since the thread's
    last launch before; -1 for none."""
    calls = scene.calls
    out = np.full(len(calls), NONE, np.int64)
    if not len(syncs) or not len(calls):
        return out
    linked = scene.launch != NOT_LAUNCHED
    there = calls.issued != NOT_LAUNCHED
    launches = np.concatenate([scene.launch[linked], calls.issued[there]])
    by = np.concatenate([scene.thread[linked], calls.thread[there]])
    before = _last_before(calls.thread, calls.issued, by, launches)
    asked = np.flatnonzero(there & (before != NOT_LAUNCHED))
    for key in np.unique(calls.thread[asked]).tolist():
        mine = asked[calls.thread[asked] == key]
        waiting = np.flatnonzero(syncs.thread == key)
        if not len(waiting):
            continue
        spans = union(syncs.start[waiting], syncs.end[waiting])
        blocked = spans.within(before[mine], calls.issued[mine])
        last = waiting[np.maximum(np.searchsorted(syncs.start[waiting], calls.issued[mine], side="left") - 1, 0)]
        held = 2 * blocked >= calls.issued[mine] - before[mine]
        out[mine[held & (blocked > 0)]] = last[held & (blocked > 0)]
    return out
