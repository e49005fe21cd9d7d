"""The part of exposed time that is waiting: the first ``wait`` nanoseconds of a call, cut out of its exposed pieces."""

from __future__ import annotations

import numpy as np

from commprof.analysis.attribution import Pieces
from commprof.intervals import Int64Array

_EXACT = 1 << 62


def waiting_pieces(pieces: Pieces, start: Int64Array, wait: Int64Array) -> Int64Array:
    """Nanoseconds of each piece that lie in the wait of its call, shape ``(pieces,)``.

    ``start`` and ``wait`` are per call; a negative wait is unknown and counts as none. A piece that holds the end of a
    wait is cut in proportion, rounded down.
    """
    until = (start + np.maximum(wait, 0))[pieces.call] if len(pieces) else np.empty(0, np.int64)
    inside = np.clip(until - pieces.start, 0, pieces.end - pieces.start)
    length = np.maximum(pieces.end - pieces.start, 1)
    cut = (inside > 0) & (inside < length)
    out = np.where(inside > 0, pieces.ns, 0)
    safe = cut & (inside.astype(np.float64) * pieces.ns < _EXACT)
    out[safe] = inside[safe] * pieces.ns[safe] // length[safe]
    for index in np.flatnonzero(cut & ~safe).tolist():
        out[index] = int(inside[index]) * int(pieces.ns[index]) // int(length[index])
    return out


def exposed_until(pieces: Pieces, start: Int64Array, wait: Int64Array) -> Int64Array:
    """Exposed time of each call inside its wait, shape ``(calls,)``; -1 where the wait is unknown."""
    out = np.zeros(len(start), np.int64)
    np.add.at(out, pieces.call, waiting_pieces(pieces, start, wait))
    out[wait < 0] = -1
    return out
