"""Which calls of a lane belong together: by sequence number while it can be trusted, else by order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import NO_STEP, SYNCHRONISING, AllCalls
from commprof.analysis.codes import operation_is
from commprof.analysis.lanes import NO_LANE, Lanes, changes, count_within, kinds_of
from commprof.analysis.realign import AMBIGUOUS, realign
from commprof.intervals import Int64Array

_ENOUGH_CALLS = 8
"""Fewer gaps have no reliable median."""
_REGULAR_NS = 2_000
"""Gaps between ends that differ by less over the ranks are equal: clocks and ends of one call scatter as much."""


@dataclass(slots=True, eq=False)
class Pairs:
    """``key`` per row, equal for calls that are one (-1: none); ``ambiguous`` rows could be several."""

    key: Int64Array
    ambiguous: NDArray[np.bool_]
    untrusted: Int64Array
    """Lanes whose sequence numbers contradict operation or size."""


def pair_calls(calls: AllCalls, lanes: Lanes) -> Pairs:
    """Give every call of a lane the key of its match."""
    kind = kinds_of(calls)
    key = np.full(len(calls), -1, np.int64)
    ambiguous = np.zeros(len(calls), np.bool_)
    numbered = np.append(lanes.numbered, False)[lanes.lane]
    rows, number, untrusted = _by_sequence(calls, lanes, np.flatnonzero(numbered), kind)
    key[rows] = number
    rest = np.flatnonzero((lanes.lane != NO_LANE) & (key < 0))
    _by_order(calls, lanes, rest, kind, key, ambiguous)
    return Pairs(key, ambiguous, untrusted)


def _by_sequence(
    calls: AllCalls, lanes: Lanes, rows: Int64Array, kind: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Rows of lanes whose numbers agree with what is called, their keys, and the lanes that contradict themselves.

    Calls that repeat a number on one rank (coalesced calls, replays of graphs) are told apart by their order.
    """
    if not len(rows):
        return rows, rows, rows
    lane, sequence = lanes.lane, calls.sequence
    rows = rows[np.lexsort((calls.order[rows], calls.rank[rows], sequence[rows], lane[rows]))]
    again = count_within(changes(lane[rows], sequence[rows], calls.rank[rows]))
    order = np.lexsort((calls.rank[rows], again, sequence[rows], lane[rows]))
    rows, again = rows[order], again[order]
    fresh = changes(lane[rows], sequence[rows], again)
    first = np.flatnonzero(fresh)
    differs = np.maximum.reduceat(kind[rows], first) != np.minimum.reduceat(kind[rows], first)
    # A size that one rank does not know contradicts nothing.
    unsized = np.minimum.reduceat(calls.size[rows], first) < 0
    operation = calls.operation[rows]
    other = np.maximum.reduceat(operation, first) != np.minimum.reduceat(operation, first)
    untrusted = np.unique(lane[rows[first[other | (differs & ~unsized)]]])
    keep = ~np.isin(lane[rows], untrusted)
    return rows[keep], (np.cumsum(fresh) - 1)[keep], untrusted


def _by_order(
    calls: AllCalls, lanes: Lanes, rows: Int64Array, kind: Int64Array, key: Int64Array, ambiguous: NDArray[np.bool_]
) -> None:
    """Give keys to rows without usable numbers, in place: alike sequences by place, others realigned."""
    if not len(rows):
        return
    block = _blocks(calls, lanes.lane, rows)
    rows = rows[np.lexsort((calls.order[rows], calls.rank[rows], block[rows]))]
    place = count_within(changes(block[rows], calls.rank[rows]))
    order = np.lexsort((calls.rank[rows], place, block[rows]))
    rows, place = rows[order], place[order]
    fresh = changes(block[rows], place)
    first = np.flatnonzero(fresh)
    number = int(key.max(initial=-1)) + 1 + np.cumsum(fresh) - 1
    key[rows] = number
    alike = np.maximum.reduceat(kind[rows], first) == np.minimum.reduceat(kind[rows], first)
    size = np.diff(np.append(first, len(rows)))
    # The first place of a block holds all of its ranks: every other must too, with calls of one kind.
    head = np.maximum.accumulate(np.where(place[first] == 0, np.arange(len(first)), 0))
    odd = np.unique(block[rows[first[~alike | (size != size[head])]]])
    synchronising = operation_is(calls.operation[rows], *SYNCHRONISING)
    shifted = _suspicious(calls, rows[synchronising & ~np.isin(block[rows], odd)], block, key)
    rows = rows[np.argsort(block[rows], kind="stable")]
    for wrong in np.concatenate([odd, shifted]).tolist():
        low, high = np.searchsorted(block[rows], [wrong, wrong + 1])
        _realign_block(calls, rows[low:high], kind, key, ambiguous)


