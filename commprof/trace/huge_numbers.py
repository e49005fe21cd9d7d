"""Numbers beyond what a double holds (``1e400``): JSON allows them, no profiler means them, and they are infinite."""

from __future__ import annotations

import re

import numpy as np

from commprof.trace.byte_pairs import PairSearch

_HUGE = re.compile(rb"[:\[,][ \t\r\n]*-?\d+(?:\.\d*)?[eE]\+?\d{3,}")
_REACH = 400
_LONG = re.compile(rb"[0-9]{200}")
_STRIDE = 16
_search = PairSearch()


def has_huge_number(text: bytes) -> bool:
    """Whether the JSON text may hold a number with an exponent of three digits or more."""
    data = np.frombuffer(text, np.uint8)
    for places in _search.digit_then_e(text):
        after = data[np.minimum(places + 2, len(data) - 1)]
        likely = places[((after - np.uint8(ord("0"))) < 10) | (after == ord("+"))]
        # What is left are also words such as 4e4m3 in names: look at each.
        if any(_HUGE.search(text, max(0, place - _REACH), place + 8) for place in likely.tolist()):
            return True
    return False


def has_long_number(text: bytes) -> bool:
    """Whether the text may hold 200 digits in a row, which may be more than a double holds without any exponent."""
    digits = (np.frombuffer(text, np.uint8)[::_STRIDE] - np.uint8(ord("0"))) < 10
    if len(digits) < 12:
        return _LONG.search(text) is not None
    # Of 200 digits in a row, a sample of every 16th byte holds twelve in a row.
    pairs = digits[:-1] & digits[1:]
    fours = pairs[:-2] & pairs[2:]
    twelves = fours[:-8] & fours[4:-4] & fours[8:]
    return bool(twelves.any()) and _LONG.search(text) is not None
