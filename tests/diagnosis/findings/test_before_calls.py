"""Pauses before most calls of a kind are what their launch takes; others are pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import commprof
from commprof.synth import Fault, Scenario, write_run

_STAGES: dict[str, Any] = {
    "name": "stages", "strategy": "none", "pp": 4, "microbatches": 6, "layers": 8, "hidden": 512, "sequence": 256,
    "batch": 2, "steps": 6, "coarse": False, "inner": 1, "last_stage_extra_permille": 100, "early_receives": False,
    "real": True, "launch_ns": 8_000, "comm_launch_ns": 25_000, "sync_each_step": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "expected"), [(Fault("late-launch", None, 30_000), False), (Fault("host-pause", 0, 1_000_000), True)]
)
def test_what_every_launch_takes_is_no_pause(fault: Fault, expected: bool, tmp_path: Path) -> None:
    folder = write_run(Scenario(**_STAGES, faults=(fault,)), tmp_path / "run", seed=3, causes=False, calls=False).folder

    found = [row for row in commprof.diagnose(commprof.analyze(folder)).findings if row.id == "host-bound"]

    assert any(row.cause == "pause" for row in found) == expected
    assert any(row.cause != "pause" for row in found)
