"""What comes back when calls transfer for less time: exposed time of these calls, and of those that queue behind them.

A call that ends earlier gives back exposed time of its own first: up to as much as it gets shorter. What of that was
hidden is not lost on the next call of its stream, if that one had been launched and ready while it queued: it starts,
and ends, by so much earlier, and gives back what it exposes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from commprof.analysis.model import RankAnalysis
from commprof.diagnosis.ground import Ground, ReferenceStep
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

_NEAR_NS = 5_000
"""A call that starts no later after the one before it on its stream has queued behind it."""


def transfers(ground: Ground, step: ReferenceStep) -> Int64Array:
    """How long each call of the rank of a step transferred; where that is not known, how long it lasted."""
    return transfers_of(ground, step.where)


def transfers_of(ground: Ground, where: int) -> Int64Array:
    """The same for a rank by its place in the analysis."""
    calls = ground.analysis.ranks[where].calls
    if not ground.analysis.waiting:
        return calls.duration
    transfer = ground.analysis.waiting[where].transfer
    return np.where(transfer > 0, np.minimum(transfer, calls.duration), calls.duration)


def given_back(ground: Ground, excess: Callable[[ReferenceStep], Int64Array]) -> Int64Array:
    """What of the rest of every exposed row comes back if each call of a rank lasts shorter by ``excess`` (ns per call
    of the rank of a step)."""
    exposed = ground.exposed
    out = np.zeros(len(exposed), np.int64)
    share_of: dict[int, np.ndarray[tuple[int], np.dtype[np.float64]]] = {}
    for index, step in enumerate(ground.steps):
        if step.where not in share_of:
            share_of[step.where] = _share_of_calls(step.rank, excess(step))
        mine = exposed.step == index
        out[mine] = np.floor(exposed.rest[mine] * share_of[step.where][exposed.call[mine]]).astype(np.int64)
    return out


def longer_by_step(ground: Ground, shorter: Int64Array | None) -> Int64Array | None:
    """By how much the calls of each step last too long; ``shorter`` is ns by match."""
    found = ground.analysis.matching
    if found is None or shorter is None or not len(found):
        return None
    names = found.calls.step_names
    step_of = found.calls.step[found.rows[found.first[:-1]]]
    total = np.bincount(step_of + 1, shorter, minlength=len(names) + 1)[1:].astype(np.int64)
    known = dict(zip(names, total.tolist(), strict=True))
    return np.array([sum(known.get(name, 0) for name in step.unit.names) for step in ground.steps], np.int64)


def _share_of_calls(rank: RankAnalysis, excess: Int64Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """For every call of a rank the part of its exposed time (host-bound and waiting left out) that comes back."""
    calls, pieces = rank.calls, rank.shares.pieces
    rest = np.bincount(pieces.call, pieces.ns - rank.causes.host - rank.causes.wait, minlength=len(calls))
    base = np.where(calls.launched == NOT_LAUNCHED, calls.start, calls.launched)
    for bucket in rank.buckets:
        if bucket.ready is not None:
            base[bucket.call] = max(int(base[bucket.call]), bucket.ready)
    queued = np.maximum(calls.start - base, 0)
    back = np.zeros(len(calls))
    ahead: dict[tuple[int, int], tuple[int, float]] = {}
    for row in np.lexsort((calls.start, calls.stream)).tolist():
        stream = (int(calls.device[row]), int(calls.stream[row]))
        end, earlier = ahead.get(stream, (0, 0.0))
        if calls.start[row] - end > _NEAR_NS:
            earlier = 0.0
        earlier = min(earlier, float(queued[row])) + float(excess[row])
        back[row] = min(float(rest[row]), earlier)
        ahead[stream] = (max(end, int(calls.end[row])), earlier - back[row])
    return np.minimum(back / np.maximum(rest, 1.0), 1.0)
