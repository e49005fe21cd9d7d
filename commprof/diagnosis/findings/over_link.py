"""Calls over a slow link that do not tell it by themselves: what it makes them last longer.

A link is told by calls that last much longer than their siblings elsewhere. Messages of a pair of ranks that is the
only one of its kind, or that last a little longer than others, and all-to-alls with unequal splits, go over it too.
What one of them takes for its bytes gets shorter by as much as it does for those calls, and none gets shorter than the
hardware lets it be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.hardware import ceiling
from commprof.analysis.hosts import ranks_per_host
from commprof.analysis.matching import Matching
from commprof.analysis.segments import any_of, medians, smallest
from commprof.analysis.slow_links import LEAST_NS, SlowLink
from commprof.diagnosis.ground import Ground, Mask
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS, bus_factor


def excess_beside(ground: Ground, link: SlowLink, ranks: tuple[int, ...]) -> dict[int, int]:
    """By how much such calls of any of these ``ranks`` of a link last too long, ns by match, but for its own.

    A call lasts as long as on the member that comes last, which has not waited.
    """
    found = ground.analysis.matching
    if found is None or not len(found) or not ranks:
        return {}
    rows = found.rows[found.first[:-1]]
    size = found.calls.size[rows]
    unequal = any_of(found.calls.unequal[found.rows] > 0, found.first)
    mine = any_of(np.isin(found.calls.numbers[found.calls.rank[found.rows]], ranks), found.first)
    lasted = smallest(found.calls.duration[found.rows], found.first)
    mine &= (size > 0) & (found.absent == 0) & ~found.calls.fused[rows]
    mine[link.matches] = False
    matches = np.flatnonzero(mine & (unequal | _of_the_link(found, ground, lasted, size)))
    if not len(matches):
        return {}
    latency, of_bytes = _needed(ground, found, matches, size[matches])
    lasted = lasted[matches]
    lost = (lasted - latency) * _lost_of_bytes(ground, link)
    excess = np.minimum(lost, lasted - latency - of_bytes)
    return {match: int(ns) for match, ns in zip(matches.tolist(), excess.tolist(), strict=True) if ns >= 1}


def _lost_of_bytes(ground: Ground, link: SlowLink) -> float:
    """The share of what the calls of a link take for their bytes that is too much: of the rest of them, which is the
    least latency, none is."""
    lost = 1 - 1 / link.factor
    lasted = float(np.median(link.excess)) / lost
    hosts = {ground.analysis.hosts.get(rank) for rank in link.ranks}
    latency = _least_latency(ground, between=len(hosts) > 1)
    return min(1.0, lasted * lost / max(lasted - latency, 1.0))


def _least_latency(ground: Ground, *, between: bool) -> int:
    return ground.limits.least_latency_ns if between else ground.limits.least_inner_latency_ns


def _of_the_link(found: Matching, ground: Ground, lasted: Int64Array, size: Int64Array) -> Mask:
    """Messages of a pair of ranks that is the only one of its role that sends such ones, on one host or between two; or
    that last longer than those of the other pairs, by too little to tell a slow link by themselves."""
    messages = np.flatnonzero(found.source >= 0)
    out = np.zeros(len(found), np.bool_)
    if not len(messages):
        return out
    keys = np.stack([found.group, found.source, found.sink, found.operation.astype(np.int64), size])[:, messages]
    lanes, lane = np.unique(keys, axis=1, return_inverse=True)
    lane = lane.reshape(-1)
    typical = medians(lasted[messages].astype(np.float64), lane, lanes.shape[1])
    roles, hosts = ground.analysis.roles, ground.analysis.hosts
    kinds: dict[object, list[tuple[int, frozenset[int]]]] = {}
    for index, (group, source, sink, *what) in enumerate(lanes.T.tolist()):
        inside = hosts.get(source) == hosts.get(sink)
        kind = (roles[group].name if roles else group, inside, *what)
        kinds.setdefault(kind, []).append((index, frozenset((source, sink))))
    longer = np.zeros(lanes.shape[1], np.bool_)
    for kind_lanes in kinds.values():
        for index, pair in kind_lanes:
            others = [typical[other] for other, ends in kind_lanes if ends != pair]
            longer[index] = not others or typical[index] - np.median(others) >= LEAST_NS
    out[messages] = longer[lane]
    return out


def _needed(
    ground: Ground, found: Matching, matches: NDArray[np.intp], size: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The least latency of these matches and what their bytes need at the peak of the hardware, ns; infinite where it
    is not known."""
    analysis = ground.analysis
    keys = np.stack([found.group, found.operation.astype(np.int64), found.source, found.sink])[:, matches]
    kinds, kind = np.unique(keys, axis=1, return_inverse=True)
    latency, per_byte = np.zeros(kinds.shape[1]), np.full(kinds.shape[1], np.inf)
    for index, (group, operation, source, sink) in enumerate(kinds.T.tolist()):
        ranks = (source, sink) if source >= 0 else analysis.groups[group].ranks or ()
        name = OPERATIONS[operation]
        per_host, factor = ranks_per_host(ranks, analysis.hosts), bus_factor(name, len(ranks))
        top = ceiling(analysis.hardware, name, len(ranks), per_host)
        if top is not None and factor:
            latency[index] = _least_latency(ground, between=per_host is not None and len(per_host) > 1)
            per_byte[index] = factor / top.low
    kind = kind.reshape(-1)
    return latency[kind], size * per_byte[kind]
