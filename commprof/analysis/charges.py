"""What late ranks cost the others, followed back to where it began (``spec``: section 10).

Every call whose last rank is decided charges that rank with the exposed waiting of the others. Its lateness is divided
over what it did beyond its peers (:mod:`commprof.analysis.lateness`). What it waited in calls of other groups is passed
on to the late ranks of those calls, from the last call of the capture to the first; the rest stays with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from commprof.analysis.behaviour import HOST, INPUT
from commprof.analysis.clocks import Clocks
from commprof.analysis.lateness import (
    INHERITED,
    REASONS,
    Float64Array,
    Lateness,
    exposed_waits,
    find_lateness,
)
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.places import FLAGS
from commprof.analysis.segments import medians_of_others, smallest
from commprof.analysis.waiting import BY_CLOCK, UNKNOWN, MatchTimes
from commprof.intervals import Int64Array

LEAST_LEAD_NS = 2_000
_LEAD_SHARE = 20
_WORTH_FOLLOWING_NS = 50.0
_ODD = (FLAGS.index("profiler-start"), FLAGS.index("first-use"))


@dataclass(slots=True, eq=False)
class Charges:
    """``own[rank, step, reason]`` and ``direct[rank, step]``: ns per rank of the job, before and after passing on.

    Ranks are indices into the input, steps into ``AllCalls.step_names`` (the last column: no step). ``passed`` holds
    how much went from one rank to another. ``late`` is the late rank of each match (-1: undecided), ``charge`` its
    direct charge. ``way[m]`` is the match that most of the charge of match ``m`` was passed on to.
    """

    own: Float64Array
    direct: Float64Array
    passed: dict[tuple[int, int], float]
    late: Int64Array
    charge: Float64Array
    way: dict[int, int] = field(default_factory=dict)


def find_charges(
    analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks, peers: Peers, step: Int64Array
) -> Charges:
    """Charges of every rank in every step."""
    calls = found.calls
    late = _decided(analysis, found, times, clocks)
    exposed = exposed_waits(analysis, calls)
    beyond = _beyond_bubble(found, times, exposed, peers)
    row = _late_rows(found, late)
    total = np.zeros(len(found))
    np.add.at(total, found.of_row, np.where(calls.rank[found.rows] == late[found.of_row], 0, beyond[found.rows]))
    charge = np.where(late >= 0, total / max(1, len(analysis.ranks) - 1), 0.0)
    steps = len(calls.step_names) + 1
    where = np.where(row >= 0, step[np.maximum(row, 0)], -1)
    where = np.where(where < 0, steps - 1, where)
    lateness = find_lateness(analysis, found, times, peers, exposed, beyond, late, row, step)
    direct = np.zeros((len(analysis.ranks), steps))
    charged = late >= 0
    np.add.at(direct, (late[charged], where[charged]), charge[charged])
    return _pass_on(analysis, found, clocks, lateness, late, where, charge, direct)


def _decided(analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks) -> Int64Array:
    """The late rank of every match that one rank alone made late beyond doubt, else -1."""
    calls, first = found.calls, found.first[:-1]
    uncertain = np.where(times.last_by == BY_CLOCK, clocks.uncertainty[calls.rank[found.rows[first]]], 0)
    doubt = np.maximum(np.maximum(LEAST_LEAD_NS, times.transfer // _LEAD_SHARE), uncertain)
    odd = np.concatenate([np.isin(rank.places.flag, _ODD) for rank in analysis.ranks])
    odd_match = np.zeros(len(found), np.bool_)
    np.logical_or.at(odd_match, found.of_row, odd[found.rows])
    sure = (times.last >= 0) & (times.lead > doubt) & ~times.bound & ~odd_match
    return np.where(sure, times.last, UNKNOWN)


def _beyond_bubble(found: Matching, times: MatchTimes, exposed: Int64Array, peers: Peers) -> Int64Array:
    """Exposed waiting of each row that a late rank can be charged with.

    Waiting for messages of a pipeline is its bubble: only what the same call of other replicas does not wait counts.
    """
    message = np.zeros(len(exposed), np.bool_)
    message[found.rows[(found.source >= 0)[found.of_row]]] = True
    usual, others = medians_of_others(exposed, peers.place)
    return np.where(message, np.where(others > 0, np.maximum(exposed - usual, 0), 0), exposed)


def _late_rows(found: Matching, late: Int64Array) -> Int64Array:
    """Row of the late rank in each match, -1 where nobody is."""
    out = np.full(len(late), -1, np.int64)
    mine = found.calls.rank[found.rows] == late[found.of_row]
    out[found.of_row[mine]] = found.rows[mine]
    return out


def _pass_on(
    analysis: Analysis, found: Matching, clocks: Clocks, lateness: Lateness, late: Int64Array, where: Int64Array,
    charge: Float64Array, direct: Float64Array,
) -> Charges:  # fmt: skip
    """Follow every charge back, from the last match to the first."""
    calls = found.calls
    finish = smallest(clocks.aligned(calls.end[found.rows], calls.rank[found.rows]), found.first)
    held, inherited = charge.copy(), np.zeros(len(late))
    passed: dict[tuple[int, int], float] = {}
    way: dict[int, int] = {}
    for match in np.argsort(-finish, kind="stable").tolist():
        amount = held[match] * lateness.passing[match]
        if amount >= _WORTH_FOLLOWING_NS:
            _spread(match, amount, lateness, finish, late, held, inherited, passed, way)
    kept = held[:, None] * lateness.local
    kept[:, INHERITED] += inherited
    own = np.zeros((len(analysis.ranks), direct.shape[1], len(REASONS)))
    mine = late >= 0
    np.add.at(own, (late[mine], where[mine]), kept[mine])
    return Charges(_within_excess(own, lateness), direct, passed, late, charge, way)


def _within_excess(own: Float64Array, lateness: Lateness) -> Float64Array:
    """Charges as far as what the rank did beyond its peers in the step can have caused them, and for that.

    A rank that is behind by a constant lets the others wait in every call, but where their hosts are no faster that
    costs them nothing: they would have waited for these instead.
    """
    excess, unseen = lateness.excess, lateness.unseen
    total = own[:, :, :INHERITED].sum(axis=2)
    limit = excess.sum(axis=2)
    known = np.isfinite(limit)
    share = np.where(known[:, :, None], excess, 0.0) / np.where(known & (limit > 0), limit, 1.0)[:, :, None]
    capped = np.minimum(total, np.where(known, limit, 0.0))[:, :, None] * share
    out = own.copy()
    out[:, :, :INHERITED] = np.where(known[:, :, None], capped, own[:, :, :INHERITED])
    # What the host did before the device had anything to do is not seen on the device, but no riddle either.
    hidden = unseen.sum(axis=2)
    told = np.minimum(out[:, :, INHERITED], hidden)
    part = unseen / np.where(hidden > 0, hidden, 1.0)[:, :, None]
    out[:, :, INPUT] += told * part[:, :, 0]
    out[:, :, HOST] += told * part[:, :, 1]
    out[:, :, INHERITED] -= told
    return out


def _spread(
    match: int, amount: float, lateness: Lateness, finish: Int64Array, late: Int64Array, held: Float64Array,
    inherited: Float64Array, passed: dict[tuple[int, int], float], way: dict[int, int],
) -> None:  # fmt: skip
    """Pass ``amount`` on to the late ranks of the calls that the late rank of ``match`` waited in.

    Waiting in calls that nobody can be charged with charges nobody; in calls with missing members it is inherited.
    """
    low, high = int(lateness.low[match]), int(lateness.high[match])
    target = lateness.target[low:high]
    weight = np.where(lateness.chain[low:high] == lateness.own_chain[match], 0.0, lateness.weight[low:high])
    total = weight.sum()
    if total <= 0:
        return
    part = amount * weight / total
    outside = target == NO_MATCH
    inherited[match] += part[outside].sum()
    blamed = ~outside & (late[target] >= 0) & (late[target] != late[match]) & (finish[target] < finish[match])
    if not blamed.any():
        return
    np.add.at(held, target[blamed], part[blamed])
    way[match] = int(target[int(np.argmax(np.where(blamed, part, -1.0)))])
    me = int(late[match])
    for rank, ns in zip(late[target[blamed]].tolist(), part[blamed].tolist(), strict=True):
        passed[me, rank] = passed.get((me, rank), 0.0) + ns
