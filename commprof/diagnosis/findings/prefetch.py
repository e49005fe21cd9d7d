"""Gathers of parameters that nothing prefetched: what they queued behind, and what prefetching would hide.

A gather that is launched only when its layer waits for it may first queue behind the reduction of the layer before.
Then nothing computes beside that either: compute waits for both, one after the other. Prefetched, a gather runs beside
what comes before the stretch in which it is exposed, and a reduction beside what comes after it: compute, and what else
is exposed there on streams of its own, such as all-reduces of tensor parallelism. Neither is hidden for longer than its
own stream is free there. That others may share the links with them is left out: what comes back is a bound.
"""

from __future__ import annotations

import numpy as np

from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.intervals import Int64Array, union

_NEAR_NS = 5_000
"""Calls that start no sooner before a stretch of exposed time have not run beside the compute before it."""


def with_queues(ground: Ground, late: Mask, gathers: Mask, units: Mask) -> tuple[Mask, Int64Array]:
    """Exposed rows of late gathers together with what they queued behind, and what comes back in each step.

    ``gathers`` are all gathers of parameters, ``units`` these and the reductions of the same units. The program is the
    same in every step: where one of them shows that nothing prefetches, gathers that queue are late in the others too.
    """
    rows, back = late.copy(), np.zeros(len(ground.steps), np.int64)
    awaited = late | (gathers & ground.cause_is("queued", "serialised"))
    for index in np.unique(ground.exposed.step[awaited]).tolist() if late.any() else ():
        mine = np.flatnonzero(ground.exposed.step == index)
        mine = mine[np.argsort(ground.exposed.start[mine], kind="stable")]
        chosen, back[index] = _of_step(ground, index, mine, late[mine], (gathers[mine], units[mine], awaited[mine]))
        rows[mine[chosen]] = True
    return rows, back


def _beside_packing(step: ReferenceStep, before: Int64Array) -> Mask:
    """Of which stretches of exposed time the calls ran beside nothing before, or packing and unpacking alone: they
    start ``before`` ns sooner, the shortest all together no longer than packing runs beside communication."""
    order = np.argsort(before, kind="stable")
    longer = np.where(before > _NEAR_NS, before, 0)[order]
    out = np.zeros(len(before), np.bool_)
    out[order] = np.cumsum(longer) <= step.total("overlap_comm_copies")
    return out


def _of_step(
    ground: Ground, index: int, mine: Int64Array, late: Mask, kinds: tuple[Mask, Mask, Mask]
) -> tuple[Mask, int]:
    """Which of the rows ``mine`` of a step, in order of start, belong to late gathers, and what comes back."""
    exposed, calls, (gathers, units, awaited) = ground.exposed, ground.steps[index].rank.calls, kinds
    begin, end, call = exposed.start[mine], exposed.end[mine], exposed.call[mine]
    fresh = np.concatenate([[True], begin[1:] > np.maximum.accumulate(end)[:-1]])
    first, stretch = np.flatnonzero(fresh), np.cumsum(fresh) - 1
    starts, ends = begin[first], np.maximum.reduceat(end, first)
    # What ran beside the compute before was not launched too late.
    before = np.maximum.reduceat(starts[stretch] - calls.start[call], first)
    whole = np.logical_and.reduceat(units, first) & _beside_packing(ground.steps[index], before)
    whole &= np.logical_or.reduceat(awaited & (end == ends[stretch]), first)
    chosen = whole[stretch] | late
    held = np.flatnonzero(np.logical_or.reduceat(chosen, first))
    if not len(held):
        return chosen, 0
    ns = np.where(chosen, exposed.rest[mine] + exposed.wait[mine], 0)
    gathered = np.add.reduceat(np.where(gathers, ns, 0), first)[held]
    reduced = np.add.reduceat(np.where(gathers, 0, ns), first)[held]
    # Time before the first of these stretches, between two of them, and after the last up to the next exposed one.
    window = ground.steps[index].unit.splits
    after = np.append(starts, window[-1].end)[held[-1] + 1]
    streams = np.isin(calls.stream, np.unique(calls.stream[call[chosen]]))
    taken = union(calls.start[streams], calls.end[streams])
    since, until = np.append(window[0].start, ends[held]), np.append(starts[held], after)
    room = until - since - taken.within(since, np.maximum(until, since))
    wanted = np.append(gathered, 0) + np.append(0, reduced)
    return chosen, int(np.minimum(wanted, np.maximum(room, 0)).sum())
