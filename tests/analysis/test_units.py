"""FSDP units by hand: issued, needed, slack; the table by layer adds up; what hid a call; flags of long starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commprof.synth import write_run
from commprof.synth.presets import PRESETS
from tests.builders.command import Run
from tests.builders.kineto import BACKWARD_THREAD, GEMM, Trace

Analyze = Callable[..., Run]
COPY_OUT = "void split_with_sizes_copy_out_contiguous_no_cast_kernel(...)"


def fsdp2() -> Trace:
    """Two layers of 200: the second is gathered beside the first (110 of 150 hidden), the gradients after them."""
    trace = Trace()
    trace.step(1, -100, 2000)
    for layer, (gather, start) in enumerate([((0, 50), 50), ((160, 290), 290)]):
        cpu = -90 + 30 * layer
        trace.annotation(f"FSDP::pre_forward (layers.{layer})", cpu, cpu + 20)
        trace.annotation(f"FSDP::all_gather (layers.{layer})", cpu + 1, cpu + 6)
        trace.all_gather(*gather, stream=44, launch=cpu + 2)
        trace.annotation(f"FSDP::all_gather_copy_out (layers.{layer})", cpu + 8, cpu + 14)
        trace.kernel(COPY_OUT, start, start + 10, launch=cpu + 9)
        trace.gemm(start + 10, start + 210, launch=cpu + 22)
    trace.annotation("FSDP::pre_backward (layers.1)", 0, 4, tid=BACKWARD_THREAD)
    trace.cpu_op("autograd::engine::evaluate_function: AddmmBackward0", 4, 9, tid=BACKWARD_THREAD)
    trace.gemm(500, 700, launch=5, thread=BACKWARD_THREAD)
    trace.annotation("FSDP::post_backward_reduce (layers.1)", 10, 20, tid=BACKWARD_THREAD)
    trace.reduce_scatter(700, 740, stream=48, launch=12, thread=BACKWARD_THREAD)
    trace.annotation("Optimizer.step#AdamW.step", 30, 40)
    trace.gemm(740, 800, launch=32)
    return trace


def test_units_of_a_step_by_hand(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(fsdp2().write(tmp_path / "rank0.json"))

    rows = [
        (u["module"], u["op"], u["direction"], u["issued_ns"] // 1000, u["start_ns"] // 1000, u["end_ns"] // 1000)
        for u in run.report["units"]
    ]
    assert rows == [
        ("layers.0", "all_gather", "forward", -88, 0, 50),
        ("layers.1", "all_gather", "forward", -58, 160, 290),
        ("layers.1", "reduce_scatter", "backward", 12, 700, 740),
    ]
    # The first copy out could have run when it was launched, at -81; the second when layer 0 had ended, at 260; the
    # gradients are needed when the backward pass is over, at 700.
    assert [(u["needed_ns"], u["slack_ns"]) for u in run.report["units"]] == [
        (-81_000, -131_000), (260_000, -30_000), (700_000, -40_000),
    ]  # fmt: skip
    assert [(u["exposed_ns"], u["cause"]) for u in run.report["units"]] == [
        (50_000, "structural"), (30_000, "longer-than-compute"), (40_000, "tail"),
    ]  # fmt: skip
    by_module = {row["name"]: row["exposed_ns"] for row in run.report["exposure"] if row["by"] == "module"}
    assert by_module == {"layers.1": 70_000}  # the window begins at 50, when the first gather is over


def test_what_hid_a_call_is_the_kernel_beside_most_of_it(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.all_reduce(0, 100)
    trace.kernel("short", 0, 40)
    trace.gemm(40, 70)
    trace.gemm(80, 100)
    trace.all_reduce(200, 300)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # 50 under two GEMMs, 40 under the other kernel.
    assert [(call["hidden_ns"], call["hidden_by"]) for call in run.report["collectives"]] == [
        (90_000, GEMM), (0, None),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["fsdp", "pp"])
def test_exposure_by_layer_and_by_stage_adds_up(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    write_run(replace(PRESETS[name], layers=4, steps=2), tmp_path / "run", seed=1, causes=False)

    run = run_analyze(tmp_path / "run")

    by = {"fsdp": "module", "pp": "stage"}[name]
    rows = {}
    for row in run.report["exposure"]:
        if row["by"] == by:
            rows[row["name"]] = rows.get(row["name"], 0) + row["exposed_ns"]
    total = sum(step["exposed_comm_ns"] for rank in run.report["ranks"] for step in rank["steps"])
    names = {"fsdp": {f"layers.{n}" for n in range(4)}, "pp": {"0", "1", "2", "3"}}[name]
    assert set(rows) == names
    assert sum(rows.values()) == total


@pytest.mark.parametrize(
    ("durations", "flagged"),
    [
        ([15_000, *[14] * 19], 1),
        ([9_000, 8_000, *[14] * 10], 2),
        ([*[14] * 9, 15_000, *[14] * 10], 0),  # in tenth place: how the run is
        ([*[15_000] * 5, *[14] * 15], 0),  # five in front
        ([15_000, *[14] * 6], 0),  # only seven calls of the kind
        ([15_000, *[14] * 10, 9_000, *[14] * 8], 0),  # it happens again
    ],
)
def test_c108_long_calls_at_the_start_of_their_kind(
    durations: list[int], flagged: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    trace.step(1, 0, 200_000)
    at = 0
    for duration in durations:
        trace.all_reduce(at, at + duration)
        at += duration + 10
    trace.gemm(at, at + 10)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["flag"] for call in run.report["collectives"]][:flagged] == ["profiler-start"] * flagged
    assert all(call["flag"] is None for call in run.report["collectives"][flagged:])


@pytest.mark.parametrize(("other", "flag"), [(15_000, "first-use"), (14, "profiler-start")])
def test_c110_all_members_wait_for_a_new_communicator(
    other: int, flag: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    paths = []
    for rank, first in enumerate((15_000, other)):
        trace = Trace(rank=rank)
        trace.step(1, 0, 40_000)
        trace.all_reduce(15_000 - first, 15_000, metadata={"seq": 1})
        for place in range(9):
            trace.all_reduce(16_000 + 100 * place, 16_014 + 100 * place, metadata={"seq": 2 + place})
        trace.gemm(17_000, 17_100)
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))

    run = run_analyze(paths)

    flags = [call["flag"] for call in run.report["collectives"]]
    assert sorted(flags, key=str) == sorted([flag] * 2 + [None] * 18, key=str)
