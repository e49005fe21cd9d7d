"""Minima, maxima and medians of consecutive groups of rows: ``first`` holds where each group begins, and the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def smallest(values: Int64Array, first: Int64Array) -> Int64Array:
    """Minimum of each group; no group may be empty."""
    return np.minimum.reduceat(values, first[:-1]) if len(first) > 1 else np.empty(0, np.int64)


def largest(values: Int64Array, first: Int64Array) -> Int64Array:
    """Maximum of each group; no group may be empty."""
    return np.maximum.reduceat(values, first[:-1]) if len(first) > 1 else np.empty(0, np.int64)


def any_of(flags: NDArray[np.bool_], first: Int64Array) -> NDArray[np.bool_]:
    """Whether any row of each group is set."""
    return np.logical_or.reduceat(flags, first[:-1]) if len(first) > 1 else np.empty(0, np.bool_)


def where_largest(values: Int64Array, first: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Row of the maximum of each group, and by how much it is above the next; groups of one have no next (0).

    Where several rows share the maximum the first of them is given, and the distance is 0.
    """
    counts = np.diff(first)
    of_row = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((-np.arange(len(values)), values, of_row))
    top = first[1:] - 1
    second = np.maximum(top - 1, first[:-1])
    return order[top], values[order[top]] - values[order[second]]


def medians(values: NDArray[np.float64], group: Int64Array, groups: int) -> NDArray[np.float64]:
    """Median of the values of each group, NaN where a group has none; ``group`` in any order."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    start = np.cumsum(count) - count
    out = np.full(groups, np.nan)
    has = count > 0
    low, high = start[has] + (count[has] - 1) // 2, start[has] + count[has] // 2
    ordered = values[order]
    out[has] = (ordered[low] + ordered[high]) / 2
    return out


def medians_of_others(values: Int64Array, group: Int64Array) -> tuple[Int64Array, Int64Array]:
    """For each row the median of the other rows of its group (rounded down), and how many these are.

    Rows that are alone in their group get 0.
    """
    order = np.lexsort((values, group))
    ordered = values[order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = group[order][1:] != group[order][:-1]
    index = np.arange(len(order))
    start = np.maximum.accumulate(np.where(fresh, index, 0))
    heads = np.flatnonzero(fresh)
    size = np.repeat(np.diff(np.append(heads, len(order))), np.diff(np.append(heads, len(order))))
    own = index - start
    others = size - 1

    def without_own(position: Int64Array) -> Int64Array:
        there = np.clip(start + position + (position >= own), 0, max(len(order) - 1, 0))
        return np.asarray(ordered[there])

    low, high = without_own(np.maximum(others - 1, 0) // 2), without_own(others // 2)
    # The sum of two large values must not run over.
    middle = np.where(others > 0, low + (high - low) // 2, 0)
    out, count = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
    out[order], count[order] = middle, others
    return out, count
