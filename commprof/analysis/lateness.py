"""Why a late rank came late to a call: what it did beyond its peers since a call to which it was in step with them.

A rank can be behind without being late: while a call still runs, the next one waits in its queue on every rank, and
only the compute stream shows who is behind. So a rank counts as in step at a call if it was not late to it, or the
others lost that time waiting for it, and if it had computed for as long as its peers by then. From there to the call
in question, both ends at the same place of the program, everything it did for longer than its peers made it late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import AllCalls
from commprof.analysis.behaviour import ACTIVITIES, COMM, COMPUTE, HOST, INPUT, OTHER
from commprof.analysis.lanes import changes
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.segments import medians_of_others
from commprof.analysis.waiting import MatchTimes
from commprof.intervals import Int64Array

Float64Array = NDArray[np.float64]

REASONS = (*ACTIVITIES, "inherited")
"""What a charge is for: one of the activities (``comm``: transfers), or lateness from outside of the capture."""

INHERITED = len(ACTIVITIES)
_GAPS = [HOST, INPUT, OTHER]
_UNKNOWN_HOSTS = 0.2

_IN_STEP_NS = 20_000
_IN_STEP_SHARE = 0.001


@dataclass(slots=True, eq=False)
class Lateness:
    """Of each late row: ``behind``, by how much it was late, ns, shares of its local reasons, shape ``(rows,
    reasons)``, and the share ``passing`` on to pieces of waiting ``low`` to ``high`` of other chains than
    ``own_chain``: pieces have a ``weight``, the ``chain`` of their call and its match, ``target``.

    ``excess[rank, step, activity]`` is what a rank did in a step beyond its peers, nanoseconds; infinite for a rank
    that has none. ``unseen[rank, step]`` are input and other work of the host beyond its peers that left no gap on the
    device: before the first event of the capture they made the rank late all the same."""

    excess: Float64Array
    unseen: Float64Array
    behind: Int64Array
    local: Float64Array
    passing: Float64Array
    low: Int64Array
    high: Int64Array
    own_chain: Int64Array
    weight: Float64Array
    chain: Int64Array
    target: Int64Array

    def held_up(self, entry: int) -> Float64Array:
        """Nanoseconds of each piece ``low`` to ``high`` that made late row ``entry`` late.

        The last ones before it, up to what it was late: for what it waited earlier the others had waited since.
        """
        low, high = int(self.low[entry]), int(self.high[entry])
        weight = np.where(self.chain[low:high] == self.own_chain[entry], 0.0, self.weight[low:high])
        since = np.cumsum(weight[::-1])[::-1] - weight
        return np.clip(float(self.behind[entry]) - since, 0.0, weight)


def find_lateness(
    analysis: Analysis, found: Matching, times: MatchTimes, peers: Peers, exposed: Int64Array, beyond: Int64Array,
    row: Int64Array, step: Int64Array, held: Sequence[Int64Array],
) -> Lateness:  # fmt: skip
    """Divide the lateness of the late rows ``row`` over their reasons.

    ``step`` is the step of each row, ``held`` of each rank the part of its pieces of exposed time in which it waited
    for a sink.
    """
    chain = _chains(analysis, found)
    done = np.concatenate([rank.behaviour.done for rank in analysis.ranks if rank.behaviour is not None], axis=1)
    group = _compared_with(found, peers)
    lateness = _how_late(found, times, beyond)
    since = _in_step_before(analysis, found, done[COMPUTE], chain, group, lateness, exposed)
    waiting = [rank.causes.wait + more for rank, more in zip(analysis.ranks, held, strict=True)]
    waits = _Waits(analysis, found, exposed, peers, chain, since, waiting)
    # Communication with the same ranks is no reason to be late to them, and waiting for others is theirs.
    anywhere = np.full(len(since), -1)
    done[COMM] -= _chain_sum(_blocking_time(analysis, found), chain, found, anywhere) + waits.until
    more = np.zeros((len(row), len(REASONS)))
    ahead = np.stack([activity - medians_of_others(activity, group)[0] for activity in done])
    more[:, :INHERITED] = np.maximum(ahead[:, row] - np.where(since[row] >= 0, ahead[:, since[row]], 0), 0).T
    excess = _step_excess(found, peers, step, ahead)
    unseen = _bound_by_host(excess, _host_excess(analysis, found, peers, step, group))
    # Of one call no more than what the rank did beyond its peers in all of the step: the rest is a matter of order.
    of_step = excess[found.calls.rank[row], np.where(step[row] < 0, excess.shape[1] - 1, step[row])]
    passing = waits.beyond[row]
    bounded = np.minimum(more[:, :INHERITED], of_step)
    some = passing > 0
    more[some, :INHERITED] = bounded[some]
    told = more.sum(axis=1) + passing
    # With nothing before it in the capture, what nothing explains came in from before.
    more[:, INHERITED] = np.where(since[row] < 0, np.maximum(lateness[row] - told, 0), 0)
    told += more[:, INHERITED]
    told = np.where(told <= 0, 1.0, told)
    return Lateness(
        excess, unseen, lateness[row], more / told[:, None], passing / told, waits.low[row], waits.high[row],
        chain[row], waits.weight, waits.chain, waits.target,
    )  # fmt: skip


def exposed_waits(analysis: Analysis, calls: AllCalls, held: Sequence[Int64Array]) -> Int64Array:
    """Exposed waiting of every row; what waits inside a fused kernel computes nothing.

    Where it is not known, what the call was ``held`` by its sink (of each rank, by piece of exposed time).
    """
    parts = []
    for rank, waits, more in zip(analysis.ranks, analysis.waiting, held, strict=True):
        part = np.maximum(np.where(rank.calls.fused, waits.wait, waits.exposed_wait), 0)
        np.add.at(part, rank.shares.pieces.call, more)
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(len(calls), np.int64)


def _blocking_time(analysis: Analysis, found: Matching, waiting: Sequence[Int64Array] | None = None) -> Int64Array:
    """Exposed time of every call that its host did not cause, all of it or the ``waiting`` in it (of each rank, by
    piece)."""
    out = np.zeros(len(found.calls), np.int64)
    for index, rank in enumerate(analysis.ranks):
        assert rank.behaviour is not None
        blocking = rank.behaviour.blocking
        ns = blocking if waiting is None else np.minimum(waiting[index], blocking)
        np.add.at(out, rank.shares.pieces.call + found.calls.first[index], ns)
    return out


def _step_excess(found: Matching, peers: Peers, step: Int64Array, ahead: Float64Array) -> Float64Array:
    """How much ``ahead`` (activities x rows) grew from the last call of the step before to the last of each step:
    what every rank did in the step beyond its peers, shape ``(ranks, steps, activities)``."""
    calls = found.calls
    steps = len(calls.step_names) + 1
    out = np.zeros((len(calls.numbers), steps, len(ahead)))
    order = np.lexsort((calls.order, step, calls.rank))
    if len(order):
        last = order[np.append(np.flatnonzero(changes(calls.rank[order], step[order]))[1:], len(order)) - 1]
        value = ahead[:, last].astype(np.float64)
        before = np.concatenate([np.zeros((len(ahead), 1)), value[:, :-1]], axis=1)
        before[:, changes(calls.rank[last])] = 0.0
        out[calls.rank[last], np.where(step[last] < 0, steps - 1, step[last])] = np.maximum(value - before, 0.0).T
    out[np.bincount(peers.role, minlength=len(calls.numbers))[peers.role] < 2] = np.inf
    return out


def _host_excess(
    analysis: Analysis, found: Matching, peers: Peers, step: Int64Array, group: Int64Array
) -> Float64Array | None:
    """What the host of every rank did in each step beyond those of its peers, input and other; ``None`` if unknown."""
    parts = [rank.behaviour.host_busy for rank in analysis.ranks if rank.behaviour is not None]
    busy = np.concatenate(parts, axis=1) if parts else np.empty((2, 0), np.int64)
    if not busy.shape[1] or (busy < 0).mean() > _UNKNOWN_HOSTS:
        return None
    ahead = np.stack([part - medians_of_others(part, group)[0] for part in busy])
    return _step_excess(found, peers, step, ahead)


def _bound_by_host(excess: Float64Array, host: Float64Array | None) -> Float64Array:
    """Bound gaps on the device by what the host did longer, in place; its input and the rest tell which they are.
    What it did longer without a gap is returned, shape ``(ranks, steps, 2)``.

    A host that is behind by a constant leaves gaps where the others wait for it, step after step, and costs nothing.
    """
    if host is None:
        return np.zeros((*excess.shape[:2], 2))
    gaps = excess[:, :, _GAPS].sum(axis=2)
    longer = host.sum(axis=2)
    known = np.isfinite(gaps) & np.isfinite(longer)
    both = np.where(known, np.minimum(gaps, longer), 0.0)
    share = np.where(known, host[:, :, 0], 0.0) / np.where(known & (longer > 0), longer, 1.0)
    for activity, value in ((INPUT, both * share), (HOST, both * (1 - share)), (OTHER, np.zeros_like(both))):
        excess[:, :, activity] = np.where(known, value, excess[:, :, activity])
    left = np.where(known, longer - both, 0.0)
    return np.stack([left * share, left * (1 - share)], axis=2)


def _chains(analysis: Analysis, found: Matching) -> Int64Array:
    """A number per row, equal for the calls of one rank with the same ranks."""
    parts, offset = [], 0
    for rank in analysis.ranks:
        assert rank.behaviour is not None
        parts.append(rank.behaviour.chain + offset)
        offset += int(rank.behaviour.chain.max(initial=-1)) + 1
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _compared_with(found: Matching, peers: Peers) -> Int64Array:
    """Whom a row is compared with: the same call of its role, or the other members where it is alone in its role."""
    counts = np.bincount(peers.place, minlength=int(peers.place.max(initial=0)) + 1)
    alone = counts[peers.place] < 2
    return np.where(alone & (found.match != NO_MATCH), len(counts) + found.match, peers.place)


def _how_late(found: Matching, times: MatchTimes, beyond: Int64Array) -> Int64Array:
    """How much later than the median of the others each row entered its call, nanoseconds, 0 for early ones.

    In a synchronising call the others last that much longer; to a message a sender is as late as its receiver waits.
    """
    rows, of_row = found.rows, found.of_row
    out = np.zeros(len(found.calls), np.int64)
    usual, _ = medians_of_others(found.calls.duration[rows], of_row)
    longest = np.zeros(len(found), np.int64)
    np.maximum.at(longest, of_row, beyond[rows])
    waited_for = times.last[of_row] == found.calls.rank[rows]
    out[rows] = np.where(
        times.one_way[of_row],
        np.where(waited_for, longest[of_row], 0),
        np.maximum(usual - found.calls.duration[rows], 0),
    )
    return out


def _in_step_before(
    analysis: Analysis, found: Matching, computed: Int64Array, chain: Int64Array, group: Int64Array,
    lateness: Int64Array, exposed: Int64Array,
) -> Int64Array:  # fmt: skip
    """For each row the last earlier row of its chain at which the rank was in step with its peers, -1 for none."""
    calls = found.calls
    steps = [step.split.duration for rank in analysis.ranks for step in rank.devices[0].steps]
    allowed = max(_IN_STEP_NS, round(_IN_STEP_SHARE * float(np.mean(steps)))) if steps else _IN_STEP_NS
    absorbed = np.zeros(len(calls), np.int64)
    absorbed[found.rows] = medians_of_others(exposed[found.rows], found.of_row)[0]
    behind = medians_of_others(computed, group)[0] - computed
    in_step = (lateness - absorbed <= allowed) & (behind <= allowed)
    order = np.lexsort((np.arange(len(calls)), calls.start, chain))
    out = np.full(len(calls), -1, np.int64)
    if not len(order):
        return out
    index = np.arange(len(order))
    first = np.maximum.accumulate(np.where(changes(chain[order]), index, 0))
    last = np.concatenate([[-1], np.maximum.accumulate(np.where(in_step[order], index, -1))])
    # Of two messages that start together (one each way) neither is before the other.
    start = calls.start[order] - calls.start.min()
    key = chain[order] * (int(start.max()) + _IN_STEP_NS + 1) + start
    before = last[np.searchsorted(key, key - _IN_STEP_NS, side="right")]
    out[order] = np.where(before >= first, order[np.maximum(before, 0)], -1)
    return out


def _chain_sum(values: Int64Array, chain: Int64Array, found: Matching, since: Int64Array) -> Int64Array:
    """Sum of ``values`` over the calls of the same chain from row ``since`` (or the first) to before each row."""
    order = np.lexsort((np.arange(len(values)), found.calls.start, chain))
    total = np.empty(len(values), values.dtype)
    total[order] = np.cumsum(values[order]) - values[order]
    head = np.empty(len(values), np.int64)
    if len(order):
        index = np.arange(len(order))
        head[order] = order[np.maximum.accumulate(np.where(changes(chain[order]), index, 0))]
    return np.asarray(total - total[np.where(since >= 0, since, head)])


class _Waits:
    """Waiting of every rank as pieces in order of time, but for that in calls of the chain of the row that asks.

    Per row of the calls: ``until`` is all of it before the call, ``beyond`` what is between ``since`` and the call and
    more than the peers wait there.
    """

    def __init__(
        self, analysis: Analysis, found: Matching, exposed: Int64Array, peers: Peers, chain: Int64Array,
        since: Int64Array, waiting: Sequence[Int64Array],
    ) -> None:  # fmt: skip
        calls = found.calls
        usual, others = medians_of_others(exposed, peers.place)
        more = np.where(others > 0, np.maximum(exposed - usual, 0), exposed)
        share = more / np.maximum(exposed, 1)
        until, beyond = np.zeros(len(calls), np.int64), np.zeros(len(calls))
        self.low, self.high = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
        weights, owners, offset = [], [], 0
        for index, rank in enumerate(analysis.ranks):
            rows, pieces, start = calls.rows_of(index), rank.shares.pieces, rank.calls.start
            ns = waiting[index]
            some = np.flatnonzero(ns > 0)
            some = some[np.argsort(pieces.start[some], kind="stable")]
            call = pieces.call[some] + rows.start
            weight = ns[some] * share[call]
            times, own = pieces.start[some], since[rows] - rows.start
            low = np.where(own >= 0, np.searchsorted(times, start[np.maximum(own, 0)], side="left"), 0)
            high = np.maximum(np.searchsorted(times, start, side="left"), low)
            assert rank.behaviour is not None
            blocking = np.minimum(ns, rank.behaviour.blocking)[some]
            total, heavy = np.concatenate([[0], np.cumsum(blocking)]), np.concatenate([[0.0], np.cumsum(weight)])
            until[rows], beyond[rows] = total[high], heavy[high] - heavy[low]
            self.low[rows], self.high[rows] = low + offset, high + offset
            offset += len(some)
            weights.append(weight)
            owners.append(call)
        owner = np.concatenate(owners) if owners else np.empty(0, np.int64)
        self.until = until - _chain_sum(_blocking_time(analysis, found, waiting), chain, found, np.full(len(since), -1))
        self.beyond = np.maximum(beyond - _chain_sum(more, chain, found, since), 0.0)
        self.weight = np.concatenate(weights) if weights else np.empty(0)
        self.chain, self.target = chain[owner], found.match[owner]
