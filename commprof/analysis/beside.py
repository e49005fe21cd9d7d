"""Other communication beside a call: what shares the links of its ranks while it transfers."""

from __future__ import annotations

import numpy as np

from commprof.analysis.matching import Matching
from commprof.analysis.segments import largest
from commprof.intervals import Int64Array


def beside(found: Matching, transfer: Int64Array) -> Int64Array:
    """For every match how many other kinds of calls (group and operation) run on one of its ranks while it transfers,
    at the busiest rank; shape ``(matches,)``. ``transfer`` is nanoseconds before the end of each match.

    The calls of one group and operation come one after the other, so that each kind is one sharer of the link.
    """
    calls, rows = found.calls, found.rows
    if not len(found):
        return np.empty(0, np.int64)
    kind = calls.group * (int(calls.operation.max(initial=0)) + 1) + calls.operation
    ordinal = _numbered(calls.rank, kind)
    origin = int(calls.start.min())
    span = int(calls.end.max()) - origin + 1
    start, end = (calls.rank * span + times - origin for times in (calls.start, calls.end))
    last = end[rows]
    first = last - np.minimum(np.maximum(transfer[found.of_row], 1), calls.duration[rows])
    count = np.zeros(len(rows), np.int64)
    for number in range(int(ordinal.max()) + 1):
        mine = ordinal == number
        begun = np.searchsorted(np.sort(start[mine]), last, side="left")
        over = np.searchsorted(np.sort(end[mine]), first, side="right")
        count += (begun > over) & ~mine[rows]
    return largest(count, found.first)


def _numbered(rank: Int64Array, kind: Int64Array) -> Int64Array:
    """The kinds of each rank, numbered from 0 within the rank."""
    pairs, inverse = np.unique(np.stack([rank, kind]), axis=1, return_inverse=True)
    numbers: Int64Array = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    return numbers[inverse.reshape(-1)]
