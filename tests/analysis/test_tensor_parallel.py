"""Blocks of tensor parallelism in order of launch, over steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commprof.synth import write_run
from commprof.synth.presets import PRESETS
from tests.builders.command import Run

Analyze = Callable[..., Run]


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("tp", ["all_reduce"], ["all_reduce"]),
        ("sp", ["all_gather", "reduce_scatter"], ["all_gather", "reduce_scatter"]),
    ],
)
def test_every_block_has_its_collectives(
    name: str, forward: list[str], backward: list[str], run_analyze: Analyze, tmp_path: Path
) -> None:
    # Two layers of two blocks, four ranks, two steps.
    scenario = replace(PRESETS[name], layers=2, steps=2, coarse=False)
    write_run(scenario, tmp_path / "run", seed=1, causes=False)

    run = run_analyze(tmp_path / "run")

    rows = run.report["tensor_parallel"]
    assert [(row["direction"], row["index"]) for row in rows] == [
        (direction, index) for direction in ("forward", "backward") for index in range(4)
    ]
    assert all(row["ops"] == (forward if row["direction"] == "forward" else backward) for row in rows)
    assert {row["count"] for row in rows} == {4 * 2}
    exposed = sum(call["exposed_ns"] for call in run.report["collectives"])
    assert sum(row["exposed_ns"] for row in rows) == exposed
    assert all(0 < row["structural_ns"] <= row["exposed_ns"] <= row["comm_ns"] for row in rows)
