"""The critical path of the measured run: what each instant of its steps waited for, followed back over all ranks.

From the end of the last closed step back to the begin of the first one: work of a device leads to what it waited for
before it, exposed communication to the last rank that entered the call, host-bound time to what the CPU did since it
last waited for its device, and that wait to the device. Every instant of the steps lies in one stretch of the path.

If operations on the path get shorter by some time, the path that is left still has to be walked: the run gets shorter
by that time at most. So the time of a cause on the path is an upper bound of what comes back without it, as long as
nobody waits for something else then (critical path analysis: Kelley, Critical-Path Planning and Scheduling, 1961).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.clocks import Clocks
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.peers import Peers
from commprof.analysis.segments import largest
from commprof.analysis.steps import units
from commprof.analysis.trail import Trail
from commprof.intervals import Int64Array, IntervalSet
from commprof.trace.model import NOT_LAUNCHED

_NEAR_NS = 3_000
"""Compute that starts so soon after a call has waited for it; ranks see the end of a call so far apart."""
_LAUNCH_NS = 8_000
"""Start of a call on a free stream after its launch."""
_READ_NS = 20_000
"""A CPU that waits for its device goes on so soon after the last communication."""
_MOST_STRETCHES = 1_000_000
_Next = Callable[[], Any]
_OWN, _LAUNCHING, _INPUT, _PAUSE, _CPU = range(5)


@dataclass(slots=True, eq=False)
class CriticalPath:
    """Nanoseconds on the path over all ``steps`` steps (optimizer steps where these are joined), which add up to
    ``length``.

    Per rank of the input: ``own``, what its device does by itself; ``launching`` communication, fetching ``inputs``,
    ``pauses`` and all else (``cpu``) on its CPU. ``transfers`` are those of the matches ``match``, calls that no other
    rank has among them as -1. To compare ranks of one ``role``: ``compute``, ``fetched`` and ``paused``, what each did
    of these on the path or not, and the mean ``gap`` between its launches.
    """

    steps: int
    length: int
    own: Int64Array
    launching: Int64Array
    inputs: Int64Array
    pauses: Int64Array
    cpu: Int64Array
    match: Int64Array
    transfers: Int64Array
    role: Int64Array
    compute: Int64Array
    fetched: Int64Array
    paused: Int64Array
    gap: NDArray[np.float64]


def find_critical_path(analysis: Analysis, found: Matching, clocks: Clocks, peers: Peers) -> CriticalPath | None:
    """Follow the run back; ``None`` where ranks are missing or have clocks of their own, or where the trace of one does
    not link its device to its CPU."""
    hosts = {analysis.hosts.get(rank.rank) for rank in analysis.ranks}
    # Ranks that only messages join still share the clock of their host, but for how each converts its device times.
    apart = len(np.unique(clocks.component)) > 1 and (len(hosts) > 1 or None in hosts)
    if analysis.missing_ranks or not clocks.joined.all() or apart:
        return None
    if any(rank.trail is None for rank in analysis.ranks):
        return None
    chosen = [units(rank.devices[0], rank.optimizer_marks) for rank in analysis.ranks]
    if len({len(one) for one in chosen}) != 1 or not chosen[0]:
        return None
    first = np.array([one[0].splits[0].start for one in chosen], np.int64)
    last = np.array([one[-1].splits[-1].end for one in chosen], np.int64)
    walk = _Walk(analysis, found, clocks)
    walk.follow(last, first)
    sums = walk.sums
    begin, end = [[value] for value in first.tolist()], [[value] for value in last.tolist()]
    inside = [
        [int(part.within(np.array(a), np.array(b))[0]) for part in (trail.inputs, trail.pauses)]
        for trail, a, b in zip(walk.trails, begin, end, strict=True)
    ]
    matches = sorted(walk.transfers)
    return CriticalPath(
        steps=len(chosen[0]),
        length=int(sums.sum()) + sum(walk.transfers.values()),
        own=sums[:, _OWN], launching=sums[:, _LAUNCHING], inputs=sums[:, _INPUT], pauses=sums[:, _PAUSE],
        cpu=sums[:, _CPU],
        match=np.array(matches, np.int64),
        transfers=np.array([walk.transfers[match] for match in matches], np.int64),
        role=peers.role,
        compute=np.array([sum(unit.total("compute") or 0 for unit in one) for one in chosen], np.int64),
        fetched=np.array([row[0] for row in inside], np.int64),
        paused=np.array([row[1] for row in inside], np.int64),
        gap=np.array([trail.gap for trail in walk.trails]),
    )  # fmt: skip


def beyond_role(on_path: Int64Array, measured: Int64Array, role: Int64Array, late: NDArray[np.bool_]) -> Int64Array:
    """What late ranks do longer than the others of their role, as far as as much of it is on the path; shape
    ``(ranks,)``, 0 for all others."""
    beyond = measured - usual_of_role(measured.astype(np.float64), role, late)
    return np.minimum(on_path, beyond).astype(np.int64)


def usual_of_role(measured: NDArray[np.float64], role: Int64Array, late: NDArray[np.bool_]) -> NDArray[np.float64]:
    """For late ranks the median of the others of their role, at most their own; for all others their own."""
    usual = measured.copy()
    for rank in np.flatnonzero(late).tolist():
        others = measured[(role == role[rank]) & ~late]
        if len(others):
            usual[rank] = min(float(np.median(others)), measured[rank])
    return usual


class _Lane:
    """What is looked up of one rank while the path is on it; lists, because they are searched one instant at a time."""

    def __init__(self, rank: RankAnalysis, trail: Trail) -> None:
        calls, pieces = rank.calls, rank.shares.pieces
        # Compute that begins while a call still runs has not waited for it.
        over = np.flatnonzero(calls.end[pieces.call] <= pieces.end)
        order = over[np.lexsort((pieces.start[over], pieces.end[over]))]
        self.piece_end: list[int] = pieces.end[order].tolist()
        self.piece_call: list[int] = pieces.call[order].tolist()
        self.host_start: list[int] = trail.host.starts.tolist()
        self.host_end: list[int] = trail.host.ends.tolist()
        self.wait_start: list[int] = trail.waits.starts.tolist()
        self.wait_end: list[int] = trail.waits.ends.tolist()
        self.done: list[int] = trail.done.tolist()
        self.start: list[int] = calls.start.tolist()
        self.end: list[int] = calls.end.tolist()
        self.launched: list[int] = calls.launched.tolist()
        by_stream = np.lexsort((calls.start, calls.stream))
        before = np.full(len(calls), -1, np.int64)
        same = np.diff(calls.stream[by_stream]) == 0
        before[by_stream[1:][same]] = by_stream[:-1][same]
        self.before: list[int] = before.tolist()

    def exposed_until(self, instant: int) -> tuple[int, int]:
        """End of the last exposed communication before ``instant`` and its call; a call must have begun before."""
        place = bisect_right(self.piece_end, instant + _NEAR_NS) - 1
        while place >= 0 and self.start[self.piece_call[place]] >= instant:
            place -= 1
        return (min(self.piece_end[place], instant), self.piece_call[place]) if place >= 0 else (-(1 << 62), -1)

    def host_bound_until(self, instant: int) -> int:
        """The last host-bound instant before ``instant``."""
        place = bisect_left(self.host_start, instant) - 1
        return min(self.host_end[place], instant) if place >= 0 else -(1 << 62)


class _Walk:
    """Where the path is: instant ``at`` of the rank with index ``rank``, on its device, its CPU or in call ``call``."""

    def __init__(self, analysis: Analysis, found: Matching, clocks: Clocks) -> None:
        self.analysis, self.clocks, calls = analysis, clocks, found.calls
        self.trails = [rank.trail for rank in analysis.ranks if rank.trail is not None]
        self.sums = np.zeros((len(analysis.ranks), 5), np.int64)
        self.transfers: Counter[int] = Counter()
        self._lanes: dict[int, _Lane] = {}
        self._first, self._match = calls.first.tolist(), found.match.tolist()
        self._base = [rank.base_ns for rank in analysis.ranks]
        begun = clocks.aligned(calls.start, calls.rank)
        self._begun, self._ended = begun.tolist(), clocks.aligned(calls.end, calls.rank).tolist()
        # The row of each match that began last.
        latest = largest(begun[found.rows], found.first)[found.of_row] == begun[found.rows]
        self._last = np.zeros(len(found), np.int64)
        self._last[found.of_row[latest]] = found.rows[latest]
        self._of = calls.rank.tolist()

    def follow(self, last: Int64Array, first: Int64Array) -> None:
        """From the latest of the ``last`` instants back to the ``first`` one of its rank."""
        at = self._aligned(last)
        self.rank = int(at.argmax())
        self.at, stop = int(last[self.rank]), int(self._aligned(first)[self.rank])
        # The same instant on the clock of every rank.
        self.stops = [int(value) for value in first - (self._aligned(first) - stop)]
        step: _Next = self._device
        for _ in range(_MOST_STRETCHES):
            if self.at <= self.stops[self.rank]:
                break
            step = step()

    def _aligned(self, instants: Int64Array) -> Int64Array:
        return self.clocks.aligned(instants + np.array(self._base, np.int64), np.arange(len(instants)))

    @property
    def _lane(self) -> _Lane:
        if self.rank not in self._lanes:
            self._lanes[self.rank] = _Lane(self.analysis.ranks[self.rank], self.trails[self.rank])
        return self._lanes[self.rank]

    def _back_to(self, instant: int, kind: int) -> None:
        """Go back to an earlier instant of the same rank."""
        instant = max(min(instant, self.at), self.stops[self.rank])
        self.sums[self.rank, kind] += self.at - instant
        self.at = instant

    def _device(self) -> _Next:
        lane = self._lane
        exposed, call = lane.exposed_until(self.at)
        host = lane.host_bound_until(self.at)
        self._back_to(max(exposed, host), _OWN)
        if host > exposed:
            return self._cpu
        self.call = call
        return self._communication

    def _cpu(self) -> _Next:
        lane, trail, end = self._lane, self.trails[self.rank], self.at
        place = bisect_left(lane.wait_start, end) - 1
        begin = max(min(lane.wait_end[place], end) if place >= 0 else -(1 << 62), self.stops[self.rank])
        left, span = end - begin, (np.array([begin]), np.array([end]))
        parts: list[tuple[int, IntervalSet]] = [
            (_INPUT, trail.inputs), (_PAUSE, trail.pauses), (_LAUNCHING, trail.launching),
        ]  # fmt: skip
        for kind, part in parts:
            ns = min(int(part.within(*span)[0]), left)
            self.sums[self.rank, kind] += ns
            left -= ns
        self.sums[self.rank, _CPU] += left
        self.at, self._wait = begin, place
        return self._waited

    def _waited(self) -> _Next:
        """What a wait of the CPU ended with: communication, or compute."""
        lane = self._lane
        exposed, call = lane.exposed_until(self.at)
        done = min(lane.done[self._wait], self.at)
        if exposed > done and self.at - exposed < _READ_NS:
            self._back_to(exposed, _OWN)
            self.call = call
            return self._communication
        if self._wait >= 0 and done <= lane.wait_start[self._wait]:
            # Compute was done before: it waited for a copy of its own, and what came before that is on the path.
            self._back_to(lane.wait_start[self._wait], _OWN)
            return self._cpu
        # Into the compute that it waited for: before its end the device was not host-bound.
        self._back_to(min(done, self.at) - 1, _OWN)
        return self._device

    def _communication(self) -> _Next:
        lane, call = self._lane, self.call
        row = self._first[self.rank] + call
        match = self._match[row]
        last = row if match == NO_MATCH else int(self._last[match])
        since = self._ended[row] - (lane.end[call] - self.at)
        if last != row and self._begun[last] >= since:
            last = row  # nobody can have waited for one who entered later
        ns = max(since - self._begun[last], 0)
        stop, begin = self.stops[self.rank], self.at - ns
        self.transfers[-1 if match == NO_MATCH else match] += self.at - max(begin, stop)
        if begin <= stop:
            self.at = stop
            return self._device
        self.rank = self._of[last]
        lane, call = self._lane, last - self._first[self.rank]
        self.at = lane.start[call]
        launched, before = lane.launched[call], lane.before[call]
        queued = lane.end[before] if before >= 0 else -(1 << 62)
        if launched != NOT_LAUNCHED and self.at - launched <= _LAUNCH_NS and queued < launched:
            self._back_to(launched, _OWN)
            return self._cpu
        if before >= 0 and queued >= self.at - _NEAR_NS and lane.start[before] < self.at:
            self._back_to(queued, _OWN)
            self.call = before
            return self._communication
        return self._device
