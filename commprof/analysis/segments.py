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
