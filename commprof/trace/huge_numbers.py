"""Numbers beyond what a double holds (``1e400``): JSON allows them, no profiler means them, and they are infinite."""

from __future__ import annotations

import re

import numpy as np

_HUGE = re.compile(rb"[:\[,][ \t\r\n]*-?\d+(?:\.\d*)?[eE]\+?\d{3,}")
_REACH = 400


def has_huge_number(text: bytes) -> bool:
    """Whether the JSON text may hold a number with an exponent of three digits or more."""
    data = np.frombuffer(text, np.uint8)
    if len(data) < 2:
        return False
    digit = (data[:-1] - np.uint8(ord("0"))) < 10
    places = np.flatnonzero(digit & ((data[1:] | np.uint8(0x20)) == ord("e")))
    after = data[np.minimum(places + 2, len(data) - 1)]
    places = places[((after - np.uint8(ord("0"))) < 10) | (after == ord("+"))]
    # What is left are also words such as 4e4m3 in names: look at each.
    return any(_HUGE.search(text, max(0, place - _REACH), place + 8) for place in places.tolist())
