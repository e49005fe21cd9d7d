"""Calls that a CUDA graph replays, named by what the hook noted while the graph was captured.

A replayed kernel carries no operation, group or size. The nodes of a graph are numbered in the order of
their capture, so the k-th communication kernel of a replay, by node id, is the k-th call of the note: if
exactly one note has as many calls and agrees with what the kernels' names say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from commprof.intervals import Int64Array
from commprof.manifest import CudaGraph, GraphCall
from commprof.trace.arguments import CallFacts
from commprof.trace.kernel_names import rule_for
from commprof.trace.model import RankTrace
from commprof.trace.operations import element_bytes

# NCCL carries these out with kernels of send and receive.
_BY_EXCHANGE = frozenset({"send", "recv", "all_to_all", "gather", "scatter"})


@dataclass(slots=True)
class NotedCalls:
    """Facts by device row; ``unnamed`` communication kernels of replays have none."""

    facts: dict[int, CallFacts] = field(default_factory=dict)
    unnamed: int = 0


def noted_calls(rank: RankTrace, rows: Int64Array) -> NotedCalls:
    """Facts for ``rows``, the communication kernels of all replays; those of one replay share a correlation id."""
    found = NotedCalls()
    if not len(rows):
        return found
    node, replay = rank.device.graph_node_id[rows], rank.device.correlation[rows]
    order = np.lexsort((rank.device.start[rows], node, replay))
    rows, node, replay = rows[order], node[order], replay[order]
    for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(replay)) + 1):
        operations = [_operation(rank, int(row)) for row in rows[part]]
        # Without ids there is no order, and a node that comes twice is not one replay of one graph.
        ordered = bool((node[part] > 0).all()) and len(np.unique(node[part])) == len(part)
        calls = _only_match(rank.cuda_graphs, operations) if ordered else None
        if calls is None:
            found.unnamed += len(part)
            continue
        for row, call in zip(rows[part].tolist(), calls, strict=True):
            found.facts[row] = facts_of(call, rank)
    return found


def _operation(rank: RankTrace, row: int) -> str:
    rule = rule_for(rank.names[rank.device.name[row]])
    return rule[1] if rule else "unknown"


def _only_match(graphs: Sequence[CudaGraph], operations: list[str]) -> tuple[GraphCall, ...] | None:
    """The calls of the graph that these kernels belong to; graphs with the same calls are as good as one."""
    fitting = [
        graph.calls
        for graph in graphs
        if len(graph.calls) == len(operations)
        and all(_agree(call.op, told) for call, told in zip(graph.calls, operations, strict=True))
    ]
    return fitting[0] if fitting and all(calls == fitting[0] for calls in fitting) else None


def _agree(noted: str, told: str) -> bool:
    """Whether a kernel whose name tells ``told`` can carry out what was noted."""
    if told in (noted, "unknown"):
        return True
    return (told == "send_recv" and noted in _BY_EXCHANGE) or (told == "all_reduce" and noted == "barrier")


def facts_of(call: GraphCall, rank: RankTrace) -> CallFacts:
    """What the note says, as an event of the call itself would say it."""
    width = element_bytes(call.dtype)
    elements = None if call.size_bytes is None or not width else call.size_bytes // width
    members = next((group.ranks for group in rank.groups if group.name == call.group), None)
    share = None if elements is None or not call.group_size else elements // call.group_size
    gathers, splits = call.op in ("all_gather", "gather"), call.op in ("reduce_scatter", "scatter")
    return CallFacts(
        operation=call.op,
        elements_in=share if gathers else elements,
        elements_out=share if splits else elements,
        dtype=call.dtype,
        group_name=call.group,
        group_size=call.group_size,
        peer=call.peer,
        root_place=members.index(call.root) if members and call.root in members else None,
    )
