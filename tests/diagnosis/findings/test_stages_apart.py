"""What comes back of a stage that computes longer than the others: what of it is on the critical path, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from commprof.analysis.critical_path import CriticalPath
from commprof.analysis.run import analyze
from commprof.diagnosis.findings.stages_apart import longer_on_path
from commprof.diagnosis.ground import Ground, lay_ground
from tests.analysis.test_stage_pace import pipeline

LONGER = 300_000
"""Stage 1 takes 1300 us for the kernel that stage 0 takes 1000 us for; the mean is 150 us less."""


def ground(folder: Path, **parts: tuple[int, int]) -> Ground:
    """The run, and a path with these parts of the steps of a rank of each stage, ns; nothing else lies on it."""
    found = lay_ground(analyze(str(pipeline(folder, kernel=(1000, 1300)))))
    assert found is not None
    steps = len(found.steps)
    columns = {name: np.zeros(4, np.int64) for name in ("own", "launching", "inputs", "pauses", "cpu")}
    for name, (first, second) in parts.items():
        columns[name] = np.array([first, 0, second, 0], np.int64) * steps
    nothing, none = np.empty(0, np.int64), np.zeros(4, np.int64)
    found.analysis.critical_path = CriticalPath(
        steps=steps, length=0, match=nothing, transfers=nothing, role=np.array([0, 0, 1, 1]), fetched=none, paused=none,
        compute=np.array([1_000_000, 1_000_000, 1_300_000, 1_300_000]) * steps, gap=np.ones(4), **columns,
    )  # fmt: skip
    return found


def test_what_equal_kernels_take_longer_comes_back_whole(tmp_path: Path) -> None:
    # With one micro-batch both stages are on the path, forward and back.
    laid = ground(tmp_path / "run", own=(1_000_000, 1_300_000))

    assert longer_on_path(laid, (2, 3), LONGER // 2) == LONGER


def test_without_equal_kernels_that_are_longer_work_evened_out_comes_back(tmp_path: Path) -> None:
    laid = ground(tmp_path / "run", own=(1_000_000, 1_300_000))
    laid.found["stages apart"] = []

    assert longer_on_path(laid, (2, 3), LONGER // 2) == LONGER // 2


def test_a_stage_that_is_longer_while_the_run_waits_for_its_cpus_costs_nothing(tmp_path: Path) -> None:
    # Its CPUs launch as many kernels as those of the others.
    laid = ground(tmp_path / "run", cpu=(1_000_000, 1_300_000))

    assert longer_on_path(laid, (2, 3), LONGER // 2) == 0


def test_without_a_critical_path_nobody_can_tell(tmp_path: Path) -> None:
    laid = ground(tmp_path / "run")
    laid.analysis.critical_path = None

    assert longer_on_path(laid, (2, 3), LONGER // 2) is None
