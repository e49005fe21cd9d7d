"""Communication of a trace without a device: gloo on CPU.

Gloo runs a collective on threads of its own and shows it as one ``gloo:*`` span that holds queueing, waiting for peers
and transfer. Nothing links that span to the ``c10d::*`` operator that launched it but order and shape, and the
operator is what tells a reduce-scatter from the all-reduce that gloo makes of it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array
from commprof.trace.arguments import CallFacts, from_dims, list_sizes
from commprof.trace.call_table import Call, assemble
from commprof.trace.events import Args
from commprof.trace.gloo_groups import groups_by_order, groups_by_vote, groups_of_messages, recorded_calls, stated_size
from commprof.trace.gloo_pairs import NONE, Launched, Span, pair
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, Calls, CpuSpans, ProcessGroup, RankTrace
from commprof.trace.operations import operation_of


def gloo_rows(rank: RankTrace) -> Int64Array:
    """Rows of the annotations that are executions of gloo."""
    return np.flatnonzero(np.isin(rank.annotations.name, codes_of(rank, ("gloo:",))))


def gloo_calls(rank: RankTrace) -> Calls:
    """The calls of a CPU trace, in order of start."""
    spans, operators = _spans(rank), _operators(rank)
    pairs = pair(spans, operators, {})
    groups = _thread_groups(rank, spans, operators, pairs)
    if any(operator.facts.group_name is not None for operator in operators):
        # Calls of several groups may start in another order than they were launched; within a group they do not.
        pairs = pair(spans, operators, groups)
    calls: dict[int, Call] = {}
    for number, (span, place) in enumerate(zip(spans, pairs, strict=True)):
        key = place if place != NONE else -1 - number
        if key in calls:
            calls[key].start.append(span.start)
            calls[key].end.append(span.end)
            continue
        operator = operators[place] if place != NONE else None
        facts = span.facts if operator is None else _completed(operator.facts, span.facts)
        calls[key] = Call(
            _in_group(facts, groups.get(span.tid) if not span.is_message else None),
            "annotation",
            [span.start],
            [span.end],
            stream=span.tid,
            launched=NOT_LAUNCHED if operator is None else operator.start,
            issued=NOT_LAUNCHED if operator is None else operator.start,
            thread=0 if operator is None else operator.thread,
            has_metadata=facts.elements_in is not None or facts.elements_out is not None,
        )
    _place_messages(rank, list(calls.values()))
    return assemble(list(calls.values()), rank)


def _spans(rank: RankTrace) -> list[Span]:
    """Gloo's executions in order of start."""
    table = rank.annotations
    rows = gloo_rows(rank)
    spans = []
    for row in rows[np.argsort(table.start[rows], kind="stable")].tolist():
        name = rank.names[table.name[row]]
        args = table.args.get(row)
        facts = CallFacts(operation_of(name)) if args is None else from_dims(name, args)
        spans.append(Span(int(table.start[row]), int(table.end[row]), int(table.tid[row]), facts))
    return spans


def _operators(rank: RankTrace) -> list[Launched]:
    """Operators of collectives in order of launch, with what the Flight Recorder says of them."""
    table = rank.operators
    rows = np.flatnonzero(np.isin(table.name, codes_of(rank, ("c10d::",))))
    rows = rows[np.argsort(table.start[rows], kind="stable")]
    rows = rows[~_redispatched(table, rows)]
    thread = thread_keys(table.pid[rows], table.tid[rows]).tolist()
    start, end = table.start[rows].tolist(), table.end[rows].tolist()
    names = [rank.names[code] for code in table.name[rows].tolist()]
    told = []
    for name, row in zip(names, rows.tolist(), strict=True):
        args = table.args.get(row)
        told.append(CallFacts(operation_of(name)) if args is None else from_dims(name, args))
    recorded = recorded_calls(rank.flight, rank.base_ns, start, end, [facts.operation for facts in told])
    operators = []
    for place, (name, facts) in enumerate(zip(names, told, strict=True)):
        entry = recorded.get(place)
        if entry is not None:
            facts = replace(
                facts,
                elements_in=entry.elements_in if facts.elements_in is None else facts.elements_in,
                elements_out=entry.elements_out if facts.elements_out is None else facts.elements_out,
                dtype=facts.dtype or entry.dtype,
                sequence=entry.sequence,
                group_name=entry.group,
            )
        pieces = _pieces(name, facts, table.args.get(int(rows[place])), rank)
        operators.append(Launched(start[place], thread[place], facts, pieces))
    return operators


