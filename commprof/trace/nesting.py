"""How deep the values of an event are nested: deeper than any profiler writes them, the event cannot be read.

The parsers give up at a depth that depends on how deep the caller of this library itself stands. So that the same file
always reads the same, the limit is one of our own, far below theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

DEEPEST = 400
"""Lists and objects that may lie in each other, that of the event included."""

_AROUND = 4
"""Levels that may be outside of a piece of text between two events: the list of events, the event, its arguments."""

_NO_BRACKET = re.compile(rb'"(?>[^"\\]+|\\.)*+"?|[^\[\]{}"]+', re.DOTALL)


def too_deep(text: bytes | str) -> bool:
    """Whether the JSON text of one value is nested deeper than :data:`DEEPEST`."""
    if text.count("[") + text.count("{") <= DEEPEST if isinstance(text, str) else _few(text, 0, len(text), DEEPEST):
        return False
    return _depth(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text) > DEEPEST


def may_be_too_deep(text: bytes, phases: Sequence[NDArray[np.intp]]) -> bool:
    """Whether some event of a batch may be nested too deep; ``phases`` are the places of the ``ph`` of each.

    Such an event is long: one bracket opens each level and one closes it, and no ``ph`` stands between them.
    """
    limit = DEEPEST - _AROUND
    places = np.concatenate([[0], *phases, [len(text)]])
    for gap in np.flatnonzero(np.diff(places) >= 2 * limit).tolist():
        start, end = int(places[gap]), int(places[gap + 1])
        # The text begins behind a key: the quote that closes it would seem to open a string.
        if not _few(text, start, end, limit) and _depth(text[start + bool(gap) : end]) > limit:
            return True
    return False


def _few(text: bytes, start: int, end: int, limit: int) -> bool:
    return text.count(b"[", start, end) + text.count(b"{", start, end) <= limit


def _depth(text: bytes) -> int:
    brackets = np.frombuffer(_NO_BRACKET.sub(b"", text), np.uint8)
    # Of the bits of [ { and ] } one tells which way it goes.
    return int(np.cumsum((brackets & 2).astype(np.int64) - 1).max(initial=0))
