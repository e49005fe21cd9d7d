"""Roles of the groups and the strategy of the run, from all ranks."""

from __future__ import annotations

import numpy as np

from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.group_use import find_uses
from commprof.analysis.model import Analysis
from commprof.analysis.roles import find_roles
from commprof.analysis.strategy import find_strategy
from commprof.analysis.traffic import find_traffic


def find_parallelism(analysis: Analysis) -> None:
    """Fill in ``roles`` and ``strategy``; needs ``hosts``."""
    traffic = find_traffic(analysis)
    numbers = np.array([rank.rank for rank in analysis.ranks], np.int64)
    per_step = any(device.windows != "none" for rank in analysis.ranks for device in rank.devices)
    uses = find_uses(traffic, analysis.groups, numbers, per_step=per_step)
    marks = _of_all(analysis)
    analysis.roles = find_roles(analysis.groups, uses, analysis.world_size, analysis.hosts, marks)
    analysis.strategy = find_strategy(
        traffic, analysis.groups, analysis.roles, uses, marks, analysis.manifests, per_step=per_step
    )


def _of_all(analysis: Analysis) -> FrameworkMarks:
    """Marks of all ranks together: the largest count of each kind."""
    counts: dict[str, int] = {}
    for rank in analysis.ranks:
        for kind, count in rank.frameworks.per_step.items():
            counts[kind] = max(count, counts.get(kind, 0))
    return FrameworkMarks(counts, any(rank.frameworks.embedding_bags for rank in analysis.ranks))
