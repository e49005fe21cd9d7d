"""Communication and compute of a trace without a device: gloo on CPU.

Gloo runs a collective on threads of its own and shows it as one ``gloo:*`` span that holds queueing, waiting for peers
and transfer. Nothing links that span to the ``c10d::*`` operator that launched it but order and shape, and the
operator is what tells a reduce-scatter from the all-reduce that gloo makes of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.arguments import CallFacts, from_dims
from commprof.trace.call_table import Call, assemble
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, Calls, CpuSpans, RankTrace
from commprof.trace.operations import operation_of

_WRAPPER = re.compile(
    r"^(?:autograd::engine::evaluate_function|torch::autograd::|torch\.distributed\.|ProfilerStep)|Backward\d+$"
)
_WORKING_THREAD = ("ProfilerStep", "autograd::engine::")
_DISPATCH = ("c10d::", "_c10d_functional::")


@dataclass(slots=True)
class _Launched:
    """One ``c10d::*`` operator and how many of its gloo spans have not been seen yet."""

    start: int
    thread: int
    facts: CallFacts
    pieces: int
    remaining: int
    call: Call | None = None

    def fits(self, span: CallFacts) -> bool:
        """Whether a span of that shape can be this operator's; unknown shapes fit anything."""
        mine, other = self.facts.elements_in, span.elements_in
        if mine is None or other is None or self.facts.operation in ("send", "recv"):
            return True
        return mine == other * self.pieces


def gloo_rows(rank: RankTrace) -> Int64Array:
    """Rows of the annotations that are executions of gloo."""
    return np.flatnonzero(np.isin(rank.annotations.name, _codes(rank, ("gloo:",))))


def gloo_calls(rank: RankTrace) -> Calls:
    """The calls of a CPU trace, in order of start."""
    spans = rank.annotations
    waiting = _launched_operators(rank)
    group = _only_group(rank)
    calls: list[Call] = []
    rows = gloo_rows(rank)
    for row in rows[np.argsort(spans.start[rows], kind="stable")].tolist():
        name = rank.names[spans.name[row]]
        args = spans.args.get(row)
        own = CallFacts(operation_of(name)) if args is None else from_dims(name, args)
        start, end = int(spans.start[row]), int(spans.end[row])
        operator = _launcher(waiting[own.operation], own, start)
        if operator is not None and operator.call is not None:
            operator.call.start.append(start)
            operator.call.end.append(end)
            continue
        facts = own if operator is None else replace(operator.facts, dtype=operator.facts.dtype or own.dtype)
        call = Call(
            replace(facts, **group),
            "annotation",
            [start],
            [end],
            stream=int(spans.tid[row]),
            launched=NOT_LAUNCHED if operator is None else operator.start,
            issued=NOT_LAUNCHED if operator is None else operator.start,
            thread=0 if operator is None else operator.thread,
            has_metadata=facts.elements_in is not None,
        )
        calls.append(call)
        if operator is not None:
            operator.call = call
    return assemble(calls, rank)


def _launched_operators(rank: RankTrace) -> dict[str, list[_Launched]]:
    """Operators in order of launch, by gloo's own word for what they become (a reduce-scatter runs as all-reduce)."""
    table = rank.operators
    rows = np.flatnonzero(np.isin(table.name, _codes(rank, ("c10d::",))))
    thread = thread_keys(table.pid, table.tid)
    waiting: dict[str, list[_Launched]] = defaultdict(list)
    for row in rows[np.argsort(table.start[rows], kind="stable")].tolist():
        name = rank.names[table.name[row]]
        args = table.args.get(row)
        facts = CallFacts(operation_of(name)) if args is None else from_dims(name, args)
        # The list form of a reduce-scatter becomes one all-reduce per chunk, as many as there are ranks.
        pieces = (rank.world_size or 1) if name == "c10d::reduce_scatter_" else 1
        runs_as = "all_reduce" if facts.operation == "reduce_scatter" else facts.operation
        waiting[runs_as].append(_Launched(int(table.start[row]), int(thread[row]), facts, pieces, pieces))
    return waiting


def _launcher(queue: list[_Launched], span: CallFacts, start: int) -> _Launched | None:
    """The first operator of that shape that was launched before the span started and still waits for one."""
    for index, operator in enumerate(queue):
        if operator.start > start:
            return None
        if operator.fits(span):
            operator.remaining -= 1
            if not operator.remaining:
                del queue[index]
            return operator
    return None


def _only_group(rank: RankTrace) -> dict[str, Any]:
    """Group facts for every call where the rank is in one group alone; gloo's events name none."""
    several = [group for group in rank.groups if group.size is None or group.size > 1]
    if len(several) != 1:
        return {}
    group = several[0]
    ranks = None if group.ranks is None else list(group.ranks)
    return {
        "group_name": group.name,
        "group_description": group.description or None,
        "group_ranks": ranks,
        "group_size": group.size,
    }


def cpu_compute(rank: RankTrace) -> IntervalSet:
    """Instants at which the training threads of a CPU trace compute.

    The union of their operators without wrappers, which hold blocking hooks, less the calls that launch or await
    communication.
    """
    table = rank.operators
    if not len(table):
        return empty()
    thread = thread_keys(table.pid, table.tid)
    working = np.isin(thread, _working_threads(rank, thread))
    wrapper = np.isin(table.name, [code for code, name in enumerate(rank.names) if _WRAPPER.search(name)])
    dispatch = np.isin(table.name, _codes(rank, _DISPATCH))
    counted = working & ~wrapper & ~dispatch
    return union(table.start[counted], table.end[counted]) - union(
        table.start[working & dispatch], table.end[working & dispatch]
    )


def _working_threads(rank: RankTrace, thread: Int64Array) -> Int64Array:
    """Threads with step marks or the autograd engine; without any, the one with the most time in operators."""
    marks = _codes(rank, _WORKING_THREAD)
    found = []
    tables: tuple[CpuSpans, ...] = (rank.operators, rank.annotations)
    for table in tables:
        rows = np.isin(table.name, marks)
        found.append(thread_keys(table.pid[rows], table.tid[rows]))
    threads = np.unique(np.concatenate(found))
    if len(threads):
        return threads
    keys, inverse = np.unique(thread, return_inverse=True)
    busy = np.zeros(len(keys), np.int64)
    np.add.at(busy, inverse, rank.operators.end - rank.operators.start)
    return keys[[int(busy.argmax())]]


def _codes(rank: RankTrace, prefixes: tuple[str, ...]) -> list[int]:
    return [code for code, name in enumerate(rank.names) if name.startswith(prefixes)]
