"""Lanes: the sequences of calls within which calls of different ranks can be one and the same.

A lane is a process group for collectives, and a pair of sender and receiver within a group for point-to-point calls,
whose own numbering counts the calls with all peers and so differs at both ends.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import AllCalls
from commprof.analysis.codes import codes, operation_is
from commprof.intervals import Int64Array
from commprof.trace.model import NO_ID

NO_LANE = -1
_BY_TURN = ("all_to_all", "gather", "scatter", "broadcast", "reduce")
"""Operations in which ranks may state different sizes for one call."""


@dataclass(slots=True, eq=False)
class Lanes:
    """``lane`` per row (:data:`NO_LANE`: can be matched with nothing); per lane the group, and for point-to-point the
    sender and receiver (-1 for collectives), and whether its calls carry sequence numbers that count for all ranks."""

    lane: Int64Array
    group: Int64Array
    source: Int64Array
    sink: Int64Array
    numbered: NDArray[np.bool_]
    compared: Int64Array
    """Indices of the ranks whose calls are matched."""

    def __len__(self) -> int:
        return len(self.group)

    def leave_out(self, calls: AllCalls, ranks: Collection[int]) -> None:
        """Match no call of these ranks."""
        self.lane[np.isin(calls.rank, list(ranks))] = NO_LANE
        self.compared = np.setdiff1d(self.compared, list(ranks))

    def append(self, group: Int64Array, source: Int64Array, sink: Int64Array) -> None:
        """Add lanes without numbers."""
        for name, more in (("group", group), ("source", source), ("sink", sink)):
            setattr(self, name, np.concatenate([getattr(self, name), np.asarray(more, np.int64)]))
        self.numbered = np.concatenate([self.numbered, np.zeros(len(group), np.bool_)])


def find_lanes(calls: AllCalls) -> Lanes:
    """The lane of every call."""
    send, receive, grouped = (calls.operation == code for code in codes("send", "recv", "send_recv"))
    one_way = (send | receive) & (calls.peer >= 0)
    collective = ~(send | receive | grouped) & (calls.group >= 0)
    me = calls.numbers[calls.rank]
    source = np.where(one_way, np.where(send, me, calls.peer), -1)
    sink = np.where(one_way, np.where(send, calls.peer, me), -1)
    numbered = collective & (calls.sequence != NO_ID)
    rows = np.flatnonzero(one_way | collective)
    lane = np.full(len(calls), NO_LANE, np.int64)
    columns = (numbered, sink, source, calls.group, one_way)
    order = rows[np.lexsort(tuple(column[rows] for column in columns))]
    fresh = changes(*(column[order] for column in columns))
    lane[order] = np.cumsum(fresh) - 1
    first = order[fresh]
    compared = np.arange(len(calls.numbers))
    return Lanes(lane, calls.group[first], source[first], sink[first], numbered[first], compared)


def changes(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Where any of the columns differs from the row before; the first row always does."""
    out = np.ones(len(columns[0]), np.bool_)
    if len(out) > 1:
        out[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return out


def count_within(fresh: NDArray[np.bool_]) -> Int64Array:
    """Place of each row since the last fresh one."""
    index = np.arange(len(fresh))
    return index - np.maximum.accumulate(np.where(fresh, index, 0))


def kinds_of(calls: AllCalls) -> Int64Array:
    """A number per row, equal for calls of one operation, type and size; both ends of a message have the same."""
    operation = calls.operation.astype(np.int64)
    send, receive = codes("send", "recv")
    operation[operation == receive] = send
    size = np.where(operation_is(operation, *_BY_TURN), -2, calls.size)
    columns = (size, calls.dtype, operation)
    order = np.lexsort(columns)
    kind = np.empty(len(calls), np.int64)
    kind[order] = np.cumsum(changes(*(column[order] for column in columns)))
    return kind
