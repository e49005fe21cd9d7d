"""Columns in little space: how they wait for the end of the file, and how they come out of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """Numbers as what they are above the smallest of them: neighbours in a file have times and ids close together.

    ``above`` has as few bytes as the largest needs, and is one number for all rows where they are equal.
    """

    base: int
    above: NDArray[Any]

    def __len__(self) -> int:
        return len(self.above)

    def wide(self) -> Int64Array:
        """The numbers."""
        out = self.above.astype(np.int64)
        out += self.base
        return out


def packed(values: NDArray[Any]) -> Packed:
    """The same numbers in little space: millions of rows wait in this form for the end of the file."""
    if not len(values):
        return Packed(0, np.empty(0, np.uint8))
    low, high = int(values.min()), int(values.max())
    if low == high:
        return Packed(low, np.broadcast_to(np.uint8(0), values.shape))
    for width in (np.uint8, np.uint16, np.uint32):
        if high - low <= np.iinfo(width).max:
            return Packed(low, (values.astype(np.int64, copy=False) - low).astype(width))
    return Packed(0, values)


def merged(parts: Sequence[Packed]) -> Packed:
    """All pieces of a column as one."""
    return parts[0] if len(parts) == 1 else packed(joined(parts, np.int64))


def joined(parts: Sequence[Packed], dtype: type[np.generic]) -> NDArray[Any]:
    """One column of its pieces; where the same number stands everywhere, as one of them that is not to be written."""
    filled = [part for part in parts if len(part)]
    if not filled:
        return np.empty(0, dtype)
    rows = sum(map(len, filled))
    if all(part.above.strides == (0,) for part in filled) and len({part.base for part in filled}) == 1:
        return np.broadcast_to(np.array(filled[0].base).astype(dtype), (rows,))
    out, first = np.empty(rows, dtype), 0
    for part in filled:
        out[first : first + len(part)] = part.wide()
        first += len(part)
    return out
