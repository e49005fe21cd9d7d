"""Batches of messages in one kernel (``batch_isend_irecv``): which batches meet, and how long each waits.

A batch is done when all of its messages are, so it is matched message by message: the n-th from one rank to another is
the same at both ends, whatever batch or single call it is part of. Batches joined by messages are one match.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commprof.analysis.all_calls import AllCalls
from commprof.analysis.codes import codes, operation_is
from commprof.analysis.model import Analysis
from commprof.intervals import Int64Array

EXCHANGE = -2
"""Stands for the source and the sink of a match that holds messages in several directions."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a row: to (``sent``) or from the rank ``peer``."""

    row: int
    peer: int
    sent: bool


@dataclass(slots=True, eq=False)
class Exchanges:
    """``component`` per row (-1: not part of any), rows of one number meet; ``missing`` are components with partners
    that the input lacks, ``broken`` those whose partner in the input has no such message. ``group`` per component."""

    component: Int64Array
    missing: set[int]
    broken: set[int]
    group: dict[int, int]


def messages_of(analysis: Analysis, calls: AllCalls, row: int) -> list[Message]:
    """The messages of one call: one of a send or receive, as many as there are of a batch."""
    send, receive = codes("send", "recv")
    operation, peer = int(calls.operation[row]), int(calls.peer[row])
    rank = int(calls.rank[row])
    batch = analysis.ranks[rank].calls.partners.get(row - int(calls.first[rank]))
    if batch is None:
        return [Message(row, peer, operation == send)] if operation in (send, receive) and peer >= 0 else []
    out = []
    for other, given, got in batch:
        if other < 0:
            return []
        out += [Message(row, other, True)] * (given > 0) + [Message(row, other, False)] * (got > 0)
    return out


def find_exchanges(analysis: Analysis, calls: AllCalls, compared: Int64Array, step: Int64Array) -> Exchanges | None:
    """Join the calls of the ``compared`` ranks in every group that uses batches; ``None`` without any."""
    batched = [
        int(calls.first[rank]) + call
        for rank in compared.tolist()
        for call in analysis.ranks[rank].calls.partners
    ]  # fmt: skip
    if not batched:
        return None
    groups = np.unique(calls.group[batched])
    rows = np.flatnonzero(
        operation_is(calls.operation, "send", "recv", "send_recv")
        & np.isin(calls.group, groups)
        & np.isin(calls.rank, compared)
    )  # fmt: skip
    rows = rows[np.lexsort((calls.order[rows], calls.rank[rows]))]
    count: dict[tuple[int, ...], int] = defaultdict(int)
    ends: dict[tuple[int, ...], list[Message]] = defaultdict(list)
    have = set(calls.numbers[compared].tolist())
    for row in rows.tolist():
        me = int(calls.numbers[calls.rank[row]])
        for message in messages_of(analysis, calls, row):
            source, sink = (me, message.peer) if message.sent else (message.peer, me)
            lane = (int(calls.group[row]), int(step[row]), source, sink, int(message.sent))
            ends[(*lane[:4], count[lane])].append(message)
            count[lane] += 1
    return _joined(calls, ends, have)


def _joined(calls: AllCalls, ends: dict[tuple[int, ...], list[Message]], have: set[int]) -> Exchanges:
    parent: dict[int, int] = {}

    def root(row: int) -> int:
        while parent.setdefault(row, row) != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    alone: list[tuple[int, bool]] = []
    for messages in ends.values():
        rows = {message.row for message in messages}
        first = root(min(rows))
        for row in rows:
            parent[root(row)] = first
        if len(messages) < 2:
            alone.append((messages[0].row, messages[0].peer in have))
    component = np.full(len(calls), -1, np.int64)
    numbers: dict[int, int] = {}
    for row in parent:
        component[row] = numbers.setdefault(root(row), len(numbers))
    missing = {int(component[row]) for row, there in alone if not there}
    broken = {int(component[row]) for row, there in alone if there}
    group = {int(component[row]): int(calls.group[row]) for row in parent}
    return Exchanges(component, missing, broken, group)


def exchange_waits(
    analysis: Analysis, calls: AllCalls, rows: Int64Array, arrival: Int64Array, finish: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Wait of every row of one match, and who waited longest for each row; clocks are aligned.

    A rank waits until the last of its sources has entered, and for a sink if that entered before the rank was done.
    """
    place = {int(calls.numbers[calls.rank[row]]): index for index, row in enumerate(rows.tolist())}
    wait, caused = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for index, row in enumerate(rows.tolist()):
        for message in messages_of(analysis, calls, row):
            other = place.get(message.peer)
            if other is None or (message.sent and arrival[other] >= finish[index]):
                continue
            late = int(arrival[other] - arrival[index])
            wait[index] = max(int(wait[index]), late)
            caused[other] = max(int(caused[other]), late)
    return np.minimum(wait, calls.duration[rows]), caused
