"""A run replayed without slow ranks: by hand. Against the simulator: ``test_charges``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.test_wait_chain import write
from tests.builders.command import Run

Analyze = Callable[..., Run]


def test_without_its_slow_rank_the_step_is_shorter_by_what_it_was_late(run_analyze: Analyze, tmp_path: Path) -> None:
    """Steps of 8.4 ms, of which rank 5 costs 2; its calls and those of the others lie between the same work."""
    run = run_analyze(write(tmp_path / "run", lambda rank, step: (2000 if rank == 5 else 0, 0)))

    (row,) = run.report["whatif"]
    assert row["step_ns"] == pytest.approx(6_400_000, rel=1e-3)
    assert row["gain_ns"] == pytest.approx(2_000_000, rel=1e-3)
    assert row["slowdown"] == pytest.approx(8.4 / 6.4, rel=1e-3)
    assert row["replay_error"] < 1e-3
    assert "a step takes 6.40 ms on average, 2.00 ms less" in " ".join(run.stdout.split())


def test_of_two_late_ranks_the_later_sets_the_pace(run_analyze: Analyze, tmp_path: Path) -> None:
    """Rank 0 is late by 1 ms before the call of its pair; ranks 6 and 7 by 2 before those of their columns."""
    late = {0: (1000, 0), 6: (0, 2000), 7: (0, 2000)}

    run = run_analyze(write(tmp_path / "run", lambda rank, step: late.get(rank, (0, 0))))

    (row,) = run.report["whatif"]
    assert row["gain_ns"] == pytest.approx(2_000_000, rel=1e-3)


def test_a_run_without_slow_ranks_gains_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(write(tmp_path / "run", lambda rank, step: (0, 0)))

    (row,) = run.report["whatif"]
    assert abs(row["gain_ns"]) <= 1000
    assert row["slowdown"] == pytest.approx(1.0, abs=1e-3)


def test_missing_ranks_are_not_replayed(run_analyze: Analyze, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda rank, step: (2000 if rank == 5 else 0, 0))
    (folder / "rank7.json").unlink()

    run = run_analyze(folder)

    assert run.report["whatif"] == []
    assert any("replayed" in message for message in run.notes("not-built"))
