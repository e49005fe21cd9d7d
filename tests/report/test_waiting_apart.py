"""Waiting that compute hides is never shown as if it were exposed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.builders.command import Run
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]


def test_the_table_of_groups_states_exposed_waiting(run_analyze: Analyze, tmp_path: Path) -> None:
    # Rank 0 enters 400 µs before rank 1: 300 of its 400 µs of waiting lie behind its compute, 100 do not.
    for rank, start, until in ((0, 100, 400), (1, 500, 500)):
        trace = Trace(rank=rank)
        trace.step(1, 0, 1000)
        trace.gemm(0, until)
        trace.all_reduce(start, 700)
        trace.write(tmp_path / "run" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "run", "--markdown", tmp_path / "report.md")

    (group,) = run.report["groups"]
    assert (group["wait_ns"], group["exposed_wait_ns"]) == (400_000, 100_000)
    (heads,) = [line for line in run.stdout.splitlines() if line.startswith("operation")]
    (row,) = [line for line in run.stdout.splitlines() if line.startswith("all-reduce")]
    assert "waiting" in heads
    assert "100 µs" in row
    assert "400 µs" not in row
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| of it waiting |" in markdown
    (line,) = [line for line in markdown.splitlines() if line.startswith("| all_reduce")]
    # Exposed are 400-700 on rank 0 and 500-700 on rank 1.
    assert "| 500 µs | 100 µs |" in line
