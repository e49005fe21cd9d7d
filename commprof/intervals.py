"""Algebra of half-open integer intervals ``[start, end)`` on one time axis.

An :class:`IntervalSet` is a union of intervals, stored as two sorted int64 arrays of disjoint, non-touching,
non-empty pieces. Everything is exact: no floats, no rounding, so identities between measures hold with ``==``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64Array = NDArray[np.int64]

_FIRST = -(1 << 62)
_LAST = 1 << 62
"""Bounds of a complement: beyond every instant that a trace can hold, and distances between them still fit int64."""


@dataclass(frozen=True, slots=True, eq=False)
class IntervalSet:
    """A set of instants as sorted disjoint intervals; ``starts`` and ``ends`` have shape ``(n,)``."""

    starts: Int64Array
    ends: Int64Array

    def __len__(self) -> int:
        return len(self.starts)

    def total(self) -> int:
        """Number of nanoseconds in the set."""
        return int((self.ends - self.starts).sum())

    def __and__(self, other: IntervalSet) -> IntervalSet:
        """Instants in both sets."""
        if len(other) < len(self):  # looking few pieces up among many is less work than many among few
            return other & self
        low = np.searchsorted(other.ends, self.starts, side="right")
        high = np.searchsorted(other.starts, self.ends, side="left")
        mine, theirs = expand_ranges(low, high)
        return IntervalSet(
            np.maximum(self.starts[mine], other.starts[theirs]), np.minimum(self.ends[mine], other.ends[theirs])
        )

    def __or__(self, other: IntervalSet) -> IntervalSet:
        """Instants in either set."""
        return union(np.concatenate([self.starts, other.starts]), np.concatenate([self.ends, other.ends]))

    def __sub__(self, other: IntervalSet) -> IntervalSet:
        """Instants in this set and not in the other."""
        return self & other.complement()

    def complement(self) -> IntervalSet:
        """All other instants within 146 years of the epoch, where every time of a trace lies."""
        starts = np.concatenate([[_FIRST], self.ends])
        ends = np.concatenate([self.starts, [_LAST]])
        keep = starts < ends
        return IntervalSet(starts[keep], ends[keep])

    def within(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """Nanoseconds of the set inside each window ``[starts[i], ends[i])``; shape ``(windows,)``."""
        lengths = np.concatenate([[0], np.cumsum(self.ends - self.starts)]).astype(np.int64)
        return self._covered_before(ends, lengths) - self._covered_before(starts, lengths)

    def clip(self, start: int, end: int) -> IntervalSet:
        """The part of the set inside ``[start, end)``."""
        return self & interval(start, end)

    def contains(self, instants: Int64Array) -> NDArray[np.bool_]:
        """Whether each instant lies in the set."""
        index = np.searchsorted(self.starts, instants, side="right") - 1
        inside = index >= 0
        inside[inside] = instants[inside] < self.ends[index[inside]]
        return inside

    def touches(self, starts: Int64Array, ends: Int64Array) -> NDArray[np.bool_]:
        """Whether each closed span ``[starts[i], ends[i]]`` holds an instant of the set."""
        index = np.searchsorted(self.ends, starts, side="right")
        found = index < len(self.starts)
        found[found] = self.starts[index[found]] <= ends[found]
        return found

    def _covered_before(self, instants: Int64Array, lengths: Int64Array) -> Int64Array:
        """Nanoseconds of the set before each instant; ``lengths`` are those of its first pieces together."""
        index = np.searchsorted(self.starts, instants, side="right")
        covered = lengths[index]
        inside = index > 0
        last = index[inside] - 1
        # The piece that the instant falls into counts only up to the instant.
        covered[inside] -= np.maximum(self.ends[last] - np.asarray(instants)[inside], 0)
        return covered


def empty() -> IntervalSet:
    """The set without any instant."""
    return IntervalSet(np.empty(0, np.int64), np.empty(0, np.int64))


def interval(start: int, end: int) -> IntervalSet:
    """The set ``[start, end)``, empty unless ``start < end``."""
    return union(np.array([start], np.int64), np.array([end], np.int64))


def union(starts: Int64Array, ends: Int64Array) -> IntervalSet:
    """Union of any intervals, in any order, overlapping or not; empty ones (``end <= start``) vanish."""
    keep = ends > starts
    if not keep.any():
        return empty()
    starts, ends = starts[keep], ends[keep]
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    fresh = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(fresh)[1:] - 1, [len(starts) - 1]])
    return IntervalSet(starts[fresh], reach[last])


def expand_ranges(low: NDArray[np.intp], high: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """All pairs ``(i, j)`` with ``low[i] <= j < high[i]``, as two arrays, in order of ``i`` and then ``j``."""
    counts = np.maximum(high - low, 0)
    owner = np.repeat(np.arange(len(low)), counts)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owner, np.repeat(low, counts) + offset
