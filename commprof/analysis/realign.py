"""Matching calls that carry no sequence number: order, realigned so that a missing or extra call shifts nothing.

Two ranks issue the same calls; one may lack some. Where kinds differ from call to call, kinds show what is missing. In
a run of equal calls only the ends do: all members of a synchronising call end together, so the right shift leaves end
differences that are one offset and one drift, and a wrong one leaves the irregularity of the program.

The shift as a function of the call is found by dynamic programming over a band of shifts (Viterbi): staying at a shift
is free, changing it costs, an end difference costs its distance from the offset up to a cap, and what reaches the cap
is no match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array

Float64Array = NDArray[np.float64]

EXTRA, AMBIGUOUS = -1, -2
"""Places of a call that has no partner, and of one that could have several."""

_BAND = 6
"""So many calls may be missing on either side beyond the difference in number."""
_TRIED = 4
"""Twice as many clock offsets are tried: the best explanation, and its rivals, which can make it ambiguous."""
_END_SPREAD_NS = 60_000.0
"""Ends of one call on healthy ranks lie this close (up to 50 us between hosts: NCCL's hops; gloo mostly below)."""
_GAP_SHARE = 8
"""... or within one part in this many of the usual gap between two calls, where that is wider."""
_LEAST_MATCHED = 0.75
"""An alignment that leaves out more of the shorter list is none."""


@dataclass(frozen=True, slots=True)
class _Aligned:
    """An alignment: place of each call of the other in the reference, what it leaves alone, its spread."""

    place: Int64Array
    alone: int
    spread: float
    cost: float


def realign(kinds: list[Int64Array], ends: list[Int64Array]) -> list[Int64Array]:
    """Places of the calls of several ranks in a common order, one array per rank.

    ``kinds`` are numbers equal for calls of one operation, type and size, ``ends`` their ends, both in order of issue.
    A place is an index into the calls of the longest rank, :data:`EXTRA` or :data:`AMBIGUOUS`. Ranks whose ends fit the
    longest one nowhere stay unmatched as a whole.
    """
    reference = max(range(len(kinds)), key=lambda i: len(kinds[i]))
    return [
        np.arange(len(kinds[i]), dtype=np.int64)
        if i == reference
        else align(kinds[reference], ends[reference], kinds[i], ends[i])
        for i in range(len(kinds))
    ]


def align(kind: Int64Array, end: Int64Array, other_kind: Int64Array, other_end: Int64Array) -> Int64Array:
    """Places of the calls of one rank among those of the reference; shape of ``other_kind``."""
    if not len(kind) or not len(other_kind):
        return np.full(len(other_kind), EXTRA, np.int64)
    band = np.arange(-_BAND, max(0, len(kind) - len(other_kind)) + _BAND + 1)
    index = np.arange(len(other_kind))[:, None] + band[None, :]
    inside = (index >= 0) & (index < len(kind))
    index = np.clip(index, 0, len(kind) - 1)
    same = inside & (kind[index] == other_kind[:, None])
    difference = (end[index] - other_end[:, None]).astype(np.float64)
    cap = max(_END_SPREAD_NS, _typical_gap(end) / _GAP_SHARE)
    found = [
        _best_path(difference, same, offset, cap, band, index)
        for offset in _offsets(difference, same, cap)
    ]  # fmt: skip
    if not found:
        return np.full(len(other_kind), EXTRA, np.int64)
    best = min(found, key=lambda aligned: (aligned.cost, aligned.spread))
    if len(other_kind) - int((best.place < 0).sum()) < _LEAST_MATCHED * len(other_kind):
        return np.full(len(other_kind), AMBIGUOUS, np.int64)
    place = best.place
    for rival in found:
        differs = (rival.place != best.place) & (rival.place >= 0) & (best.place >= 0)
        if rival.alone <= best.alone and rival.spread <= 2 * best.spread and differs.any():
            place = np.where(differs, AMBIGUOUS, place)
    return place


def _typical_gap(end: Int64Array) -> float:
    return float(np.median(np.diff(end))) if len(end) > 1 else 0.0


def _offsets(difference: Float64Array, same: NDArray[np.bool_], cap: float) -> list[float]:
    """The clock offsets worth trying: those of single shifts, by how many calls they explain at any shift."""
    candidates = []
    for shift in range(same.shape[1]):
        values = difference[same[:, shift], shift]
        if len(values):
            candidates += np.quantile(values, (0.25, 0.5, 0.75), method="nearest").tolist()
    scored = []
    for offset in sorted(set(candidates)):
        distance = np.where(same, np.abs(difference - offset), np.inf).min(axis=1)
        scored.append((float(np.minimum(distance, cap).sum()), offset))
    kept: list[float] = []
    for _, offset in sorted(scored):
        if all(abs(offset - other) > cap for other in kept):
            kept.append(offset)
    return kept[: 2 * _TRIED]


def _best_path(
    difference: Float64Array, same: NDArray[np.bool_], offset: float, cap: float, band: Int64Array, index: Int64Array
) -> _Aligned:
    """The cheapest shift per call for one offset; offset and drift are fitted again to what it matches."""
    line = np.full(len(difference), offset)
    for _ in range(2):
        distance = np.where(same, np.minimum(np.abs(difference - line[:, None]), cap), cap)
        path = _viterbi(distance, cap)
        chosen = np.take_along_axis(difference, path[:, None], axis=1)[:, 0]
        good = np.take_along_axis(distance, path[:, None], axis=1)[:, 0] < cap
        line = _line(chosen, good, line)
    rest = np.abs(chosen - line)
    place = np.take_along_axis(index, path[:, None], axis=1)[:, 0]
    place = _once_each(np.where(good, place, EXTRA), rest)
    matched = place >= 0
    spread = float(np.quantile(rest[matched], 0.9)) if matched.any() else cap
    changes = int(np.abs(np.diff(band[path])).sum())
    alone = int((~matched).sum())
    return _Aligned(place, alone, spread, cap * (alone + changes) + float(rest[matched].sum()))


def _viterbi(distance: Float64Array, step: float) -> Int64Array:
    """For each row the column of the cheapest path through ``distance``; changing the column costs."""
    rows, columns = distance.shape
    # Cheaper than leaving a call alone: then the first and last calls of a run find their place as well.
    price = 0.75 * step * np.abs(np.arange(columns)[:, None] - np.arange(columns)[None, :])
    best = distance[0].copy()
    came = np.zeros((rows, columns), np.int64)
    for row in range(1, rows):
        total = best[:, None] + price
        came[row] = total.argmin(axis=0)
        best = total[came[row], np.arange(columns)] + distance[row]
    path = np.empty(rows, np.int64)
    path[-1] = int(best.argmin())
    for row in range(rows - 1, 0, -1):
        path[row - 1] = came[row, path[row]]
    return path


def _line(values: Float64Array, good: NDArray[np.bool_], before: Float64Array) -> Float64Array:
    """Offset and drift through the matched differences, robust against a few wrong ones."""
    rows = np.flatnonzero(good)
    if len(rows) < 8:
        return np.full(len(values), float(np.median(values[rows]))) if len(rows) else before
    third = max(1, len(rows) // 3)
    left, right = rows[:third], rows[-third:]
    slope = (np.median(values[right]) - np.median(values[left])) / (np.median(right) - np.median(left))
    line = slope * np.arange(len(values))
    return np.asarray(line + np.median(values[rows] - line[rows]))


def _once_each(place: Int64Array, rest: Float64Array) -> Int64Array:
    """Of several calls at one place only the one that fits best keeps it."""
    order = np.lexsort((rest, place))
    again = np.concatenate([[False], place[order][1:] == place[order][:-1]])
    place[order[again]] = EXTRA
    return place
