"""Other communication beside a call: what shares the links of its ranks while it transfers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.matching import Matching
from commprof.analysis.segments import largest
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_OUT, _IN = 1, 2


def beside(found: Matching, transfer: Int64Array) -> Int64Array:
    """For every match how many other kinds of calls (group and operation) run on one of its ranks while it transfers,
    at the busiest rank; shape ``(matches,)``. ``transfer`` is nanoseconds before the end of each match.

    The calls of one group and operation come one after the other, so that each kind is one sharer of the link. Links
    carry both directions at once: what a rank sends and what it receives do not share.
    """
    calls, rows = found.calls, found.rows
    if not len(found):
        return np.empty(0, np.int64)
    kind = calls.group * len(OPERATIONS) + calls.operation
    ordinal = _numbered(calls.rank, kind)
    origin = int(calls.start.min())
    span = int(calls.end.max()) - origin + 1
    start, end = (calls.rank * span + times - origin for times in (calls.start, calls.end))
    last = end[rows]
    first = last - np.minimum(np.maximum(transfer[found.of_row], 1), calls.duration[rows])
    count = np.zeros(len(rows), np.int64)
    way = _ways(calls.operation)
    for number in range(int(ordinal.max()) + 1):
        mine = ordinal == number
        for ways in (_OUT, _IN, _OUT | _IN):
            one = mine & (way == ways)
            begun = np.searchsorted(np.sort(start[one]), last, side="left")
            over = np.searchsorted(np.sort(end[one]), first, side="right")
            count += (begun > over) & ~mine[rows] & ((way[rows] & ways) > 0)
    return largest(count, found.first)


def _ways(operation: NDArray[np.integer]) -> NDArray[np.int8]:
    """The directions of its rank's link that each call takes: a send and a receive one each, all others both."""
    way = np.full(len(OPERATIONS), _OUT | _IN, np.int8)
    way[OPERATIONS.index("send")], way[OPERATIONS.index("recv")] = _OUT, _IN
    return np.asarray(way[operation])


def _numbered(rank: Int64Array, kind: Int64Array) -> Int64Array:
    """The kinds of each rank, numbered from 0 within the rank."""
    pairs, inverse = np.unique(np.stack([rank, kind]), axis=1, return_inverse=True)
    numbers: Int64Array = np.arange(pairs.shape[1]) - np.searchsorted(pairs[0], pairs[0])
    return numbers[inverse.reshape(-1)]
