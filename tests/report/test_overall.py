"""The split averaged over ranks and steps: what terminal and HTML show stands in the JSON too (C219)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.builders.command import Run
from tests.builders.kineto import Trace
from tests.conftest import ROOT

Analyze = Callable[..., Run]


def test_c219_the_mean_over_ranks_stands_in_the_json(run_analyze: Analyze, tmp_path: Path) -> None:
    # Given two ranks with one step of 1000 us each: compute 600 and 400, communication 500-900 and 300-900.
    for rank, compute, begin in ((0, 600, 500), (1, 400, 300)):
        trace = Trace(rank=rank, world_size=2)
        trace.step(1, 0, 1000)
        trace.gemm(0, compute)
        trace.all_reduce(begin, 900)
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "in")

    # Then hidden is (100 + 100) / 2 of (400 + 600) / 2, exposed (300 + 500) / 2, idle 100 on both.
    overall = run.report["overall"]
    assert (overall["ranks"], overall["steps"], overall["duration_ns"]) == (2, 2, 1_000_000)
    assert (overall["compute_ns"], overall["comm_ns"], overall["overlap_ns"]) == (500_000, 500_000, 100_000)
    assert (overall["exposed_comm_ns"], overall["idle_ns"]) == (400_000, 100_000)
    assert (overall["overlap_ratio"], overall["comm_share"]) == (0.2, 0.4)
    assert "20.0 % of communication time" in run.stdout
    assert "40.0 % of step time" in run.stdout


def test_the_markdown_says_what_the_terminal_says(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(ROOT / "fixtures" / "ddp-two-ranks", "--markdown", tmp_path / "r.md")

    text = (tmp_path / "r.md").read_text(encoding="utf-8")

    assert run.report["verdict"]["summary"].split(":")[0] in text
    share = f"{run.report['overall']['overlap_ratio'] * 100:.1f} % of communication time"
    assert share in text
    assert share in run.stdout
    assert len([line for line in text.splitlines() if line.startswith("| ")]) > 10
