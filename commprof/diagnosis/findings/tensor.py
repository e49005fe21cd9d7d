"""Tensor parallel: what it exposes by construction, and what its place in the cluster adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.bandwidth import factors
from commprof.analysis.model import Analysis
from commprof.analysis.what_if import left_of_matches
from commprof.diagnosis.findings.case import Case, of_rest, ranks_of, steps_of, whole
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.model import Evidence
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_ROLES = ("tp", "cp")


def crossing(analysis: Analysis) -> list[int]:
    """Groups whose members are known to sit on several hosts; which ranks a group has must not be assumed."""
    roles = [] if analysis.group_assumed else analysis.roles
    return [index for index, role in enumerate(roles) if role.crosses_hosts]


def tp_across_hosts(ground: Ground) -> Iterator[Case]:
    """A tensor-parallel group over hosts, where another placement would keep it inside one, pays the network for every
    layer."""
    yield from _across_hosts(ground, has_to=False)


def tp_has_to_cross(ground: Ground) -> Iterator[Case]:
    """The same where no placement helps, so that what is wrong with the network itself comes before it."""
    yield from _across_hosts(ground, has_to=True)


def _across_hosts(ground: Ground, *, has_to: bool) -> Iterator[Case]:
    groups = crossing(ground.analysis)
    rows = ground.role_is(*_ROLES) & np.isin(ground.exposed.group, groups)
    if (
        not groups
        or not rows.any()
        or _has_to_cross(ground.analysis, set(ground.exposed.group[rows].tolist())) != has_to
    ):
        return
    reached = _inside(ground)
    share = _over_network(ground, rows, reached)
    kind = "Tensor-parallel" if (rows & ground.role_is("tp")).any() else "Context-parallel"
    yield Case(
        "tp-across-hosts",
        f"{kind} groups cross hosts: every layer waits for the network",
        of_rest(ground, rows, share),
        (
            f"Place the ranks of a {kind.lower()} group on one host (order of ranks or of mesh dimensions), so that "
            "data parallel crosses hosts instead.",
            "If it must cross: a smaller tensor-parallel degree with more pipeline stages (bubble), sequence parallel "
            "(same "
            "bytes, less memory), async tensor parallel (hides part behind the matmul), hierarchical or compressed "
            "collectives (accuracy).",
        ),
        (
            Evidence("groups of tensor parallel over hosts", len(set(ground.exposed.group[rows].tolist())), "groups"),
            Evidence("that the network adds", round(float(share[rows].max()), 3), "share of exposed time"),
        ),
        cause="structural", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
        group_id=ground.one_group(rows), calls=ground.calls_in(rows), confidence="bound",
        structural=has_to,
        shorter=_inside_a_host(ground, groups, reached),
    )  # fmt: skip


def _has_to_cross(analysis: Analysis, groups: set[int]) -> bool:
    """Whether each of these groups has more ranks than any host holds: no placement would keep it inside one."""
    largest = max(Counter(analysis.hosts.values()).values(), default=0)
    return all(0 < largest < len(analysis.groups[group].ranks or ()) for group in groups)


def _inside(ground: Ground) -> float | None:
    """What ranks reach inside a host, GB/s: from groups that stay inside, else from the link of the known hardware."""
    analysis = ground.analysis
    inside = [entry.best for (group, _), entry in analysis.bandwidth.items() if group not in crossing(analysis)]
    link = None if analysis.hardware is None else analysis.hardware.link_gbps
    return max((best for best in inside if best), default=link)


def _inside_a_host(ground: Ground, groups: list[int], reached: float | None) -> Int64Array | None:
    """By how much each match of these groups would last shorter inside a host, with the least latency there, ns; what
    then crosses hosts in its place lasts longer for it, so that this is a bound."""
    found, times = ground.analysis.matching, ground.analysis.times
    if found is None or times is None or reached is None:
        return None
    mine = np.isin(found.group, groups)
    for group, operation in np.unique(np.stack([found.group[mine], found.operation[mine]]), axis=1).T.tolist():
        if ground.role_of(group, OPERATIONS[operation]) not in _ROLES:
            mine &= (found.group != group) | (found.operation != operation)
    size = found.calls.size[found.rows[found.first[:-1]]]
    members = np.array([len(group.ranks or ()) for group in ground.analysis.groups], np.int64)[found.group]
    factor = factors(found.operation, members)
    mine &= (size > 0) & ~np.isnan(factor)
    needed = ground.limits.least_inner_latency_ns + size * np.nan_to_num(factor) / reached
    return np.where(mine, np.maximum(left_of_matches(found, times) - needed, 0), 0).astype(np.int64)


def _over_network(ground: Ground, rows: Mask, reached: float | None) -> NDArray[np.float64]:
    """Part of the time of each row that a group inside one host would not need; all of it where nothing tells."""
    analysis = ground.analysis
    share = np.ones(len(rows), np.float64)
    if reached is None:
        return share
    for (group, operation), entry in analysis.bandwidth.items():
        if entry.median:
            mine = (ground.exposed.group == group) & (ground.exposed.operation == OPERATIONS.index(operation))
            share[mine] = max(0.0, 1 - entry.median / reached)
    return share


def tp_structural(ground: Ground) -> Iterator[Case]:
    """The next kernel needs the result: in the program by construction."""
    strategy = ground.analysis.strategy
    sequential = strategy is not None and "sp" in strategy.name.split("+")
    for role, title, advice in (
        ("tp", "Tensor-parallel communication is on the critical path: the next kernel needs its result",
         _against_tensor(sequential)),
        ("cp", "Context-parallel communication is on the critical path: attention needs what the other ranks hold",
         _AGAINST_CONTEXT),
    ):  # fmt: skip
        rows = ground.role_is(role)
        if not rows.any() or not ground.exposed.rest[rows].any():
            continue
        yield Case(
            "tp-structural",
            title,
            whole(ground, rows),
            advice,
            (
                Evidence("exposed transfers", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
                Evidence("calls per step", ground.calls_in(rows), "calls"),
            ),
            cause="structural", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
            group_id=ground.one_group(rows), calls=ground.calls_in(rows), structural=True, confidence="bound",
        )  # fmt: skip


_AGAINST_CONTEXT = (
    "Exchange keys and values in a ring, each block behind the attention of the one before it (--cp-comm-type p2p in "
    "Megatron; all_gather cannot overlap), or by heads (a2a), which sends less where there are many.",
    "Fewer context-parallel ranks (memory) compute more per byte; keys and values are narrower with grouped-query "
    "attention.",
)


def _against_tensor(sequential: bool) -> tuple[str, ...]:
    """What to try; ``sequential``: the run is sequence parallel already."""
    turn = "; sequence parallel turns each all-reduce into a gather and a scatter that overlap better"
    megatron = "user buffers" if sequential else "with --sequence-parallel; user buffers"
    return (
        "Overlap it with the matmul it belongs to: async tensor parallel (torch.compile with symmetric memory) or "
        f"--tp-comm-overlap (Megatron, {megatron}, memory){'' if sequential else turn}.",
        "A smaller tensor-parallel degree sends less, if memory allows; larger micro-batches raise the ratio of "
        "compute to latency.",
    )
