"""Columns in little space: how they wait for the end of the file, and how they come out of that."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """A column as it waits; the starts stay as wide as their sums with durations."""
    return values if name == "start" else _compact(values)


def _compact(values: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in little space: millions of rows wait in this form for the end of the file."""
    if not len(values):
        return values
    low, high = int(values.min()), int(values.max())
    for width in (np.int8, np.int16, np.int32):
        if np.iinfo(width).min <= low and high <= np.iinfo(width).max:
            # Of the same number over and over, one is enough.
            return np.broadcast_to(width(low), values.shape) if low == high else values.astype(width)
    return values


def joined(parts: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    """One column of its pieces; where the same number stands everywhere, as one of them that is not to be written."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return np.empty(0, dtype)
    if all(part.strides == (0,) for part in filled) and len({int(part[0]) for part in filled}) == 1:
        return np.broadcast_to(filled[0][:1].astype(dtype), (sum(map(len, filled)),))
    return np.concatenate(filled, dtype=dtype, casting="unsafe")
