"""Windows stay in order and apart when the clock of a damaged trace runs backwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.builders.command import Run
from tests.builders.kineto import Trace


def test_a_step_that_seems_to_start_before_an_earlier_one(run_analyze: Callable[..., Run], tmp_path: Path) -> None:
    # Given two steps whose main compute runs in the wrong order: that of step 2 at 100, that of step 1 at 800.
    trace = Trace(rank=0, world_size=2)
    trace.step(1, 0, 500)
    trace.step(2, 500, 1000)
    trace.gemm(800, 900, launch=10)
    trace.gemm(100, 200, launch=510)
    trace.all_reduce(850, 1000, launch=520)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # Then step 2 starts no earlier than step 1 (700 us after the first work) and ends with the last work (900 us),
    # and step 1, of which the clock leaves nothing, is listed as a step without a window.
    (row,) = run.report["ranks"]
    bounds = [(step["name"], step["start_ns"], step["end_ns"]) for step in row["steps"]]
    assert bounds == [("ProfilerStep#2", 700_000, 900_000)]
    assert row["steps"][0]["exposed_comm_ns"] == 100_000
    assert "ProfilerStep#1" in str(row["steps_without_window"])
