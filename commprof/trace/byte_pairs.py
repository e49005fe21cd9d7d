"""Positions of bytes and of pairs of them in megabytes of text, at the speed of memory.

The text is looked at in pieces that fit into the cache of a core, into arrays that are made once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 18

Bytes = NDArray[np.uint8]


class PairSearch:
    """Reusable arrays for one thread; searches are generators of absolute positions."""

    def __init__(self) -> None:
        self._first = np.empty(PIECE, np.bool_)
        self._second = np.empty(PIECE, np.bool_)
        self._scratch = np.empty(PIECE, np.uint8)

    def colons(self, text: bytes) -> Iterator[NDArray[np.intp]]:
        """Where a colon is that has another byte before it."""
        for offset, left, right in _pieces(text):
            one = self._first[: len(left)]
            np.equal(right, ord(":"), out=one)
            yield np.flatnonzero(one) + (offset + 1)

    def digit_then_e(self, text: bytes) -> Iterator[NDArray[np.intp]]:
        """Where a digit is that ``e`` or ``E`` follows."""
        for offset, left, right in _pieces(text):
            one, two = self._first[: len(left)], self._second[: len(left)]
            scratch = self._scratch[: len(left)]
            np.subtract(left, ord("0"), out=scratch)
            np.less(scratch, 10, out=one)
            np.bitwise_or(right, 0x20, out=scratch)
            np.equal(scratch, ord("e"), out=two)
            np.logical_and(one, two, out=one)
            if one.any():
                yield np.flatnonzero(one) + offset


def _pieces(text: bytes) -> Iterator[tuple[int, Bytes, Bytes]]:
    data = np.frombuffer(text, np.uint8)
    for offset in range(0, len(data) - 1, PIECE):
        piece = data[offset : offset + PIECE + 1]
        yield offset, piece[:-1], piece[1:]
