"""How long the step would be if no rank was slower or faster than the others of its role: a replay of the run.

Everything that a rank does but wait for communication is one sequence: compute, copies, gaps. It is cut where calls
start, where exposed communication ends and where steps begin. A call starts when all of its members have come that far
and the call before it on its stream has ended; where compute had to wait for a call, what follows waits for it. For the
question what a rank does by itself from one call to the next takes as long as the median of its role; calls keep their
transfer. The method is that of :mod:`commprof.analysis.replay`; stages of a pipeline stay as they are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.clocks import Clocks
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.replay import Float64Array, Schedule, slowdown
from commprof.analysis.segments import largest, medians, smallest
from commprof.analysis.waiting import UNKNOWN, MatchTimes
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

LARGEST_ERROR = 0.05
"""Replays that are further off than this are left out, as in the source of the method (arXiv 2505.05713)."""
FEWEST_STEPS = 2
"""Closed ones; the first, in which ranks come together, does not count."""
_QUEUED_NS = 20_000
"""A call that starts this soon after the one before it on its stream had stood in its queue."""
_MATCHED = 0.9
_MOST_CALLS = 400_000


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Mean length of the steps replayed with one ``change``, what that gains, and ``slowdown``, how many times as long
    they take without it; ns. ``error`` is how far the replay of the run as it was is from the run, as a share."""

    change: str
    step: int
    gain: int
    slowdown: float
    error: float


@dataclass(slots=True, eq=False)
class _Lane:
    """What one rank does by itself: cut ``i`` ends operation ``i``, which lasts ``ns[i]``, the first one ``begin`` ns
    of what lies before its capture too.

    Each of its calls starts at cut ``start``, until when the rank had done ``done`` ns by itself, and needs it to have
    come to cut ``ready``; ``resumes`` are pairs (call, cut): what follows the cut waits for the call. ``mark`` are the
    cuts where steps begin.
    """

    begin: int
    ns: Int64Array
    start: Int64Array
    done: Int64Array
    ready: Int64Array
    resumes: Int64Array
    mark: Int64Array


class Replay:
    """A run whose steps can be replayed with other durations; ``error`` is how far the replay of the run as it was is
    from the run, as a share of its step, which lasts ``step`` ns on average (without the first and the last)."""

    def __init__(self, job: _Job, peers: Peers, measured: float) -> None:
        self._job, self._peers, self.step = job, peers, measured
        self._real = float(job.step_times(job.ns))
        self.error = abs(self._real - measured) / max(measured, 1.0)

    def without_slow_ranks(self) -> WhatIf | None:
        """The steps if no rank was slower than the median of its role; a bound."""
        ideal = float(self._job.step_times(self._job.usual(self._peers)))
        if ideal <= 0:
            return None
        factor = slowdown(self._real, ideal)
        step = round(self.step / factor)
        return WhatIf("no rank slower than the median of its role", step, round(self.step) - step, factor, self.error)

    def gain(self, members: Sequence[int]) -> float | None:
        """By how many ns a step is shorter if these ranks (indices into the input) take as long as the median of the
        others of their role; ``None`` where a role has no others."""
        role = self._peers.role
        others = np.delete(role, list(members))
        if not np.isin(role[list(members)], others).all():
            return None
        return self._real - float(self._job.step_times(self._job.usual(self._peers, members)))


def replay_of(analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks, peers: Peers) -> Replay | None:
    """The run as it can be replayed; ``None`` where it cannot.

    That is where ranks are missing or have clocks of their own, where there are fewer than two closed steps or too many
    calls, and where the replay is too far off.
    """
    if not clocks.joined.all() or not worth_replaying(analysis, found):
        return None
    # Ranks that only messages connect have no common clock: there the first step, which does not count, sets it right.
    begin = clocks.aligned(found.calls.begins, np.arange(len(analysis.ranks)))
    for component in np.unique(clocks.component).tolist():
        begin[clocks.component == component] -= begin[clocks.component == component].min()
    lanes = [_lane(analysis, index, offset) for index, offset in enumerate(begin.tolist())]
    try:
        job = _Job(found, times, lanes, np.concatenate([rank.calls.stream for rank in analysis.ranks]))
    except ValueError:
        # Calls matched across each other, as on clocks that go wrong: no order of them fits all ranks.
        return None
    replay = Replay(job, peers, job.measured(analysis))
    return replay if replay.error <= LARGEST_ERROR else None


