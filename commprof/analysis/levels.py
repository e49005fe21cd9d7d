"""Sets of ranks that can be late together (hosts, pipeline stages, replicas), and pipeline stages with more work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.intervals import Int64Array

_WITHIN_REPLICA = ("tp", "pp", "cp")

STAGE_EXCESS = 0.10
"""A stage with this much more compute than the others have at the median is reported (GPUs of one kind differ by up to
9 %: PRISM, at 64,000 GPUs); less is how pipelines are cut."""


@dataclass(frozen=True, slots=True)
class Level:
    """Ranks (indices into the input) that could be late together; ``kind`` is ``host``, ``stage`` or ``replica``."""

    kind: str
    name: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LongStage:
    """A pipeline stage with more compute per step than the others: ``cost`` ns are its excess over the mean stage,
    ``excess`` its share over the median of the other stages."""

    level: Level
    cost: int
    excess: float


def find_levels(analysis: Analysis, found: Matching, peers: Peers, hosts: Mapping[int, str]) -> list[Level]:
    """Every set of at least two ranks, but not all, that shares a host, a stage or a replica."""
    out = []
    by_host: dict[str, list[int]] = defaultdict(list)
    for index, rank in enumerate(analysis.ranks):
        if rank.rank in hosts:
            by_host[hosts[rank.rank]].append(index)
    out += [Level("host", host, tuple(members)) for host, members in by_host.items()]
    out += find_stages(found, peers)
    out += _replicas(analysis)
    return [level for level in out if 2 <= len(level.members) < len(analysis.ranks)]


def find_stages(found: Matching, peers: Peers) -> list[Level]:
    """Pipeline stages in order: ranks of one role, ordered by who sends the first message of a step to whom."""
    index = {int(number): place for place, number in enumerate(found.calls.numbers)}
    pairs = [
        (index[source], index[sink])
        for source, sink in zip(found.source.tolist(), found.sink.tolist(), strict=True)
        if source in index and sink in index
    ]
    if not pairs:
        return []
    roles = {int(peers.role[rank]) for pair in pairs for rank in pair}
    # The first message of every pair of roles runs forward.
    after: dict[int, int] = {}
    seen: set[frozenset[int]] = set()
    for source, sink in pairs:
        one, other = int(peers.role[source]), int(peers.role[sink])
        if one != other and frozenset((one, other)) not in seen:
            seen.add(frozenset((one, other)))
            after.setdefault(one, other)
    first = [role for role in roles if role not in after.values()]
    order: list[int] = []
    role: int | None = first[0] if len(first) == 1 else None
    while role is not None and role not in order:
        order.append(role)
        role = after.get(role)
    if len(order) != len(roles) or len(order) < 2:
        return []
    return [
        Level("stage", f"pipeline stage {number}", tuple(np.flatnonzero(peers.role == role).tolist()))
        for number, role in enumerate(order)
    ]


def _replicas(analysis: Analysis) -> list[Level]:
    """Ranks that tensor, pipeline and context parallelism join: one copy of the model."""
    roles = analysis.roles
    index = {rank.rank: place for place, rank in enumerate(analysis.ranks)}
    label = np.arange(len(analysis.ranks))
    joined = False
    for facts, role in zip(analysis.groups, roles, strict=False):
        if role.name not in _WITHIN_REPLICA or not facts.ranks:
            continue
        members = [index[rank] for rank in facts.ranks if rank in index]
        if len(members) > 1:
            joined = True
            lowest = label[members].min()
            label[np.isin(label, label[members])] = lowest
    if not joined:
        return []
    return [
        Level("replica", f"data-parallel replica {number}", tuple(np.flatnonzero(label == value).tolist()))
        for number, value in enumerate(np.unique(label).tolist())
    ]


def long_stages(analysis: Analysis, stages: Sequence[Level], steps: Sequence[str]) -> list[LongStage]:
    """Stages whose ranks compute more in a step than those of the other stages do.

    What a stage computes is the median of its ranks, of two the smaller: one slow device makes no longer stage.
    """
    if len(stages) < 2:
        return []
    by_rank = [[_compute(analysis, rank, steps) for rank in stage.members] for stage in stages]
    compute = np.array([np.quantile(ranks, 0.5, method="lower") for ranks in by_rank])
    out = []
    for place, stage in enumerate(stages):
        usual = float(np.median(np.delete(compute, place)))
        if usual > 0 and compute[place] > usual:
            out.append(
                LongStage(stage, round(float(compute[place] - compute.mean())), float(compute[place]) / usual - 1)
            )
    return sorted(out, key=lambda stage: -stage.cost)


def _compute(analysis: Analysis, rank: int, steps: Sequence[str]) -> float:
    """Kernel time of a rank per step, over these steps."""
    behaviour, names = analysis.ranks[rank].behaviour, analysis.ranks[rank].shares.step_names
    if behaviour is None:
        return 0.0
    chosen: Int64Array = np.array([index for index, name in enumerate(names) if name in set(steps)], np.int64)
    table = behaviour.kernels
    return float(table.ns[np.isin(table.step, chosen)].sum()) / max(1, len(chosen))
