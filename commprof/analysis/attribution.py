"""Exposed time of single collectives (``spec``: section 4).

At every instant of exposed communication the time is shared among the collectives that compute really waited for:
those active then that end before compute resumes, and if none does, all that are active. The shares are integers and
add up to the exposed time of every window, to the nanosecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.intervals import Int64Array, IntervalSet, expand_ranges, union

_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True, eq=False)
class Pieces:
    """Every stretch of exposed time with every call that shares it, in order of time and then of call, shape ``(n,)``.

    Row ``i`` gives ``ns[i]`` of the stretch ``[start[i], end[i])`` to call ``call[i]``; ``window[i]`` holds it (-1:
    none). The rows of one stretch add up to its length, so every sum over rows adds up to exposed time.
    """

    call: Int64Array
    window: Int64Array
    start: Int64Array
    end: Int64Array
    ns: Int64Array

    def __len__(self) -> int:
        return len(self.call)


@dataclass(slots=True, eq=False)
class Attribution:
    """Shares per call, shape ``(calls,)``, sparse parts per window, and the pieces that they are sums of, ns."""

    exposed: Int64Array
    sole: Int64Array
    touched: Int64Array
    part_call: Int64Array
    part_window: Int64Array
    part_ns: Int64Array
    pieces: Pieces


@dataclass(slots=True, eq=False)
class Activity:
    """Kernels of the calls of one device: kernel ``i`` belongs to call ``call[i]``; calls are numbered in the order
    that decides who gets remainders (start, then stream, then file)."""

    call: Int64Array
    start: Int64Array
    end: Int64Array
    calls: int


def attribute(
    activity: Activity,
    compute: IntervalSet,
    compute_start: Int64Array,
    borders: Int64Array,
    window_start: Int64Array,
    window_end: Int64Array,
) -> Attribution:
    """Share exposed communication among calls.

    ``compute_start`` are the starts of all compute events, also of those without duration: they tell when compute
    resumes. ``borders`` are the starts and ends of all device events: stretches are cut there, which decides where the
    remainders of divisions go. Windows must be sorted and disjoint.
    """
    zeros = np.zeros(activity.calls, np.int64)
    nothing = np.empty(0, np.int64)
    exposed_set = union(activity.start, activity.end) - compute
    if not len(exposed_set):
        empty = Pieces(nothing, nothing, nothing, nothing, nothing)
        return Attribution(zeros, zeros.copy(), zeros.copy(), nothing, nothing, nothing, empty)
    resumes = np.sort(compute_start)
    piece_start, piece_end = _pieces(exposed_set, np.concatenate([borders, window_start, window_end]))
    length = piece_end - piece_start
    pair_piece, pair_call = _active_pairs(activity, piece_start)
    finish = zeros.copy()
    finish[:] = np.iinfo(np.int64).min
    np.maximum.at(finish, activity.call, activity.end)
    next_compute = np.concatenate([resumes, [_NEVER]])[np.searchsorted(resumes, piece_start, side="right")]
    awaited = finish[pair_call] <= next_compute[pair_piece]
    active = np.bincount(pair_piece, minlength=len(length))
    waited_for = np.bincount(pair_piece[awaited], minlength=len(length))
    shares = awaited | (waited_for[pair_piece] == 0)
    sole, touched = zeros.copy(), zeros.copy()
    np.add.at(touched, pair_call, length[pair_piece])
    alone = active[pair_piece] == 1
    np.add.at(sole, pair_call[alone], length[pair_piece[alone]])
    piece, call = pair_piece[shares], pair_call[shares]
    part = _equal_parts(piece, length)
    exposed = zeros.copy()
    np.add.at(exposed, call, part)
    window = _window_of(piece_start, window_start, window_end)[piece]
    pieces = Pieces(call, window, piece_start[piece], piece_end[piece], part)
    return Attribution(exposed, sole, touched, *_sum_parts(call, window, part), pieces)


def _pieces(exposed: IntervalSet, cuts: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Exposed time cut at every start and end of an event and at every border of a window."""
    # Most events lie outside: to look for them is faster than to sort them.
    borders = np.unique(np.concatenate([exposed.starts, exposed.ends, cuts[exposed.contains(cuts)]]))
    start, end = borders[:-1], borders[1:]
    inside = exposed.contains(start)
    return start[inside], end[inside]


def _active_pairs(activity: Activity, piece_start: Int64Array) -> tuple[Int64Array, Int64Array]:
    """All pairs of a piece and a call that is active in it, by piece and then by call, each once."""
    low = np.searchsorted(piece_start, activity.start, side="left")
    high = np.searchsorted(piece_start, activity.end, side="left")
    kernel, piece = expand_ranges(low, high)
    key = np.unique(piece.astype(np.int64) * activity.calls + activity.call[kernel])
    return key // activity.calls, key % activity.calls


def _equal_parts(piece: Int64Array, length: Int64Array) -> Int64Array:
    """Each piece divided equally among its calls; the first of them takes what the division leaves."""
    count = np.bincount(piece, minlength=len(length))
    part = length[piece] // count[piece]
    first = np.concatenate([[True], piece[1:] != piece[:-1]]) if len(piece) else np.zeros(0, np.bool_)
    part[first] += length[piece[first]] % count[piece[first]]
    return part


def _window_of(instants: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    if not len(start):
        return np.full(len(instants), -1, np.int64)
    index = np.searchsorted(start, instants, side="right") - 1
    inside = (index >= 0) & (instants < end[np.maximum(index, 0)])
    return np.where(inside, index, -1)


def _sum_parts(call: Int64Array, window: Int64Array, part: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    inside = window >= 0
    call, window, part = call[inside], window[inside], part[inside]
    if not len(call):
        return call, window, part
    width = int(window.max()) + 1
    key, inverse = np.unique(call * width + window, return_inverse=True)
    total = np.zeros(len(key), np.int64)
    np.add.at(total, inverse, part)
    return key // width, key % width, total
