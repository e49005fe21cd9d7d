"""Of a large run the timelines of the first ranks are drawn, and those of the ranks that the others wait for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commprof.analysis.run import analyze
from commprof.synth import Fault, preset, write_run


def test_a_late_rank_has_a_timeline_wherever_it_stands(tmp_path: Path) -> None:
    scenario = replace(preset("ddp").with_ranks(12), layers=3, steps=4, faults=(Fault("slow-gpu", 10, 400),))
    write_run(scenario, tmp_path / "run", seed=1)

    analysis = analyze(tmp_path / "run", jobs=1)

    assert [row.rank for row in analysis.stragglers[:1]] == [10]
    assert [rank.rank for rank in analysis.ranks if rank.timeline] == [*range(8), 10]
