"""Communication kernels to calls: one row per collective or point-to-point call, whatever number of kernels it took."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, union
from commprof.trace.arguments import CallFacts, from_dims, from_metadata
from commprof.trace.classify import Classification
from commprof.trace.kernel_names import rule_for
from commprof.trace.links import NONE, SpanIndex, index_spans, thread_keys
from commprof.trace.metadata import parse_ranks
from commprof.trace.model import (
    COMM,
    NO_ID,
    NOT_LAUNCHED,
    SOURCES,
    UNKNOWN_SIZE,
    Calls,
    CpuSpans,
    GroupFacts,
    ProcessGroup,
    RankTrace,
)  # fmt: skip
from commprof.trace.operations import OPERATIONS, element_bytes, operation_of, standard_dtype


@dataclass(slots=True)
class Call:
    """One call while it is put together: its facts, where they came from, and its pieces on the device."""

    facts: CallFacts
    source: str
    start: list[int]
    end: list[int]
    device: int = 0
    stream: int = 0
    channels: int = -1
    launched: int = NOT_LAUNCHED
    issued: int = NOT_LAUNCHED
    thread: int = 0
    copy_engine: bool = False
    sync: bool = False
    fused: bool = False
    graph: bool = False
    has_metadata: bool = False


def device_calls(rank: RankTrace, kinds: Classification, launches: Int64Array) -> Calls:
    """The calls of a trace with device events, in order of start (ties: stream, then the order of the file)."""
    rows = np.flatnonzero((kinds.kind == COMM) | kinds.fused)
    device = rank.device
    order = np.lexsort((rows, device.stream[rows], device.start[rows]))
    graph = graph_rows(rank, launches)
    describe = _Describer(rank, kinds, launches)
    calls: dict[object, Call] = {}
    for row in rows[order].tolist():
        key = _call_key(rank, kinds, graph, row, launches)
        call = calls.get(key)
        if call is None:
            calls[key] = describe.call(row, bool(graph[row]))
            continue
        call.start.append(int(device.start[row]))
        call.end.append(int(device.end[row]))
        call.channels = max(call.channels, int(device.blocks[row]))
    return assemble(list(calls.values()), rank)


def graph_rows(rank: RankTrace, launches: Int64Array) -> NDArray[np.bool_]:
    """Kernels that a CUDA graph replayed: they share a launch, an operator and an id without being one call."""
    launch_names = {code for code, name in enumerate(rank.names) if "GraphLaunch" in name}
    graph = rank.device.graph_node.copy()
    linked = launches != NONE
    graph[linked] |= np.isin(rank.runtime.name[launches[linked]], list(launch_names))
    return graph


def _call_key(
    rank: RankTrace, kinds: Classification, graph: NDArray[np.bool_], row: int, launches: Int64Array
) -> object:
    if graph[row] or kinds.fused[row]:
        return row
    if row in kinds.operator:
        return ("operator", kinds.operator[row])
    external = int(rank.device.external_id[row])
    if external > 0 and external != rank.device.correlation[row] and launches[row] == NONE:
        return ("external id", external)
    return row


class _Describer:
    """Finds what is known about the call that a device row belongs to."""

    def __init__(self, rank: RankTrace, kinds: Classification, launches: Int64Array) -> None:
        self._rank = rank
        self._kinds = kinds
        self._launches = launches
        self._annotations: SpanIndex | None = None
        self._operators: SpanIndex | None = None

    def call(self, row: int, graph: bool) -> Call:
        device, kinds = self._rank.device, self._kinds
        facts, source = self._facts(row)
        launch = self._launches[row]
        issued, thread = self._issued(row)
        return Call(
            facts,
            source,
            [int(device.start[row])],
            [int(device.end[row])],
            device=int(device.device[row]),
            stream=int(device.stream[row]),
            channels=int(device.blocks[row]),
            launched=NOT_LAUNCHED if launch == NONE or graph else int(self._rank.runtime.start[launch]),
            issued=NOT_LAUNCHED if graph else issued,
            thread=thread,
            copy_engine=bool(device.is_copy_row[row]),
            sync=bool(kinds.sync[row]),
            fused=bool(kinds.fused[row]),
            graph=graph,
            has_metadata=source in ("metadata", "link"),
        )

    def _issued(self, row: int) -> tuple[int, int]:
        """When and on which thread the CPU enqueued a row: by its launch, else by its operator."""
        launch, calls = self._launches[row], self._rank.runtime
        if launch != NONE:
            return int(calls.start[launch]), int(thread_keys(calls.pid[[launch]], calls.tid[[launch]])[0])
        operators, operator = self._rank.operators, self._kinds.operator.get(row)
        if operator is None:
            return NOT_LAUNCHED, 0
        thread = thread_keys(operators.pid[[operator]], operators.tid[[operator]])
        return int(operators.start[operator]), int(thread[0])

    def _facts(self, row: int) -> tuple[CallFacts, str]:
        rank = self._rank
        args = rank.device.args.get(row)
        operator = self._kinds.operator.get(row)
        launcher = None if operator is None else rank.operators.args.get(operator)
        told = None if launcher is None or launcher.collective is None else from_metadata(launcher)
        if args is not None and args.collective is not None:
            facts = from_metadata(args)
            # The root of a broadcast stands on the operator alone.
            return replace(facts, root=told.root) if told and facts.root is None else facts, "metadata"
        if told is not None:
            return told, "link"
        found = self._from_cpu(row, operator)
        if found is not None:
            return found, "annotation"
        name = rank.names[rank.device.name[row]]
        rule = rule_for(name)
        if self._kinds.by_pattern[row]:
            return CallFacts(operation_of(name)), "pattern"
        if operator is not None and rule is None:
            return CallFacts("unknown"), "link"
        return CallFacts(rule[1] if rule else "unknown"), "name"

    def _from_cpu(self, row: int, operator: int | None) -> CallFacts | None:
        """From the ``nccl:*`` annotation around the launch, completed by the ``c10d::*`` operator around both."""
        rank = self._rank
        launch = self._launches[row]
        if launch != NONE:
            calls = rank.runtime
            thread = int(thread_keys(calls.pid[[launch]], calls.tid[[launch]])[0])
            instant = int(calls.start[launch])
        elif operator is not None:
            thread = int(thread_keys(rank.operators.pid[[operator]], rank.operators.tid[[operator]])[0])
            instant = int(rank.operators.start[operator])
        else:
            return None
        if self._annotations is None:
            self._annotations = self._index(rank.annotations, ("nccl:", "xccl:"))
            self._operators = self._index(rank.operators, ("c10d::",))
        assert self._operators is not None
        found = []
        for index, table in ((self._annotations, rank.annotations), (self._operators, rank.operators)):
            span = index.innermost(thread, instant)
            if span != NONE and span in table.args:
                found.append(from_dims(rank.names[table.name[span]], table.args[span]))
        if not found:
            return None
        first = found[0]
        for other in found[1:]:
            first = _completed(first, other)
        return first

    def _index(self, table: CpuSpans, prefixes: tuple[str, ...]) -> SpanIndex:
        codes = [code for code, name in enumerate(self._rank.names) if name.startswith(prefixes)]
        return index_spans(table, np.flatnonzero(np.isin(table.name, codes)))


def _completed(facts: CallFacts, other: CallFacts) -> CallFacts:
    """What the annotation does not say, from the operator, as long as both speak of one operation."""
    if facts.operation == "unknown":
        return other
    if other.operation not in (facts.operation, "unknown"):
        return facts
    return replace(
        facts,
        elements_in=facts.elements_in or other.elements_in,
        elements_out=facts.elements_out or other.elements_out,
        dtype=facts.dtype or other.dtype,
    )


@dataclass(slots=True)
class _Groups:
    """Distinct groups of one rank, completed from ``distributedInfo.pg_config``."""

    rank: RankTrace
    known: dict[object, int] = field(default_factory=dict)
    facts: list[GroupFacts] = field(default_factory=list)

    def index(self, call: CallFacts) -> int:
        if call.group_name is None and call.group_ranks is None:
            return -1
        key = (call.group_name, str(call.group_ranks), call.group_size)
        if key not in self.known:
            facts = self._facts(call)
            if facts in self.facts:
                self.known[key] = self.facts.index(facts)
            else:
                self.known[key] = len(self.facts)
                self.facts.append(facts)
        return self.known[key]

    def _facts(self, call: CallFacts) -> GroupFacts:
        entry = self._entry(call.group_name)
        ranks = parse_ranks(call.group_ranks)
        partly = isinstance(call.group_ranks, str) and "..." in call.group_ranks
        if ranks is None and entry and entry.ranks and call.group_size in (None, len(entry.ranks)):
            # The profiler writes at most thirty members; the configuration at the head of the file has them all.
            ranks = entry.ranks
        size = call.group_size or (len(ranks) if ranks else entry.size if entry else None)
        description = call.group_description or (entry.description if entry else None)
        members = "known" if ranks else "partly" if partly else "unknown"
        return GroupFacts(call.group_name, description or None, ranks, size, members)

    def _entry(self, name: str | None) -> ProcessGroup | None:
        if name is None:
            return None
        return next((group for group in self.rank.groups if group.name == name), None)


def assemble(calls: list[Call], rank: RankTrace) -> Calls:
    """The table of finished calls, in order of start, stream and appearance."""
    calls = sorted(calls, key=lambda call: (min(call.start), call.stream))
    groups = _Groups(rank)
    dtypes: dict[str, int] = {}
    out = _empty_calls(len(calls), sum(len(call.start) for call in calls))
    position = 0
    for index, call in enumerate(calls):
        facts = call.facts
        group = groups.index(facts)
        size = facts.group_size or (groups.facts[group].size if group >= 0 else None)
        message = facts.size_bytes(size)
        pieces = union(np.array(call.start, np.int64), np.array(call.end, np.int64))
        out.operation[index] = OPERATIONS.index(facts.operation)
        out.source[index] = SOURCES.index(call.source)
        out.group[index] = group
        out.dtype[index] = _dtype_index(dtypes, facts.dtype)
        out.size_bytes[index] = UNKNOWN_SIZE if message is None else message
        out.group_size[index] = size or -1
        out.sequence[index] = NO_ID if facts.sequence is None else facts.sequence
        out.peer[index] = NO_ID if facts.peer is None else facts.peer
        out.root[index] = NO_ID if facts.root is None else facts.root
        out.start[index], out.end[index] = min(call.start), max(call.end)
        out.duration[index] = pieces.total()
        out.device[index], out.stream[index] = call.device, call.stream
        out.channels[index], out.launched[index] = call.channels, call.launched
        out.copy_engine[index], out.sync[index] = call.copy_engine, call.sync
        out.issued[index], out.thread[index] = call.issued, call.thread
        out.fused[index], out.graph[index] = call.fused, call.graph
        _exchange(out, index, facts, size)
        out.first[index], out.last[index] = position, position + len(call.start)
        out.kernel_start[position : position + len(call.start)] = call.start
        out.kernel_end[position : position + len(call.start)] = call.end
        position += len(call.start)
        out.without_metadata += not call.has_metadata and not call.fused
        out.unknown_dtype += facts.dtype is not None and element_bytes(facts.dtype) is None
    out.groups = groups.facts
    out.dtypes = list(dtypes)
    return out


def _exchange(out: Calls, index: int, facts: CallFacts, size: int | None) -> None:
    """What the rank gives and gets in bytes, and to whom."""
    width = element_bytes(facts.dtype)
    sent, received = facts.elements_in, facts.elements_out
    if facts.operation == "all_to_all":
        found = facts.exchange(size)
        sent, received = found.sent, found.received
        out.unequal[index] = found.unequal
        if width is not None and (facts.given is not None or facts.got is not None):
            out.splits[index] = (_scaled(found.sent_to, width), _scaled(found.received_from, width))
    out.sent_bytes[index] = UNKNOWN_SIZE if sent is None or width is None else sent * width
    out.received_bytes[index] = UNKNOWN_SIZE if received is None or width is None else received * width


def _scaled(elements: tuple[int, ...] | None, width: int) -> tuple[int, ...] | None:
    return None if elements is None else tuple(width * count for count in elements)


def _dtype_index(dtypes: dict[str, int], dtype: str | None) -> int:
    name = standard_dtype(dtype)
    return -1 if name is None else dtypes.setdefault(name, len(dtypes))


def _empty_calls(calls: int, kernels: int) -> Calls:
    def column(dtype: type[np.generic] = np.int64, size: int = calls) -> NDArray[Any]:
        return np.zeros(size, dtype)

    return Calls(
        operation=column(np.int8), source=column(np.int8), group=column(np.int32), dtype=column(np.int32),
        size_bytes=column(), group_size=column(), sequence=column(), peer=column(), root=column(),
        start=column(), end=column(), duration=column(), device=column(), stream=column(), channels=column(),
        launched=column(), issued=column(), thread=column(),
        copy_engine=column(np.bool_), sync=column(np.bool_), fused=column(np.bool_),
        graph=column(np.bool_), first=column(), last=column(),
        sent_bytes=column(), received_bytes=column(), unequal=column(np.int8),
        kernel_start=column(size=kernels), kernel_end=column(size=kernels),
    )  # fmt: skip
