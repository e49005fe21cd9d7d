"""What one stage of a pipeline does longer than all others, and what the run would be shorter by without that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commprof.analysis.blame import kernel_totals
from commprof.analysis.model import RankAnalysis
from commprof.analysis.stage_pace import StagePace, slow_stages
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence


def late_hosts(ground: Ground) -> list[Evidence]:
    """A line for each stage that waits for its hosts in every replica; most runs have none."""
    return [
        Evidence(f"stage {one.stage} idles until its hosts launch, beyond every other stage, per step", one.host, "ns")
        for one in _stages(ground)
        if one.host
    ]


def slow_kernels(ground: Ground, ranks: Sequence[int] | None = None) -> list[Evidence]:
    """A line for each stage, or the one of these ranks, whose kernels take longer than equal ones of other stages."""
    what = "equal kernels on stage {} (slow devices or larger tensors), against the other stages"
    return [
        Evidence(what.format(one.stage), round(one.factor, 3), "times")
        for one in _stages(ground)
        if one.factor > 1 and (ranks is None or set(ranks) == set(one.ranks))
    ]


def longer_on_path(ground: Ground, ranks: Sequence[int], cost: int) -> int | None:
    """Nanoseconds per step by which the critical path is longer because the stage of these ranks computes ``cost`` more
    than the mean stage, or more than if its kernels took as long as equal ones of other stages; ``None`` where the path
    is not known.

    Of what its devices do on the path as much goes as of all that they do, and of what its CPUs launch as much as it
    launches more: a stage that is longer while the run waits for its CPUs costs nothing.
    """
    path, all_ranks = ground.analysis.critical_path, ground.analysis.ranks
    mine = np.isin([rank.rank for rank in all_ranks], ranks)
    if path is None or not path.compute[mine].any():
        return None
    evened = cost * path.steps / float(path.compute[mine].mean())
    pace = max((one.factor for one in _stages(ground) if set(one.ranks) == set(ranks)), default=1.0)
    launches = [_launches(rank) for rank in all_ranks]
    usual = np.median([count for count, here in zip(launches, mine, strict=True) if not here] or [0.0])
    more = max(0.0, 1 - usual / max(np.mean([count for count, here in zip(launches, mine, strict=True) if here]), 1.0))
    found = path.own * max(evened, 1 - 1 / pace) + (path.cpu + path.launching) * min(more, evened)
    return int(found[mine].sum()) // path.steps


def _launches(rank: RankAnalysis) -> float:
    """Kernels per step of a rank."""
    return sum(count for count, _ in kernel_totals(rank, [step.name for step in rank.devices[0].steps]).values())


def _stages(ground: Ground) -> list[StagePace]:
    found: list[StagePace] = ground.once("stages apart", lambda: slow_stages(ground.analysis))
    return found