def worth_replaying(analysis: Analysis, found: Matching) -> bool:
    """Whether all ranks are there, with enough steps, one device each and nearly all calls matched, and not too many of
    these."""
    counts = {len(rank.devices[0].steps) for rank in analysis.ranks}
    if analysis.missing_ranks or len(found.calls) > _MOST_CALLS or len(analysis.ranks) < 2:
        return False
    if len(counts) != 1 or counts.pop() <= FEWEST_STEPS or (found.match != NO_MATCH).mean() < _MATCHED:
        return False
    return all(len(rank.devices) == 1 for rank in analysis.ranks)


def _lane(analysis: Analysis, index: int, begin: int) -> _Lane:
    """Cuts of one rank; its first operation lasts ``begin`` longer than it does itself."""
    rank = analysis.ranks[index]
    calls, pieces, device = rank.calls, rank.shares.pieces, rank.devices[0]
    first = device.whole.start
    window = np.array([step.split.start for step in device.steps], np.int64)
    starts, ends = stretches(pieces.start, pieces.end)
    ready = _ready(calls.start, calls.end, calls.issued, calls.stream)
    cuts = np.unique(np.concatenate([calls.start, ready, ends, window]))
    alone: Int64Array = cuts - first - time_before(starts, ends, cuts)
    ns = np.diff(alone, prepend=-begin)
    blocks = np.isin(pieces.end, ends) & (calls.end[pieces.call] <= pieces.end)
    resumes = np.stack([pieces.call[blocks], np.searchsorted(cuts, pieces.end[blocks])], axis=1)
    at = np.searchsorted(cuts, calls.start)
    return _Lane(
        begin, np.maximum(ns, 0), at, alone[at], np.searchsorted(cuts, ready), resumes, np.searchsorted(cuts, window)
    )


def time_before(starts: Int64Array, ends: Int64Array, instants: Int64Array) -> Int64Array:
    """Time of the stretches that lies before each instant."""
    if not len(starts):
        return np.zeros(len(instants), np.int64)
    length = ends - starts
    index = np.searchsorted(starts, instants, side="right") - 1
    inside = np.minimum(instants - starts[index], length[index])
    return np.where(index >= 0, (np.cumsum(length) - length)[index] + inside, 0)


