"""Communication kernels to calls: one row per collective or point-to-point call, whatever number of kernels it took."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array
from commprof.trace.call_table import Drafts, finish
from commprof.trace.classify import Classification
from commprof.trace.coalesced import Coalesced, find_coalesced
from commprof.trace.describe import Describer
from commprof.trace.graph_notes import noted_calls
from commprof.trace.links import NONE, thread_keys
from commprof.trace.model import COMM, NOT_LAUNCHED, SOURCES, Calls, RankTrace


def device_calls(rank: RankTrace, kinds: Classification, launches: Int64Array) -> Calls:
    """The calls of a trace with device events, in order of start (ties: stream, then the order of the file)."""
    device = rank.device
    graph = graph_rows(rank, launches)
    issued, thread = _issued(rank, kinds, launches)
    coalesced = find_coalesced(rank, kinds, graph, issued, thread)
    rows = np.flatnonzero((kinds.kind == COMM) | kinds.fused)
    rows = rows[np.lexsort((rows, device.stream[rows], device.start[rows]))]
    first, call = _distinct(_call_keys(rank, kinds, graph, launches, coalesced, rows))
    first = rows[first]
    noted = noted_calls(rank, rows[graph[rows] & ~kinds.fused[rows]])
    describe = Describer(rank, kinds, coalesced, issued, thread, noted.facts)
    told = [describe.call(row) for row in first.tolist()]
    in_graph = graph[first]
    launched = np.full(len(first), NOT_LAUNCHED, np.int64)
    known = (launches[first] != NONE) & ~in_graph
    launched[known] = rank.runtime.start[launches[first[known]]]
    order = np.argsort(call, kind="stable")
    drafts = Drafts(
        facts=describe.facts,
        fact=np.array([place for place, *_ in told], np.int64),
        source=np.array([SOURCES.index(source) for _, source, *_ in told], np.int8),
        sequence=np.array([number for _, _, number, _ in told], np.int64),
        with_metadata=np.array([known for *_, known in told], np.bool_),
        device=device.device[first],
        stream=device.stream[first],
        channels=_largest(device.blocks[rows], call, len(first)),
        launched=launched,
        issued=np.where(in_graph, NOT_LAUNCHED, issued[first]),
        thread=thread[first],
        copy_engine=~_any(~device.is_copy_row[rows], call, len(first)),
        sync=kinds.sync[first],
        fused=kinds.fused[first],
        graph=in_graph,
        kernels=np.bincount(call, minlength=len(first)),
        kernel_start=device.start[rows[order]],
        kernel_end=device.end[rows[order]],
    )
    calls = finish(drafts, rank)
    calls.noted_in_graphs, calls.unnamed_in_graphs = len(noted.facts), noted.unnamed
    return calls


def graph_rows(rank: RankTrace, launches: Int64Array) -> NDArray[np.bool_]:
    """Kernels that a CUDA graph replayed: they share a launch, an operator and an id without being one call."""
    launch_names = {code for code, name in enumerate(rank.names) if "GraphLaunch" in name}
    graph = rank.device.graph_node
    linked = launches != NONE
    graph[linked] |= np.isin(rank.runtime.name[launches[linked]], list(launch_names))
    return graph


def _issued(rank: RankTrace, kinds: Classification, launches: Int64Array) -> tuple[Int64Array, Int64Array]:
    """When and on which thread the CPU enqueued each device row: by its launch, else by its operator."""
    issued = np.full(len(launches), NOT_LAUNCHED, np.int64)
    thread = np.zeros(len(launches), np.int64)
    for rows, table, owner in (
        (np.flatnonzero(kinds.operator != NONE), rank.operators, kinds.operator),
        (np.flatnonzero(launches != NONE), rank.runtime, launches),
    ):
        there = owner[rows]
        issued[rows] = table.start[there]
        thread[rows] = thread_keys(table.pid[there], table.tid[there])
    return issued, thread


def _call_keys(
    rank: RankTrace,
    kinds: Classification,
    graph: NDArray[np.bool_],
    launches: Int64Array,
    coalesced: Coalesced,
    rows: Int64Array,
) -> Int64Array:
    """A number per row, equal for the kernels of one call: of its operator, its id, its batch, or of itself alone."""
    device = rank.device
    size = max(len(device), len(rank.operators)) + 1
    keys = rows.copy()
    external = device.external_id[rows]
    described = np.isin(rows, [row for row, args in device.args.items() if args.collective is not None])
    by_id = (external > 0) & (external != device.correlation[rows]) & ((launches[rows] == NONE) | described)
    ids = np.unique(external, return_inverse=True)[1]
    keys[by_id] = 2 * size + ids[by_id]
    operator = kinds.operator[rows]
    keys[operator != NONE] = size + operator[operator != NONE]
    if kinds.ranges:
        # All copies of one operation of symmetric memory are one call.
        spans = {span: number for number, span in enumerate(sorted(set(kinds.ranges.values())))}
        last = 3 * size + len(device)
        keys = np.array(
            [
                last + spans[kinds.ranges[r]] if r in kinds.ranges else k
                for r, k in zip(rows.tolist(), keys.tolist(), strict=True)
            ],
            np.int64,
        )
    batch = np.array([coalesced.first.get(row, row) for row in rows.tolist()], np.int64) if coalesced.first else rows
    keys = np.where(batch != rows, batch, keys)
    return np.where(graph[rows] | kinds.fused[rows], rows, keys)


def _distinct(keys: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Where each distinct key comes first, in that order, and for every entry which of them it is."""
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank_of = np.empty(len(order), np.int64)
    rank_of[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank_of[which]


def _largest(values: Int64Array, call: Int64Array, calls: int) -> Int64Array:
    out = np.full(calls, -1, np.int64)
    np.maximum.at(out, call, values)
    return out


def _any(flags: NDArray[np.bool_], call: Int64Array, calls: int) -> NDArray[np.bool_]:
    return np.bincount(call[flags], minlength=calls) > 0
