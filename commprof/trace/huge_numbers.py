"""Numbers beyond what a double holds (``1e400``): JSON allows them, no profiler means them, and they are infinite."""

from __future__ import annotations

import re

import numpy as np

from commprof.trace.byte_pairs import PairSearch

_HUGE = re.compile(rb"[:\[,][ \t\r\n]*-?\d+(?:\.\d*)?[eE]\+?\d{3,}")
_REACH = 400
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