def stretches(start: Int64Array, end: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Pieces of exposed time joined where one begins as the other ends."""
    order = np.lexsort((end, start))
    start, end = start[order], np.maximum.accumulate(end[order]) if len(end) else end
    fresh = np.ones(len(start), np.bool_)
    fresh[1:] = start[1:] > end[:-1]
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(start) - 1) if len(start) else np.empty(0, np.int64)
    return start[fresh], end[last]


def _ready(start: Int64Array, end: Int64Array, issued: Int64Array, stream: Int64Array) -> Int64Array:
    """Until when the rank itself held up each call: its start, or if it stood in a queue its launch, where known."""
    out = start.copy()
    order = np.lexsort((start, stream))
    same = np.diff(stream[order]) == 0
    after, before = order[1:][same], order[:-1][same]
    queued = (start[after] - end[before] < _QUEUED_NS) & (issued[after] != NOT_LAUNCHED)
    after, before = after[queued], before[queued]
    out[after] = np.minimum(np.maximum(issued[after], start[before]), start[after])
    return out


class _Job:
    """The lanes of all ranks and their calls as one schedule: first all operations of the lanes, then all calls."""

    def __init__(self, found: Matching, times: MatchTimes, lanes: list[_Lane], stream: Int64Array) -> None:
        calls = found.calls
        self._lanes, rank = lanes, np.repeat(np.arange(len(lanes)), [len(lane.ns) for lane in lanes])
        first = np.concatenate([[0], np.cumsum([len(lane.ns) for lane in lanes])])
        own = int(first[-1])
        self._marks = np.stack([lane.mark + at for lane, at in zip(lanes, first[:-1].tolist(), strict=True)])
        self.ns = np.concatenate([*(lane.ns for lane in lanes), left_of_calls(found, times)]).astype(np.float64)
        along = np.arange(1, own)[np.diff(rank) == 0]
        before = [np.stack([along - 1, along], axis=1)]
        for index, lane in enumerate(lanes):
            rows = np.arange(calls.first[index], calls.first[index + 1]) + own
            before.append(np.stack([lane.ready + first[index], rows], axis=1))
            there = lane.resumes[lane.resumes[:, 1] + 1 < len(lane.ns)]
            before.append(np.stack([rows[there[:, 0]], there[:, 1] + 1 + first[index]], axis=1))
        before.append(along_streams(found, stream) + own)
        meets = np.concatenate([np.arange(own), own + meetings(found)])
        self._schedule = Schedule(meets, np.concatenate(before))
        self._own = own

    def usual(self, peers: Peers, members: Sequence[int] | None = None) -> Float64Array:
        """Durations with what a rank does by itself between two calls as long as the median of its role: of every
        rank, or of these as long as the median of the others."""
        done = np.concatenate([lane.done for lane in self._lanes]).astype(np.float64)
        rank = np.repeat(np.arange(len(self._lanes)), [len(lane.done) for lane in self._lanes])
        mine = np.ones(len(done), np.bool_) if members is None else np.isin(rank, list(members))
        compared = slice(None) if members is None else ~mine
        middle = medians(done[compared], peers.place[compared], int(peers.place.max(initial=-1)) + 1)[peers.place]
        # Calls that no other rank has say nothing.
        more = np.where(mine & ~np.isnan(middle), done - middle, 0.0)
        parts, first = [], 0
        for lane in self._lanes:
            parts.append(_moved(lane, more[first : first + len(lane.start)]))
            first += len(lane.start)
        return np.concatenate([*parts, self.ns[self._own :]])

    def step_times(self, ns: Float64Array) -> Float64Array:
        """Mean over ranks of the time from the begin of the second step to that of the last, per step between."""
        at = self._schedule.ends(ns)[..., self._marks]
        return np.asarray((at[..., -1] - at[..., 1]).mean(axis=-1) / (self._marks.shape[1] - 2))

    def measured(self, analysis: Analysis) -> float:
        """The same of the run."""
        starts = np.array([[step.split.start for step in rank.devices[0].steps] for rank in analysis.ranks], np.int64)
        return float((starts[:, -1] - starts[:, 1]).mean() / (starts.shape[1] - 2))


def _moved(lane: _Lane, more: Float64Array) -> Float64Array:
    """Durations of a lane that comes to each of its calls by ``more`` ns earlier, in proportion in between; shape
    ``(cuts,)``. Where a call would come before the one before it, it comes with it."""
    order = np.lexsort((more, lane.done))
    done = np.append(0.0, lane.done[order])
    fresh = np.append(np.flatnonzero(np.diff(done)), len(done) - 1)
    moved = np.maximum.accumulate(done - np.append(0.0, more[order]))
    cuts = np.cumsum(lane.ns) - lane.begin
    at = np.interp(cuts, done[fresh], moved[fresh]) + np.maximum(cuts - done[-1], 0.0)
    return np.asarray(np.diff(at, prepend=-float(lane.begin)))


def left_of_calls(found: Matching, times: MatchTimes) -> Int64Array:
    """What is left of each call without waiting."""
    left = found.calls.duration.copy()
    wait, transfer = times.wait, times.transfer[found.of_row]
    left[found.rows] -= np.where(wait == UNKNOWN, 0, wait)
    shortest = smallest(found.calls.duration[found.rows], found.first)[found.of_row]
    transfer = np.where((transfer == UNKNOWN) & times.one_way[found.of_row], shortest, transfer)
    left[found.rows] = np.where(transfer == UNKNOWN, left[found.rows], np.minimum(left[found.rows], transfer))
    return np.maximum(left, 0)


def left_of_matches(found: Matching, times: MatchTimes) -> Int64Array:
    """The same by match: what is left on the member that has most."""
    return largest(left_of_calls(found, times)[found.rows], found.first)


def along_streams(found: Matching, stream: Int64Array) -> Int64Array:
    """Pairs of rows that follow each other on a stream."""
    calls = found.calls
    order = np.lexsort((calls.start, stream, calls.rank))
    same = (np.diff(calls.rank[order]) == 0) & (np.diff(stream[order]) == 0)
    same &= calls.start[order[1:]] >= calls.end[order[:-1]]
    return np.stack([order[:-1][same], order[1:][same]], axis=1)


def meetings(found: Matching) -> Int64Array:
    """A number per row, equal for the rows of one match."""
    return np.where(found.match == NO_MATCH, len(found) + np.arange(len(found.calls)), found.match)
