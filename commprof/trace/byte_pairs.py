"""Positions of two neighbouring bytes in megabytes of text, at the speed of memory.

The text is looked at in pieces that fit into the cache of a core, into arrays that are made once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 18

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


class PairSearch:
    """Reusable arrays for one thread; searches are generators of absolute positions of the first byte."""

    def __init__(self) -> None:
        self._first = np.empty(PIECE, np.bool_)
        self._second = np.empty(PIECE, np.bool_)
        self._third = np.empty(PIECE, np.bool_)
        self._scratch = np.empty(PIECE, np.uint8)

    def quote_then_colon(self, text: bytes) -> Iterator[tuple[NDArray[np.intp], bool]]:
        """Where a quote is followed by a colon; and whether anywhere in the piece white space is."""
        for offset, left, right in _pieces(text):
            one, two, three = self._first[: len(left)], self._second[: len(left)], self._third[: len(left)]
            np.equal(right, ord(":"), out=two)
            np.less_equal(left, ord(" "), out=three)
            np.logical_and(three, two, out=three)
            np.equal(left, ord('"'), out=one)
            np.logical_and(one, two, out=one)
            yield np.flatnonzero(one) + offset, bool(three.any())

    def digit_then_e(self, text: bytes) -> Iterator[NDArray[np.intp]]:
        """Where a digit is followed by ``e`` or ``E``."""
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
