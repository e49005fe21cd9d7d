"""Replaying a job with other durations: how long its steps would be without those who are slow.

An operation starts when everything that it waits for has ended; operations that meet (the two ends of a message, the
members of a collective) start together, when the last of them can. Only durations are replaced, never the order. In
the durations of communication no waiting is left, or a replay would keep what it should take away.

Method and formulas: "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025,
arXiv 2505.05713). The usual duration of an operation is the mean over all computations of its kind, and the median over
communication of its kind, whose durations have a long tail.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, expand_ranges

Float64Array = NDArray[np.float64]


class Schedule:
    """Which operations wait for which, and which of them start together.

    ``meets`` is a number per operation, equal for those that start together. ``before`` are pairs of operations, shape
    ``(pairs, 2)``: the second cannot start before the first has ended. Raises ``ValueError`` if operations wait for
    each other in a circle.
    """

    def __init__(self, meets: Int64Array, before: Int64Array) -> None:
        _, self._meeting = np.unique(meets, return_inverse=True)
        self._meetings = int(self._meeting.max(initial=-1)) + 1
        level = self._levels(before)
        # Pairs by level and meeting of what waits; operations by level: a level needs nothing but the levels before.
        waiting = self._meeting[before[:, 1]]
        order = np.lexsort((waiting, level[waiting]))
        self._pairs = [
            (before[rows, 0], *_runs(waiting[rows])) for rows in np.split(order, _cuts(level[waiting[order]]))
        ]  # fmt: skip
        of_level = np.argsort(level[self._meeting], kind="stable")
        self._operations = np.split(of_level, _cuts(level[self._meeting[of_level]]))

    def _levels(self, before: Int64Array) -> Int64Array:
        """Of each meeting the largest number of meetings that have to be over, one after the other, before it."""
        edges = self._meeting[before].reshape(-1, 2)
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        first = np.searchsorted(edges[:, 0], np.arange(self._meetings + 1))
        missing = np.bincount(edges[:, 1], minlength=self._meetings)
        level = np.zeros(self._meetings, np.int64)
        ready, depth, seen = np.flatnonzero(missing == 0), 0, 0
        while len(ready):
            level[ready], seen = depth, seen + len(ready)
            after = edges[expand_ranges(first[ready], first[ready + 1])[1], 1]
            np.subtract.at(missing, after, 1)
            ready, depth = np.unique(after[missing[after] == 0]), depth + 1
        if seen < self._meetings:
            raise ValueError("operations wait for each other in a circle")
        return level

    def ends(self, durations: Float64Array) -> Float64Array:
        """When each operation ends if they last that long, shape ``(..., operations)`` like ``durations``.

        The first start at 0; several sets of durations are replayed at once.
        """
        start = np.zeros((*durations.shape[:-1], self._meetings))
        end = np.zeros(durations.shape)
        for depth, operations in enumerate(self._operations):
            if depth:
                sources, first, meeting = self._pairs[depth - 1]
                start[..., meeting] = np.maximum.reduceat(end[..., sources], first, axis=-1)
            end[..., operations] = start[..., self._meeting[operations]] + durations[..., operations]
        return end

    def length(self, durations: Float64Array) -> Float64Array:
        """How long all of it takes, shape ``(...)``."""
        return np.asarray(self.ends(durations).max(axis=-1))


def usual_durations(durations: Float64Array, kind: Int64Array, communicates: NDArray[np.bool_]) -> Float64Array:
    """What operations of each kind last: the mean of computations, the median of communication.

    Everything has the shape ``(operations,)``.
    """
    out = np.empty(len(durations))
    for one in np.unique(kind).tolist():
        rows = kind == one
        middle = np.median if communicates[rows].any() else np.mean
        out[rows] = middle(durations[rows])
    return out


def slowdown(length: float, ideal: float) -> float:
    """``S``: how many times as long the job takes as it would if everything lasted as long as it usually does."""
    return length / ideal


def contribution(length: float, without: float, ideal: float) -> float:
    """``M``: the share of the time lost that goes away when some operations last as long as they usually do.

    It can exceed 1, where the others are faster than usual, and be negative.
    """
    return (length - without) / (length - ideal)


def _cuts(values: Int64Array) -> Int64Array:
    """Where a sorted column changes."""
    return np.flatnonzero(np.diff(values)) + 1


def _runs(values: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Where each run of equal values begins, and its value."""
    first = np.concatenate([[0], _cuts(values)]) if len(values) else np.empty(0, np.int64)
    return first, values[first]
