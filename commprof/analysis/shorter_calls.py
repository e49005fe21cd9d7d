"""How long the steps would be if calls transferred for less time: a replay of the run with its CPUs.

Each rank is two sequences. Its device is cut where calls start, are ready or are waited for, as in
:mod:`commprof.analysis.what_if`; its CPU where it launches calls and where it has waited for its device. What the CPU
does between two launches takes as long as it did, but for its waits. A call starts when all of its members have
launched it, are ready for it and have ended the call before it on its stream; what a rank launches after a call its
device does not begin before that. So a step that calls leave shorter is never shorter than its CPUs, or than what else
had been hidden behind the calls, and what one rank is held up by comes back as far as no other one is later still.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.clocks import Clocks
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.message_clocks import joined_by_messages
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.replay import Float64Array, Schedule
from commprof.analysis.segments import any_of
from commprof.analysis.steps import units
from commprof.analysis.trail import Trail
from commprof.analysis.waiting import MatchTimes
from commprof.analysis.what_if import (
    along_streams,
    left_of_calls,
    meetings,
    stretches,
    time_before,
    worth_replaying,
)  # fmt: skip
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

_QUEUED_NS = 3_000
"""A call that starts so soon after the one before it on its stream has queued behind it; compute between the two, on
which it waits, takes longer with its launch."""
_NEAR_NS = 3_000
_READ_NS = 20_000
"""A CPU that waits for its device goes on so soon after the last communication (as in the critical path)."""
_ISSUE, _WAIT, _RESTART = range(3)
_LARGEST_ERROR = 0.10
"""Twice what a replay that is an estimate may be off (:mod:`commprof.analysis.what_if`): here all that it misses counts
as what comes back, so that it makes the bound wider and not wrong."""
_HELD_UP = 0.02
"""A device that has nothing to do for its CPU for this share of its time: such a CPU is no further ahead."""


@dataclass(slots=True, eq=False)
class _Lane:
    """Device and CPU of one rank, operations numbered from ``first`` and ``first_cpu``: ``ns`` and ``cpu`` are how long
    they take.

    Operation ``i`` of the device ends at ``cuts[i]`` of the clock of the rank. Its calls are ready at the end of
    operation ``ready``; ``marks`` are the operations at the end of which steps begin, and the last one ends. ``pairs``
    are operations of which the second waits for the first.
    """

    first: int
    first_call: int
    cuts: Int64Array
    ns: Int64Array
    ready: Int64Array
    marks: Int64Array
    cpu: Float64Array = field(default_factory=lambda: np.empty(0))
    pairs: list[Int64Array] = field(default_factory=list)

    def after(self, instants: Int64Array) -> Int64Array:
        """The operation that begins at each of these cuts; of the last cut the last one."""
        return np.minimum(np.searchsorted(self.cuts, instants) + 1, len(self.cuts) - 1) + self.first

    def until(self, instants: Int64Array) -> Int64Array:
        """The operation that ends at each of these cuts."""
        return np.minimum(np.searchsorted(self.cuts, instants), len(self.cuts) - 1) + self.first


class CallReplay:
    """A run whose steps can be replayed with shorter calls; they last ``step`` ns on average, and in the replay of the
    run as it was by ``error`` (a share) more or less."""

    def __init__(self, schedule: Schedule, ns: Float64Array, rows: slice, found: Matching, marks: _Marks) -> None:
        self._schedule, self._ns, self._rows, self._found, self._marks = schedule, ns, rows, found, marks
        self.step = marks.measured
        again = marks.step(schedule.ends(ns), ns)
        self.error = abs(again - self.step) / max(self.step, 1.0)
        self._longest = max(again, self.step)

    def gain(self, shorter: Int64Array) -> int:
        """By how many ns a step is shorter, on average, if each match lasts shorter by so much, shape ``(matches,)``.

        A bound: what the replay misses of the run, or has too much, counts as what comes back, as far as the calls get
        shorter by so much in all.
        """
        less = np.append(shorter, 0)[np.where(self._found.match == NO_MATCH, len(shorter), self._found.match)]
        ns = self._ns.copy()
        ns[self._rows] = np.maximum(ns[self._rows] - less, 0.0)
        most = float(shorter[self._marks.matches].sum()) / self._marks.steps
        return max(0, round(min(self._longest - self._marks.step(self._schedule.ends(ns), ns), most)))


@dataclass(frozen=True, slots=True, eq=False)
class _Marks:
    """Operations at the end of which steps begin, shape ``(ranks, steps + 1)``, what each rank does next, the mean
    length of these ``steps`` in the run, and which matches are in them."""

    at: Int64Array
    following: Int64Array
    steps: int
    measured: float
    matches: NDArray[np.bool_]

    def step(self, ends: Float64Array, ns: Float64Array) -> float:
        """Mean length of a step: from when the first one begins to when the last one ends. What follows a mark may
        wait for a call."""
        begin = np.where(self.following > self.at, (ends - ns)[self.following], ends[self.at])
        return float((begin[:, -1] - begin[:, 0]).mean() / self.steps)


def replay_calls(analysis: Analysis) -> CallReplay | None:
    """The run as it can be replayed with shorter calls; ``None`` where it cannot, or not closely enough."""
    found, times, clocks = analysis.matching, analysis.times, analysis.clocks
    if found is None or times is None or clocks is None or not worth_replaying(analysis, found):
        return None
    if any(rank.trail is None or rank.behaviour is None for rank in analysis.ranks):
        return None
    chosen = [units(rank.devices[0], rank.optimizer_marks) for rank in analysis.ranks]
    if len({len(one) for one in chosen}) != 1:
        return None
    common = _common_clock(analysis, found, clocks)
    # Without one the first step brings the ranks together.
    left_out = 0 if common is not None else 1
    if len(chosen[0]) <= left_out:
        return None
    marks = [
        np.array([*(unit.splits[0].start for unit in one[left_out:]), one[-1].splits[-1].end], np.int64)
        for one in chosen
    ]
    replay = _replay(analysis, found, times, _begins(analysis, found, clocks if common is None else common), marks)
    return replay if replay is not None and replay.error <= _LARGEST_ERROR else None


def _common_clock(analysis: Analysis, found: Matching, clocks: Clocks) -> Clocks | None:
    if clocks.joined.all() and len(np.unique(clocks.component)) == 1:
        return clocks
    hosts = {analysis.hosts.get(rank.rank) for rank in analysis.ranks}
    return joined_by_messages(found, clocks, one_host=len(hosts) == 1 and None not in hosts)


def _begins(analysis: Analysis, found: Matching, clocks: Clocks) -> Int64Array:
    """When the device of each rank has its first work, after the first launch of a call by any; ns."""
    calls = found.calls
    begin = clocks.aligned(calls.begins, np.arange(len(analysis.ranks)))
    for component in np.unique(clocks.component).tolist():
        mine = clocks.component == component
        begin[mine] -= begin[mine].min()
    ahead = [
        rank.devices[0].whole.start - int(rank.calls.issued[rank.calls.issued != NOT_LAUNCHED].min(initial=1 << 62))
        for rank in analysis.ranks
    ]
    return begin + max(0, int((np.array(ahead, np.int64) - begin).max()))


def _replay(
    analysis: Analysis, found: Matching, times: MatchTimes, begins: Int64Array, marks: list[Int64Array]
) -> CallReplay | None:
    lanes: list[_Lane] = []
    first = 0
    for index, rank in enumerate(analysis.ranks):
        lanes.append(_device(rank, first, int(found.calls.first[index]), int(begins[index]), marks[index]))
        first += len(lanes[-1].ns)
    own, calls = first, len(found.calls)
    first += calls
    for rank, lane, begin in zip(analysis.ranks, lanes, begins.tolist(), strict=True):
        lane.first_call += own
        _add_calls(rank, lane)
        _add_cpu(rank, lane, first, begin)
        first += len(lane.cpu)
    streams = np.concatenate([rank.calls.stream for rank in analysis.ranks])
    pairs = np.concatenate([*(pair for lane in lanes for pair in lane.pairs), along_streams(found, streams) + own])
    meets = np.arange(first)
    meets[own : own + calls] = first + meetings(found)
    ns = np.concatenate(
        [*(lane.ns for lane in lanes), left_of_calls(found, times), *(lane.cpu for lane in lanes)]
    ).astype(np.float64)
    at = np.stack([lane.marks for lane in lanes])
    following = np.stack([np.minimum(lane.marks + 1, lane.first + len(lane.ns) - 1) for lane in lanes])
    steps = at.shape[1] - 1
    within = [
        (rank.calls.end > mark[0]) & (rank.calls.start < mark[-1])
        for rank, mark in zip(analysis.ranks, marks, strict=True)
    ]
    inside = any_of(np.concatenate(within)[found.rows], found.first)
    measured = float(np.mean([mark[-1] - mark[0] for mark in marks])) / steps
    try:
        schedule = Schedule(meets, pairs)
    except ValueError:
        # Calls matched across each other: no order of them fits all ranks.
        return None
    return CallReplay(schedule, ns, slice(own, own + calls), found, _Marks(at, following, steps, measured, inside))


def _device(rank: RankAnalysis, first: int, first_call: int, begin: int, marks: Int64Array) -> _Lane:
    """What the device of a rank does but for exposed communication, cut; its first operation lasts ``begin`` longer."""
    calls, pieces, trail = rank.calls, rank.shares.pieces, rank.trail
    assert trail is not None
    origin = rank.devices[0].whole.start
    starts, ends = stretches(pieces.start, pieces.end)
    ready, needed = _ready(rank), np.array([instant for _, instant in _needs(rank)], np.int64)
    cuts = np.unique(np.concatenate([calls.start, ready, ends, marks, trail.done, needed, _restarts(trail)]))
    cuts = np.unique(np.maximum(cuts, origin))
    alone: Int64Array = cuts - origin - time_before(starts, ends, cuts)
    ns = np.maximum(np.diff(alone, prepend=-begin), 0)
    lane = _Lane(first, first_call, cuts, ns, ready, marks)
    lane.marks = lane.until(marks)
    along = np.arange(first + 1, first + len(ns))
    lane.pairs.append(np.stack([along - 1, along], axis=1))
    return lane


def _ready(rank: RankAnalysis) -> Int64Array:
    """Until when the rank itself held up each call: its start; of one that stood in a queue its launch, no sooner than
    the start of the call before it where nothing tells when its device was ready before."""
    calls = rank.calls
    out = calls.start.copy()
    order = np.lexsort((calls.start, calls.stream))
    same = np.diff(calls.stream[order]) == 0
    after, before = order[1:][same], order[:-1][same]
    queued = (calls.start[after] - calls.end[before] < _QUEUED_NS) & (calls.issued[after] != NOT_LAUNCHED)
    after, before = after[queued], before[queued]
    known = np.minimum(calls.start[before], _computed(rank)[after])
    out[after] = np.minimum(np.maximum(calls.issued[after], known), calls.start[after])
    told = [(bucket.call, bucket.ready) for bucket in rank.buckets if bucket.ready is not None]
    rows, ready = np.array(told, np.int64).reshape(-1, 2).T
    launched = calls.issued[rows] != NOT_LAUNCHED
    rows, ready = rows[launched], ready[launched]
    out[rows] = np.minimum(np.maximum(calls.issued[rows], ready), calls.start[rows])
    return out


def _computed(rank: RankAnalysis) -> Int64Array:
    """The end of the first call at which all compute that had been launched before each call was over."""
    ends = rank.calls.end
    progress = None if rank.trail is None else rank.trail.progress
    never = np.iinfo(np.int64).max
    if progress is None or not len(ends):
        return np.full(len(ends), never)
    order = np.argsort(ends, kind="stable")
    reached = np.maximum.accumulate(progress.at_end[order])
    place = np.searchsorted(reached, progress.before, side="left")
    return np.append(ends[order], never)[place]


def _needs(rank: RankAnalysis) -> list[tuple[int, int]]:
    """Calls and when compute needed them, where that was not before they ended: hidden so far, and waited for if the
    device comes there sooner."""
    found = [(unit.call, unit.needed) for unit in rank.units if unit.needed is not None]
    end = rank.calls.end
    return [(call, needed) for call, needed in found if needed >= int(end[call])]


def _add_calls(rank: RankAnalysis, lane: _Lane) -> None:
    """A call waits for its device to be ready, and what follows exposed communication for the call that it ended."""
    calls, pieces = rank.calls, rank.shares.pieces
    rows = np.arange(len(calls)) + lane.first_call
    lane.pairs.append(np.stack([lane.until(lane.ready), rows], axis=1))
    ends = stretches(pieces.start, pieces.end)[1]
    blocks = np.isin(pieces.end, ends) & (calls.end[pieces.call] <= pieces.end)
    lane.pairs.append(_before_device(lane, rows[pieces.call[blocks]], pieces.end[blocks]))
    needs = np.array(_needs(rank), np.int64).reshape(-1, 2)
    lane.pairs.append(_before_device(lane, rows[needs[:, 0]], needs[:, 1]))


def _before_device(lane: _Lane, operations: Int64Array, instants: Int64Array) -> Int64Array:
    """Pairs of these operations and what the device does from these cuts on, but for the last of all."""
    there = np.searchsorted(lane.cuts, instants) + 1 < len(lane.cuts)
    return np.stack([operations[there], lane.after(instants[there])], axis=1)


def _add_cpu(rank: RankAnalysis, lane: _Lane, first: int, begin: int) -> None:
    """The CPU of a rank: an operation up to each launch of a call, to the begin of each of its waits, and to what it
    launches first after one if the device waits for that. One that is
    never seen to wait for its device, and hardly ever held it up, may wait unseen: what it takes by itself is not known
    then, and it is left out."""
    calls, trail = rank.calls, rank.trail
    assert trail is not None
    known = np.flatnonzero(calls.issued != NOT_LAUNCHED)
    whole = rank.devices[0].whole
    held_up = int((trail.host.ends - trail.host.starts).sum()) / max(1, whole.end - whole.start)
    if not len(known) or not (len(trail.waits) or held_up >= _HELD_UP):
        return
    order = known[np.argsort(calls.issued[known], kind="stable")]
    issued = calls.issued[order]
    waits = np.flatnonzero((trail.waits.ends > issued[0]) & (trail.waits.ends <= issued[-1]))
    restarts = _restarts(trail)
    restarts = restarts[(restarts > issued[0]) & (restarts <= issued[-1])]
    kind = np.repeat([_ISSUE, _WAIT, _RESTART], [len(issued), len(waits), len(restarts)])
    time = np.concatenate([issued, trail.waits.ends[waits], restarts])
    until = np.concatenate([issued, trail.waits.starts[waits], restarts])
    which = np.concatenate([order, waits, restarts])
    sort = np.lexsort((kind, time))
    time, until, which, kind = time[sort], until[sort], which[sort], kind[sort]
    taken = np.maximum(np.diff(time, prepend=time[0]) - (time - until), 0).astype(np.float64)
    lane.cpu = taken * _busy_part(rank, order, taken, kind == _ISSUE)
    lane.cpu[0] = max(0, int(time[0]) - whole.start + begin)
    operation = np.arange(len(time)) + first
    lane.pairs.append(np.stack([operation[:-1], operation[1:]], axis=1))
    launches, row = operation[kind == _ISSUE], which[kind == _ISSUE]
    lane.pairs.append(np.stack([launches, row + lane.first_call], axis=1))
    lane.pairs.append(_before_device(lane, launches, lane.ready[row]))
    again = kind == _RESTART
    lane.pairs.append(_before_device(lane, operation[again], np.maximum(which[again], lane.cuts[0])))
    waiting = np.flatnonzero(kind[:-1] == _WAIT)
    ended = _ended_by(rank, lane, trail, which[waiting])
    lane.pairs.append(np.stack([ended, operation[waiting + 1]], axis=1)[ended >= 0])


def _restarts(trail: Trail) -> Int64Array:
    """When the CPU launched what the device had to wait for after each wait for it."""
    place = np.searchsorted(trail.host.ends, trail.waits.ends)
    there = place < len(trail.host)
    following = np.append(trail.waits.starts[1:], np.iinfo(np.int64).max)[: len(place)]
    launched = np.append(trail.host.ends, 0)[np.where(there, place, -1)]
    return np.unique(launched[there & (launched <= following)])


def _busy_part(rank: RankAnalysis, order: Int64Array, taken: Float64Array, issue: NDArray[np.bool_]) -> Float64Array:
    """Which part of the time between two launches of calls, waits left out, the CPU did not wait in launches either."""
    assert rank.behaviour is not None
    busy = np.diff(rank.behaviour.host_busy[:, order].sum(axis=0), prepend=0)
    launch: Int64Array = np.cumsum(issue) - issue
    total = np.bincount(launch, taken, minlength=len(order))
    part = np.minimum(np.maximum(busy, 0) / np.maximum(total, 1.0), 1.0)
    return np.asarray(part[launch])


def _ended_by(rank: RankAnalysis, lane: _Lane, trail: Trail, waits: Int64Array) -> Int64Array:
    """The operation with which each wait of the CPU ended: the call that ended last, or compute; -1 for neither."""
    calls, pieces = rank.calls, rank.shares.pieces
    over = np.flatnonzero(calls.end[pieces.call] <= pieces.end)
    over = over[np.argsort(pieces.end[over], kind="stable")]
    start, end = trail.waits.starts[waits], trail.waits.ends[waits]
    done = np.minimum(trail.done[waits], end)
    out = np.where(done > start, lane.until(np.maximum(done, lane.cuts[0])), -1)
    if len(over):
        place = np.searchsorted(pieces.end[over], end + _NEAR_NS, side="right") - 1
        last = np.where(place >= 0, pieces.end[over][place], -(1 << 62))
        call = pieces.call[over][place] + lane.first_call
        out = np.where((last > done) & (end - last < _READ_NS), call, out)
    return np.asarray(out)