def _redispatched(table: CpuSpans, rows: Int64Array) -> NDArray[np.bool_]:
    """Operators inside one of the same name on their thread: a dispatch mode (``CommDebugMode``) calls each again."""
    inside = np.zeros(len(rows), np.bool_)
    until: dict[tuple[int, int, int], int] = {}
    columns = (table.pid[rows], table.tid[rows], table.name[rows], table.start[rows], table.end[rows])
    for index, (pid, tid, name, start, end) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        key = (pid, tid, name)
        inside[index] = start < until.get(key, start)
        until[key] = max(end, until.get(key, end))
    return inside


def _pieces(name: str, facts: CallFacts, args: Args | None, rank: RankTrace) -> tuple[int | None, ...]:
    """Elements of the spans that gloo makes of an operator: an all-reduce for each part of some reduce-scatters."""
    if name == "c10d::reduce_scatter_":
        # The list form becomes one for each member; its own shapes show no list of lists.
        several = [group.size for group in rank.groups if group.size is None or group.size > 1]
        only = several[0] if len(several) == 1 else None
        return (facts.elements_out,) * (stated_size(facts) or only or rank.world_size or 1)
    if name == "c10d::reduce_scatter_tensor_coalesced_" and args is not None:
        return list_sizes(args, 1) or (facts.elements_in,)
    return (facts.elements_in,)


def _thread_groups(
    rank: RankTrace, spans: list[Span], operators: list[Launched], pairs: list[int]
) -> dict[int, ProcessGroup]:
    """The group that each thread of gloo works for."""
    threads = {span.tid for span in spans if not span.is_message}
    several = [group for group in rank.groups if group.size is None or group.size > 1]
    if len(several) == 1:
        return dict.fromkeys(threads, several[0])
    votes: dict[int, Counter[str]] = defaultdict(Counter)
    sizes: dict[int, set[int]] = defaultdict(set)
    places: Counter[int] = Counter()
    for span, place in zip(spans, pairs, strict=True):
        if place == NONE or span.is_message:
            continue
        facts = operators[place].facts
        if facts.group_name is not None:
            votes[span.tid][facts.group_name] += 1
        size = stated_size(facts)
        if size is not None:
            sizes[span.tid].add(size)
        places[span.tid] = max(places[span.tid], facts.root_place or 0)
    return groups_by_vote(votes, rank.groups) or groups_by_order(threads, sizes, places, rank.groups)


def _place_messages(rank: RankTrace, calls: list[Call]) -> None:
    """Name the group of sends and receives, which run on the caller's thread."""
    with_collectives = {call.facts.group_name or "" for call in calls}
    messages = [call for call in calls if call.facts.operation in ("send", "recv")]
    places = [call.facts.peer_place for call in messages]
    found = groups_of_messages(places, rank.rank, rank.groups, with_collectives)
    for call, group in zip(messages, found, strict=True):
        call.facts = _in_group(call.facts, group)


def _completed(facts: CallFacts, span: CallFacts) -> CallFacts:
    """The operator's facts; gloo's own say what type and how much where the operator does not."""
    if facts.dtype is None and span.dtype is not None:
        facts = replace(facts, dtype=span.dtype)
    if facts.elements_in is None and facts.elements_out is None and facts.operation == span.operation:
        facts = replace(facts, elements_in=span.elements_in)
    return facts


def _in_group(facts: CallFacts, group: ProcessGroup | None) -> CallFacts:
    if facts.group_name is not None or group is None:
        return facts
    return replace(
        facts,
        group_name=group.name,
        group_description=group.description or None,
        group_ranks=None if group.ranks is None else str(list(group.ranks)),
        group_size=group.size,
    )


def codes_of(rank: RankTrace, prefixes: tuple[str, ...]) -> list[int]:
    """Indices of the names of a rank that begin so."""
    return [code for code, name in enumerate(rank.names) if name.startswith(prefixes)]
