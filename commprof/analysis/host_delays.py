"""Why the CPU was late at host-bound instants: what it did then, or what had held it up before.

A host-bound instant is due to ``communication`` while the thread is inside the launch of a collective; it is an
aftermath (``after-wait``, ``after-synchronisation``) if a wait for the device ended before: without it the CPU would
have been ahead by as long as it waited. What the device did not compute meanwhile is lost there already; as much as it
did compute is lost in the host-bound time that follows, up to the next wait. The same holds for the ``input`` that
the loop fetches and for a ``pause`` of the CPU: they are lost where they leave the device without work, be it later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.behaviour import INPUT_RANGE
from commprof.analysis.idle import LATENCY_NS
from commprof.analysis.ranges import codes_of, find_ranges
from commprof.analysis.scene import Scene
from commprof.analysis.syncs import BLOCKING_WAIT, RATE_LIMITER, Syncs
from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.model import NOT_LAUNCHED, Calls

DELAYS = ("communication", "after-wait", "after-synchronisation", "input", "pause")

_PAUSE_NS = 50_000
_PAUSE_GAPS = 3
"""A pause between two launches is longer than this, and so many times as long as 95 of 100 gaps."""

_LAUNCHES_COMM = re.compile(r"^(?:c10d::|_c10d_functional|record_param_comms$|nccl:|xccl:)")


@dataclass(slots=True, eq=False)
class HostDelays:
    """Host-bound nanoseconds by reason of :data:`DELAYS` (the rest has none of them).

    ``exposed[i, k]`` is a part of the host-bound part of piece ``i`` of exposed time, shape ``(pieces, reasons)``;
    ``idle[device, window]`` a part of the idle time with cause ``launch`` in that window (an index into the names of
    the steps), shape ``(reasons,)``. ``waited[device, window]`` is how long the CPU waited for communication and how
    long for the device otherwise: no more can come back by not waiting. ``launching`` is how long a thread was inside
    the launch of each call, shape ``(calls,)``, 0 where the trace does not tell.
    """

    exposed: Int64Array
    idle: dict[tuple[int, int], Int64Array]
    waited: dict[tuple[int, int], Int64Array]
    launching: Int64Array


def find_delays(scene: Scene, syncs: Syncs, host: Int64Array) -> HostDelays:
    """The delays of one rank; ``host`` is the host-bound part of each piece, shape ``(pieces,)``."""
    pieces, calls = scene.shares.pieces, scene.calls
    exposed = np.zeros((len(pieces), len(DELAYS)), np.int64)
    idle: dict[tuple[int, int], Int64Array] = {}
    waited: dict[tuple[int, int], Int64Array] = {}
    launching = launching_of(scene)
    blocking = _habitual(scene, syncs)
    launches = launches_of(scene)
    loading = find_ranges(scene.rank, INPUT_RANGE)
    stalls = Stalls(union(loading.start, loading.end), launches, union(syncs.start, syncs.end))
    for device in scene.devices:
        if device.host is None:
            continue
        parts = _parts(device.host, launching, syncs, blocking, device.work, launches)
        parts = stalls.taken_from(parts, device.host, np.sort(syncs.start))
        # Idle time while the loop fetches its input has that as its cause already.
        busy = device.work.compute | device.work.comm | device.work.copy | stalls.inputs
        sums = np.stack([(part - busy).within(device.start, device.end) for part in parts], axis=1)
        waits = np.stack([span.within(device.start, device.end) for span in _waits(syncs, blocking)], axis=1)
        for place, window in enumerate(device.steps.tolist()):
            idle[device.work.device, window] = sums[place]
            waited[device.work.device, window] = waits[place]
        mine = np.flatnonzero((calls.device[pieces.call] == device.work.device) & (host > 0))
        start, end = pieces.start[mine], pieces.end[mine]
        whole = np.maximum(device.host.within(start, end), 1)
        for place, part in enumerate(parts):
            # A stretch may be shared by several calls: each has its part of the reason.
            exposed[mine, place] = part.within(start, end) * host[mine] // whole
    return HostDelays(exposed, idle, waited, _launch_costs(calls, launching))


class Stalls:
    """When the loop fetches its input, and when the CPU of a rank pauses otherwise: neither launches nor waits."""

    def __init__(self, inputs: IntervalSet, launches: Int64Array, waits: IntervalSet) -> None:
        self.inputs, self.launches = inputs, launches
        gap = np.diff(launches)
        long = np.flatnonzero(gap > _pause_limit(gap)) if len(gap) else np.empty(0, np.int64)
        self.pauses = union(launches[long], launches[long + 1]) - inputs - waits

    def taken_from(self, parts: list[IntervalSet], host: IntervalSet, waits: Int64Array) -> list[IntervalSet]:
        """The given parts of the host-bound instants without those lost to stalls, and these as two more parts."""
        inputs = self._lost(self.inputs, host, waits) - parts[1] - parts[2]
        pauses = self._lost(self.pauses, host, waits) - parts[1] - parts[2] - inputs
        return [parts[0] - inputs - pauses, *parts[1:], inputs, pauses]

    def _lost(self, stalls: IntervalSet, host: IntervalSet, waits: Int64Array) -> IntervalSet:
        """Host-bound instants during the stalls, and after each of them for as long as the device had work in it, at
        most to the next wait or stall: by so much further the CPU would have been ahead until then."""
        if not len(stalls) or not len(host):
            return empty()
        start, end = stalls.starts, stalls.ends
        passed = np.concatenate([[0], np.cumsum(host.ends - host.starts)])
        before = host.within(np.full(len(end), min(int(host.starts[0]), int(end[0]))), end)
        wanted = np.minimum(before + (end - start) - host.within(start, end), passed[-1])
        piece = np.maximum(np.searchsorted(passed, wanted, side="left") - 1, 0)
        reached = np.maximum(host.starts[piece] + (wanted - passed[piece]), end)
        far = np.iinfo(np.int64).max
        until = np.append(waits, far)[np.searchsorted(waits, end, side="left")]
        until = np.minimum(until, np.append(start[1:], far))
        return union(start, np.maximum(np.minimum(reached, until), end)) & host


def _habitual(scene: Scene, syncs: Syncs) -> NDArray[np.bool_]:
    """Which waits are a habit of waiting for communication: one a step is how a loop reads its loss."""
    blocking: NDArray[np.bool_] = syncs.cause == BLOCKING_WAIT
    windows = max(sum(len(device.start) for device in scene.devices), 1)
    return blocking & (int(blocking.sum()) >= 2 * windows)


def _waits(syncs: Syncs, blocking: NDArray[np.bool_]) -> tuple[IntervalSet, IntervalSet]:
    """Instants in which a thread waits for communication, and those in which it waits for the device otherwise."""
    other = ~blocking & (syncs.cause != RATE_LIMITER)
    return union(syncs.start[blocking], syncs.end[blocking]), union(syncs.start[other], syncs.end[other])


def _parts(
    host: IntervalSet,
    launching: IntervalSet,
    syncs: Syncs,
    blocking: NDArray[np.bool_],
    work: Work,
    launches: Int64Array,
) -> list[IntervalSet]:
    """Host-bound instants of each reason; an aftermath goes first."""
    start, end, habit = _aftermath(host, syncs, blocking, work, launches)
    # The thread of the next launch may wait for another one that waits for the device: the loop for the backward pass.
    waited, synchronised = (
        (union(start[mine], end[mine]) | during) & host
        for mine, during in zip((habit, ~habit), _waits(syncs, blocking), strict=True)
    )
    return [(host & launching) - waited - synchronised, waited, synchronised - waited]


def _aftermath(
    host: IntervalSet, syncs: Syncs, blocking: NDArray[np.bool_], work: Work, launches: Int64Array
) -> tuple[Int64Array, Int64Array, NDArray[np.bool_]]:
    """From the end of every wait to where as much host-bound time has passed as was computed during it, at most to the
    next wait, to where the CPU is ahead again or pauses; and whether it was a habitual wait for communication."""
    rows = np.flatnonzero(syncs.cause != RATE_LIMITER)
    start, end = syncs.start[rows], syncs.end[rows]
    if not len(rows) or not len(host):
        return end, end, blocking[rows]
    first, last = int(host.starts[0]), int(host.ends[-1])
    passed = np.concatenate([[0], np.cumsum(host.ends - host.starts)])
    before = host.within(np.full(len(end), first), np.maximum(end, first))
    wanted = np.minimum(before + work.compute.within(start, end), passed[-1])
    piece = np.maximum(np.searchsorted(passed, wanted, side="left") - 1, 0)
    reached = host.starts[piece] + (wanted - passed[piece])
    until = np.minimum(np.minimum(np.append(start[1:], last), _ahead_again(work, end)), _first_pause(launches, end))
    return end, np.minimum(np.maximum(reached, end), until), blocking[rows]


def launches_of(scene: Scene) -> Int64Array:
    """When anything was launched, in order of time."""
    known = np.concatenate([scene.launch[scene.launch != NOT_LAUNCHED], scene.calls.issued])
    return np.sort(known[known != NOT_LAUNCHED])


def _first_pause(launches: Int64Array, after: Int64Array) -> Int64Array:
    """The last launch before the first pause of the CPU after each instant: a pause is no part of catching up."""
    if len(launches) < 2:
        return np.full(len(after), np.iinfo(np.int64).max)
    gap = np.diff(launches)
    limit = _pause_limit(gap)
    place = np.searchsorted(launches, after, side="left")
    first = np.append(launches, np.iinfo(np.int64).max)[place]
    pauses = launches[:-1][gap > limit]
    next_pause = np.append(pauses, np.iinfo(np.int64).max)[np.searchsorted(pauses, first, side="left")]
    return np.where(first - after > limit, after, next_pause)


def _pause_limit(gap: Int64Array) -> int:
    return max(_PAUSE_NS, _PAUSE_GAPS * int(np.quantile(gap, 0.95)))


def _ahead_again(work: Work, after: Int64Array) -> Int64Array:
    """Start of the first compute launched after each instant that had stood in the queue; the far end if none did."""
    launch, start = work.compute_launch, work.compute_start
    queued = np.flatnonzero((launch != NOT_LAUNCHED) & (start - launch > LATENCY_NS))
    order = queued[np.argsort(launch[queued], kind="stable")]
    place = np.searchsorted(launch[order], after, side="left")
    return np.append(start[order], np.iinfo(np.int64).max)[place]


def _launch_costs(calls: Calls, launching: IntervalSet) -> Int64Array:
    """How long the launch of each call took; launches without a gap between them have equal parts."""
    out = np.zeros(len(calls), np.int64)
    known = np.flatnonzero(calls.issued != NOT_LAUNCHED)
    place = np.searchsorted(launching.starts, calls.issued[known], side="right") - 1
    inside = (place >= 0) & (calls.issued[known] < np.append(launching.ends, 0)[place])
    place = place[inside]
    share = np.maximum(np.bincount(place, minlength=len(launching)), 1)
    out[known[inside]] = ((launching.ends - launching.starts) // share)[place]
    return out


def launching_of(scene: Scene) -> IntervalSet:
    """Instants at which a thread is inside the launch of communication."""
    codes = codes_of(scene.rank, _LAUNCHES_COMM)
    parts = [
        (table.start[rows], table.end[rows])
        for table in (scene.rank.operators, scene.rank.annotations)
        for rows in [np.flatnonzero(np.isin(table.name, codes))]
    ]
    return union(np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts]))
