"""What all ranks of one stage of a pipeline do longer than those of the other stages: mentioned, not accused.

Where a stage is slow in all replicas nobody does the same on time, and waiting for it is bubble by its place (``spec``:
sections 9 and 10). But the stages of a pipeline run equal layers: a host of one that launches later than all others,
or equal kernels that take longer there, say what the bubble is made of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from commprof.analysis.blame import kernel_totals
from commprof.analysis.levels import STAGE_EXCESS
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.stragglers import SHARE_OF_STEP

_AS_MUCH = 0.5
"""Kernels that two stages share have to be at least this part of the compute of the stage to speak for it."""


@dataclass(frozen=True, slots=True)
class StagePace:
    """A stage with the ``ranks`` that have traces: ``host`` ns per step that each of them waits for its host beyond the
    ranks of any other stage, and how many times as long (``factor``) kernels of one name and grid take on each."""

    stage: int
    ranks: tuple[int, ...]
    host: int
    factor: float


def slow_stages(analysis: Analysis) -> list[StagePace]:
    """Stages that wait for their hosts beyond the others by what a straggler has to cost, or whose equal kernels take
    longer by :data:`~commprof.analysis.levels.STAGE_EXCESS`; empty without two stages."""
    if analysis.pipeline is None:
        return []
    members: dict[int, list[RankAnalysis]] = defaultdict(list)
    for rank in analysis.ranks:
        if rank.rank in analysis.pipeline.stage_of and rank.devices:
            members[analysis.pipeline.stage_of[rank.rank]].append(rank)
    if len(members) < 2:
        return []
    waits = {stage: [_host(rank) for rank in ranks] for stage, ranks in members.items()}
    step = float(np.mean([_length(rank) for ranks in members.values() for rank in ranks]))
    out = []
    for stage, ranks in sorted(members.items()):
        elsewhere = [one for other, them in members.items() if other != stage for one in them]
        most = max(value for other, values in waits.items() if other != stage for value in values)
        host = max(0.0, min(waits[stage]) - most)
        factor = min(_factor(rank, elsewhere) for rank in ranks)
        # Waiting kernels slow the compute beside them: a stage that waits more than the others is no slower for it.
        waits_more = _exposed(ranks) > min(_exposed(them) for other, them in members.items() if other != stage)
        host = host if host >= SHARE_OF_STEP * step > 0 else 0.0
        factor = factor if factor >= 1 + STAGE_EXCESS and not waits_more else 1.0
        if host or factor > 1:
            out.append(StagePace(stage, tuple(rank.rank for rank in ranks), round(host), factor))
    return out


def _closed(rank: RankAnalysis) -> list[int]:
    """Places of the steps of the first device that have an end, or of all."""
    steps = rank.devices[0].steps
    return [place for place, step in enumerate(steps) if not step.open] or list(range(len(steps)))


def _length(rank: RankAnalysis) -> float:
    steps = rank.devices[0].steps
    return float(np.mean([steps[place].split.duration for place in _closed(rank)])) if steps else 0.0


def _exposed(ranks: list[RankAnalysis]) -> float:
    """Exposed communication per step, mean over the ranks of a stage."""
    return float(np.mean([step.split.exposed_comm for rank in ranks for step in rank.devices[0].steps] or [0]))


def _host(rank: RankAnalysis) -> float:
    """Nanoseconds per step in which the device idles because its host has launched nothing; 0 where unknown."""
    steps = rank.devices[0].steps
    return float(np.mean([steps[place].split.idle_host or 0 for place in _closed(rank)])) if steps else 0.0


def _factor(rank: RankAnalysis, others: list[RankAnalysis]) -> float:
    """How many times as long as the median rank of the other stages a rank takes for the kinds of kernels that they
    run too; 1 where these are too few to tell."""
    names = [step.name for step in rank.devices[0].steps]
    mine = kernel_totals(rank, names)
    theirs = [kernel_totals(other, names) for other in others[:64]]
    took = usual = 0.0
    for kind, (count, ns) in mine.items():
        known = [table[kind] for table in theirs if kind in table]
        if 2 * len(known) >= len(theirs):
            took += ns
            usual += count * float(np.median([total / calls for calls, total in known]))
    everything = sum(ns for _, ns in mine.values())
    return took / usual if usual > 0 and took >= _AS_MUCH * everything else 1.0