def _blocks(calls: AllCalls, lane: Int64Array, rows: Int64Array) -> Int64Array:
    """A number per row: calls of one lane, of one step where launches tell steps, of ranks captured at one time."""
    step = steps_carried_on(calls)
    unlabelled = np.unique(lane[rows[~calls.labelled[calls.rank[rows]]]])
    step[np.isin(lane, unlabelled)] = NO_STEP
    together = _captured_together(calls)[calls.rank]
    columns = (together, step, lane)
    order = rows[np.lexsort(tuple(column[rows] for column in columns))]
    block = np.full(len(calls), -1, np.int64)
    block[order] = np.cumsum(changes(*(column[order] for column in columns)))
    return block


def steps_carried_on(calls: AllCalls) -> Int64Array:
    """Step of each call; calls launched between steps belong to the step before."""
    order = np.lexsort((calls.order, calls.rank))
    step = calls.step[order]
    index = np.arange(len(step))
    last = np.maximum.accumulate(np.where(step != NO_STEP, index, -1))
    own = last >= calls.first[calls.rank[order]]
    out = np.full(len(step), NO_STEP, np.int64)
    out[order] = np.where(own, step[np.maximum(last, 0)], NO_STEP)
    return out


def _captured_together(calls: AllCalls) -> Int64Array:
    """A number per rank, equal where captures overlap in time, directly or through others."""
    order = np.argsort(calls.begins, kind="stable")
    reach = np.maximum.accumulate(calls.ends[order])
    apart = np.concatenate([[False], calls.begins[order][1:] >= reach[:-1]])
    out = np.empty(len(order), np.int64)
    out[order] = np.cumsum(apart)
    return out


def _suspicious(calls: AllCalls, rows: Int64Array, block: Int64Array, key: Int64Array) -> Int64Array:
    """Blocks of alike sequences in which the time between calls on one rank has nothing to do with that on another.

    Then one capture may have begun a call later and ended a call later, which order alone does not show.
    """
    if not len(rows):
        return np.empty(0, np.int64)
    rows = rows[np.lexsort((key[rows], calls.rank[rows], block[rows]))]
    own = ~changes(block[rows], calls.rank[rows])
    gap = np.diff(calls.end[rows], prepend=0)[own]
    rows = rows[own]
    if not len(rows):
        return np.empty(0, np.int64)
    order = np.lexsort((calls.rank[rows], key[rows]))
    fresh = changes(key[rows][order])
    reference = gap[order][np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))]
    off = np.empty(len(rows), np.int64)
    off[order] = np.abs(gap[order] - reference)
    # Per block and rank: typical difference to the reference, and how irregular the rank itself is.
    start = np.flatnonzero(changes(block[rows], calls.rank[rows]))
    irregular = np.abs(np.diff(gap, append=gap[-1:]))
    found = []
    for low, high in zip(start.tolist(), [*start[1:].tolist(), len(rows)], strict=True):
        if high - low < _ENOUGH_CALLS:
            continue
        typical = float(np.median(off[low:high]))
        if typical > _REGULAR_NS and typical > 0.5 * float(np.median(irregular[low : high - 1])):
            found.append(int(block[rows[low]]))
    return np.unique(np.array(found, np.int64))


def _realign_block(
    calls: AllCalls, rows: Int64Array, kind: Int64Array, key: Int64Array, ambiguous: NDArray[np.bool_]
) -> None:
    """Match the calls of one block anew by kinds and ends."""
    rows = rows[np.lexsort((calls.order[rows], calls.rank[rows]))]
    parts = np.split(rows, np.flatnonzero(changes(calls.rank[rows]))[1:])
    base = int(key.max()) + 1
    alone = base + max(len(part) for part in parts)
    places = realign([kind[part] for part in parts], [calls.end[part] for part in parts])
    unsure = {int(r) for part, place in zip(parts, places, strict=True) for r in part[place == AMBIGUOUS]}
    longest = max(range(len(parts)), key=lambda index: len(parts[index]))
    for part, place in zip(parts, places, strict=True):
        key[part] = np.where(place >= 0, base + place, alone + np.arange(len(part)))
        alone += len(part)
        if (place == AMBIGUOUS).any():
            # What has no partner there could be the partner of any of these.
            unsure |= set(parts[longest][~np.isin(np.arange(len(parts[longest])), place)].tolist())
    loose = np.array(sorted(unsure), np.int64)
    key[loose], ambiguous[loose] = -1, True
