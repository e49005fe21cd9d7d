"""What one stage of a pipeline does longer than all others: evidence beside a finding, no accusation of a rank."""

from __future__ import annotations

from collections.abc import Sequence

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


def _stages(ground: Ground) -> list[StagePace]:
    found: list[StagePace] = ground.once("stages apart", lambda: slow_stages(ground.analysis))
    return found
