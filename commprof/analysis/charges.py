"""What late ranks cost the others, followed back to where it began (``spec``: section 10).

Every call whose last rank is decided (:mod:`commprof.analysis.decided`) charges it with the exposed waiting of the
others. Its lateness is divided over what it did beyond its peers (:mod:`commprof.analysis.lateness`). What it waited
in calls of other groups is passed on to the late ranks of those calls, from the last call of the capture to the first;
the rest stays with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from commprof.analysis.behaviour import HOST, INPUT
from commprof.analysis.carried import carried_waits
from commprof.analysis.clocks import Clocks
from commprof.analysis.decided import LateRows, decided
from commprof.analysis.displaced import displaced_transfers
from commprof.analysis.held_sources import blame_sinks, held_by_sinks, held_pieces
from commprof.analysis.lateness import (
    INHERITED,
    REASONS,
    Float64Array,
    Lateness,
    exposed_waits,
    find_lateness,
)
from commprof.analysis.matching import COLLECTIVE, NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.segments import medians_of_others, smallest
from commprof.analysis.waiting import MatchTimes
from commprof.intervals import Int64Array, expand_ranges

_WORTH_FOLLOWING_NS = 50.0
_BETWEEN_STAGES = ("pp", "embedding")


@dataclass(slots=True, eq=False)
class Charges:
    """``own[rank, step, reason]`` and ``direct[rank, step]``: ns per rank of the job, before and after passing on.

    Ranks are indices into the input, steps into ``AllCalls.step_names`` (the last column: no step). ``passed`` holds
    how much went from one rank to another. ``late`` are the late ranks of the matches and ``charge`` what each of these
    entries was charged with at first, ``lateness`` why they were late; ``way[e]`` is the entry that most of the charge
    of entry ``e`` was passed on to. ``waited`` and ``step`` are, per row of the calls, the nanoseconds that others can
    be charged with and the index of the step.
    """

    own: Float64Array
    direct: Float64Array
    passed: dict[tuple[int, int], float]
    late: LateRows
    charge: Float64Array
    lateness: Lateness
    waited: Int64Array
    step: Int64Array
    way: dict[int, int] = field(default_factory=dict)


def find_charges(
    analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks, peers: Peers, step: Int64Array
) -> Charges:
    """Charges of every rank in every step."""
    calls = found.calls
    outlasts = held_by_sinks(found, times)
    held, times = held_pieces(analysis, found, outlasts), blame_sinks(found, times, outlasts)
    late = decided(analysis, found, times, clocks)
    exposed = exposed_waits(analysis, calls, held)
    beyond = _beyond_bubble(analysis, found, exposed, peers)
    waited = beyond + displaced_transfers(analysis, found, late, step, exposed)
    waited[late.row] = 0
    total = np.zeros(len(found))
    np.add.at(total, found.of_row, waited[found.rows])
    total += carried_waits(analysis, found, late, step, waited, exposed - beyond)
    charge = total[late.match] * late.share / max(1, len(analysis.ranks) - 1)
    steps = len(calls.step_names) + 1
    where = np.where(step[late.row] < 0, steps - 1, step[late.row])
    lateness = find_lateness(analysis, found, times, peers, exposed, beyond, late.row, step, held)
    direct = np.zeros((len(analysis.ranks), steps))
    np.add.at(direct, (late.rank, where), charge)
    out = Charges(np.empty(0), direct, {}, late, charge, lateness, waited, step)
    _pass_on(analysis, found, clocks, where, out)
    return out


def _beyond_bubble(analysis: Analysis, found: Matching, exposed: Int64Array, peers: Peers) -> Int64Array:
    """Exposed waiting of each row that a late rank can be charged with.

    Waiting for messages of a pipeline is its bubble: only what the same call of other replicas does not wait counts.
    So is waiting in collectives between its stages (tied embeddings): one of them drains last in every step.
    """
    joins = np.array([role.name in _BETWEEN_STAGES for role in analysis.roles] + [False])
    within = (found.source != COLLECTIVE) | joins[np.minimum(found.group, len(joins) - 1)]
    bubble = np.zeros(len(exposed), np.bool_)
    bubble[found.rows[within[found.of_row]]] = True
    usual, others = medians_of_others(exposed, peers.place)
    return np.where(bubble, np.where(others > 0, np.maximum(exposed - usual, 0), 0), exposed)


def _pass_on(analysis: Analysis, found: Matching, clocks: Clocks, where: Int64Array, out: Charges) -> None:
    """Follow every charge back, from the last match to the first; ``where`` is the step of each late entry."""
    calls, late, lateness = found.calls, out.late, out.lateness
    finish = smallest(clocks.aligned(calls.end[found.rows], calls.rank[found.rows]), found.first)
    held, inherited = out.charge.copy(), np.zeros(len(late))
    for entry in np.argsort(-finish[late.match], kind="stable").tolist():
        amount = held[entry] * lateness.passing[entry]
        if amount >= _WORTH_FOLLOWING_NS:
            _spread(entry, amount, finish, held, inherited, out)
    kept = held[:, None] * lateness.local
    kept[:, INHERITED] += inherited
    own = np.zeros((len(analysis.ranks), out.direct.shape[1], len(REASONS)))
    np.add.at(own, (late.rank, where), kept)
    out.own = _within_excess(own, lateness)


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
    entry: int, amount: float, finish: Int64Array, held: Float64Array, inherited: Float64Array, out: Charges
) -> None:
    """Pass ``amount`` on to the late ranks of the calls that the late rank of ``entry`` waited in.

    Waiting in calls that nobody can be charged with charges nobody; in calls with missing members it is inherited.
    """
    late, lateness = out.late, out.lateness
    low, high = int(lateness.low[entry]), int(lateness.high[entry])
    target = lateness.target[low:high]
    weight = lateness.held_up(entry)
    total = weight.sum()
    if total <= 0:
        return
    part = amount * weight / total
    inherited[entry] += part[target == NO_MATCH].sum()
    count = np.where(target == NO_MATCH, 0, late.first[target + 1] - late.first[target])
    count[finish[target] >= finish[late.match[entry]]] = 0
    piece, index = expand_ranges(late.first[target], late.first[target] + count)
    part = part[piece] * late.share[index]
    other = late.rank[index] != late.rank[entry]
    index, part = index[other], part[other]
    if not len(index):
        return
    np.add.at(held, index, part)
    out.way[entry] = int(index[part.argmax()])
    me = int(late.rank[entry])
    for rank, ns in zip(late.rank[index].tolist(), part.tolist(), strict=True):
        out.passed[me, rank] = out.passed.get((me, rank), 0.0) + ns
