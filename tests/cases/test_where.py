"""C095, C100, C132, C134, C135, C142, C143: where in the step communication is exposed, and DDP's buckets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commprof.report.charts import buckets
from tests.builders.command import Run
from tests.builders.kineto import BACKWARD_THREAD, Trace

Analyze = Callable[..., Run]
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def exposure(run: Run, by: str) -> dict[str | None, int]:
    """Exposed µs of one roll-up, over all steps."""
    sums: dict[str | None, int] = {}
    for row in run.report["exposure"]:
        if row["by"] == by:
            sums[row["name"]] = sums.get(row["name"], 0) + row["exposed_ns"] // 1000
    return sums


def in_backward(trace: Trace, start: int, end: int, name: str = ACCUMULATE) -> None:
    """A node of the autograd graph on the backward thread."""
    trace.cpu_op(name, start, end, tid=BACKWARD_THREAD)


def ddp(steps: int, sizes: list[int], *, loss: bool = False) -> Trace:
    """Steps of 1000 µs: forward 20-200, a backward kernel of 100 for each bucket, each reduced for 50 beside the next.

    With ``loss``, a scalar is reduced between the second and the third bucket.
    """
    trace = Trace()
    for number in range(steps):
        at = 1000 * number
        trace.step(number + 5, at, at + 1000)
        trace.gemm(at + 20, at + 200, launch=at + 10)
        for place, size in enumerate(sizes):
            t = at + 200 + 100 * place
            cpu = at + 30 + 20 * place
            in_backward(trace, cpu, cpu + 18)
            trace.gemm(t, t + 100, launch=cpu + 2, thread=BACKWARD_THREAD)
            trace.all_reduce(t + 110, t + 160, launch=cpu + 8, thread=BACKWARD_THREAD, metadata={"elements": size // 4})
            if loss and place == 1:
                trace.all_reduce(t + 165, t + 170, launch=cpu + 12, thread=BACKWARD_THREAD, metadata={"elements": 1})
        trace.annotation("Optimizer.step#SGD.step", at + 150, at + 170)
        trace.gemm(at + 800, at + 850, launch=at + 155)
    return trace


@pytest.mark.parametrize("linked", [True, False])
def test_c095_exposed_time_by_phase(linked: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    # Without launches a range holds for what runs on the device meanwhile, so device and CPU share their times here.
    def launch(at: int, thread: int | None = None) -> dict[str, Any]:
        return {"launch": at, **({"thread": thread} if thread else {})} if linked else {}

    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 100, **launch(1))
    trace.all_reduce(100, 150, **launch(2))
    in_backward(trace, 200, 500, "autograd::engine::evaluate_function: AddmmBackward0")
    trace.gemm(210, 300, **launch(205, BACKWARD_THREAD))
    trace.all_reduce(300, 500, **launch(206, BACKWARD_THREAD))
    trace.annotation("Optimizer.step#AdamW.step", 600, 900)
    trace.gemm(610, 700, **launch(601))
    trace.all_reduce(700, 730, **launch(602))
    trace.gemm(730, 760, **launch(603))

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert exposure(run, "phase") == {"forward": 50, "backward": 200, "optimizer": 30}
    assert run.report["ranks"][0]["steps"][0]["exposed_comm_ns"] == 280_000
    assert [call["phase"] for call in run.report["collectives"]] == ["forward", "backward", "optimizer"]


def test_c095_communication_around_the_passes_has_a_phase_by_its_place(run_analyze: Analyze, tmp_path: Path) -> None:
    # On the thread of the loop, outside every range: before the backward pass, between two of them, and after.
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.all_reduce(50, 60, launch=5)
    trace.gemm(60, 100, launch=10)
    in_backward(trace, 200, 300)
    trace.gemm(210, 290, launch=205, thread=BACKWARD_THREAD)
    trace.gemm(330, 380, launch=320)
    trace.all_reduce(390, 400, launch=330)
    in_backward(trace, 500, 600)
    trace.gemm(510, 590, launch=505, thread=BACKWARD_THREAD)
    trace.all_reduce(700, 710, launch=650)
    trace.annotation("Optimizer.step#AdamW.step", 800, 900)
    trace.gemm(810, 890, launch=805)
    trace.all_gather(950, 960, launch=940)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    phases = [call["phase"] for call in run.report["collectives"]]
    assert phases == ["forward", "forward", "optimizer", "optimizer"]


def test_c095_recomputation_in_the_backward_pass_is_backward(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 100, launch=0)
    in_backward(trace, 200, 400, "autograd::engine::evaluate_function: CheckpointFunctionBackward")
    trace.annotation("FSDP::pre_forward (layers.0)", 210, 300, tid=BACKWARD_THREAD)
    trace.all_gather(300, 350, launch=220, thread=BACKWARD_THREAD)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (call,) = run.report["collectives"]
    assert (call["phase"], call["module"]) == ("backward", "layers.0")


def test_c095_without_any_backward_pass_the_phase_is_unknown(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 100, launch=0)
    trace.all_reduce(100, 200, launch=1)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["collectives"][0]["phase"] is None
    assert exposure(run, "phase") == {None: 100}


def test_c100_overlap_costs_what_kernels_take_longer(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 200_000)
    trace.all_reduce(50_000, 115_000)
    for place in range(5):
        trace.gemm(10_000 * place, 10_000 * (place + 1), args={"grid": [64, 1, 1]})
        trace.gemm(50_000 + 13_000 * place, 63_000 + 13_000 * place, args={"grid": [64, 1, 1]})
    trace.gemm(120_000, 130_000, args={"grid": [8, 1, 1]})  # the same name, another shape

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["contention"]
    assert (row["calls_alone"], row["mean_alone_ns"]) == (5, 10_000_000)
    assert (row["calls_beside"], row["mean_beside_ns"]) == (5, 13_000_000)
    assert (row["factor"], row["cost_ns_per_step"]) == (1.3, 15_000_000)


@pytest.mark.parametrize(("alone", "beside"), [(2, 5), (5, 2)])
def test_c100_means_need_three_calls_of_each_kind(
    alone: int, beside: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.all_reduce(0, 100)
    for place in range(beside):
        trace.gemm(10 * place, 10 * place + 8)
    for place in range(alone):
        trace.gemm(200 + 10 * place, 208 + 10 * place)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["contention"] == []


SIZES_C132 = [4_198_400, 29_388_800]
"""Eight times Linear(1024, 1024) with bias, default cap: the second is above 25 MiB because a bucket closes after the
parameter that fills it."""


def test_c132_buckets_of_every_step_with_their_sizes(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(ddp(2, SIZES_C132).write(tmp_path / "rank0.json"))

    buckets = run.report["buckets"]
    assert [(b["step"], b["index"], b["size_bytes"]) for b in buckets] == [
        (f"ProfilerStep#{step}", index, SIZES_C132[index]) for step in (5, 6) for index in (0, 1)
    ]
    assert [call["bucket"] for call in run.report["collectives"]] == [0, 1, 0, 1]
    assert exposure(run, "bucket") == {"0": 0, "1": 100}


def test_c132_times_of_a_bucket_by_hand(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(ddp(1, SIZES_C132).write(tmp_path / "rank0.json"))

    # Kernels of the backward pass 200-300 and 300-400, launched at 32 and 52; buckets launched at 38 and 58, run at
    # 310-360 (beside the second kernel) and 410-460. The first device start is 20.
    first, last = run.report["buckets"]
    assert (first["ready_ns"], first["launched_ns"], first["start_ns"], first["end_ns"]) == (
        280_000, 18_000, 290_000, 340_000,
    )  # fmt: skip
    assert (first["lag_ns"], first["queued_ns"], first["start_delay_ns"]) == (-262_000, 0, 10_000)
    assert (first["exposed_ns"], first["tail"], first["tail_ns"]) == (0, False, 0)
    assert (last["lag_ns"], last["queued_ns"], last["start_delay_ns"]) == (-342_000, 0, 10_000)
    assert (last["exposed_ns"], last["tail"], last["tail_ns"]) == (50_000, True, 50_000)
    assert run.report["collectives"][1]["cause"] == "tail"


def test_c132_a_bucket_behind_another_one_was_queued(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    in_backward(trace, 5, 40)
    for place in range(3):
        trace.gemm(50 + 100 * place, 150 + 100 * place, launch=6 + 10 * place, thread=BACKWARD_THREAD)
    trace.all_reduce(150, 450, launch=8, thread=BACKWARD_THREAD)
    trace.all_reduce(455, 500, launch=18, thread=BACKWARD_THREAD)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # Ready at 250 with the second kernel, launched long before; the first bucket holds the stream until 450.
    _, second = run.report["buckets"]
    assert (second["lag_ns"], second["queued_ns"], second["start_delay_ns"]) == (-232_000, 200_000, 5_000)


def with_first_iteration(later: bool) -> Trace:
    """A step that reduces all gradients of C132 in one, and three ``later`` ones after it with two buckets each."""
    trace = ddp(1, [sum(SIZES_C132)])
    if later:
        for event in ddp(3, SIZES_C132).events:
            shifted = {**event, "ts": event["ts"] + 1000}
            if event["name"].startswith("ProfilerStep"):
                shifted["name"] = f"ProfilerStep#{int(event['name'].rpartition('#')[2]) + 1}"
            for key in ("correlation", "External id"):
                if key in event["args"]:
                    shifted["args"] = {**shifted["args"], key: event["args"][key] + 1000}
            trace.events.append(shifted)
    return trace


@pytest.mark.parametrize("later", [True, False])
def test_c134_before_buckets_are_rebuilt(later: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = with_first_iteration(later)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    layouts = [(b["step"], b["layout"]) for b in run.report["buckets"]]
    if later:
        assert layouts[0] == ("ProfilerStep#5", "first-iteration")
        assert {layout for _, layout in layouts[1:]} == {"rebuilt"}
        (note,) = run.notes("before-bucket-rebuild")
        assert "ProfilerStep#5" in note
    else:
        # One large bucket alone may be how the run is: bucket_cap_mb can be as large as the model.
        assert layouts == [("ProfilerStep#5", "unknown")]
        assert run.notes("before-bucket-rebuild") == []


def test_c134_the_first_iteration_is_in_no_table_of_buckets_and_in_no_finding(
    run_analyze: Analyze, tmp_path: Path
) -> None:
    run = run_analyze(with_first_iteration(later=True).write(tmp_path / "rank0.json"))
    table = buckets.buckets({"report": run.report, "timeline": []})

    # Steps 6 to 8 have two buckets each; the last of them is open, as no step follows it.
    assert table is not None
    assert [(row["index"], row["calls"]) for row in table["rows"]] == [(0, "3"), (1, "3")]
    assert table["chart"]["step"] != "ProfilerStep#5"
    assert run.report["accounting"]["steps"] == 2
    assert all("ProfilerStep#5" not in row["steps"] for row in run.report["findings"])
    # The tail of each later step: 410 to 460 of its 1000 µs.
    (tail,) = [row for row in run.report["findings"] if row["id"] == "ddp-tail-bucket"]
    assert tail["charged_ns"] == 50_000


def test_c135_a_scalar_between_buckets_is_no_bucket(run_analyze: Analyze, tmp_path: Path) -> None:
    sizes = [1_000_000, 2_000_000, 3_000_000, 4_000_000]

    run = run_analyze(ddp(2, sizes, loss=True).write(tmp_path / "rank0.json"))

    assert [call["bucket"] for call in run.report["collectives"]] == 2 * [0, 1, None, 2, 3]
    assert [b["size_bytes"] for b in run.report["buckets"]] == 2 * sizes
    assert None in exposure(run, "bucket")


@pytest.mark.parametrize(
    ("what", "where"),
    [
        ({"elements": 80, "dtype": "Int"}, ACCUMULATE),  # which parameters went unused
        ({"elements": 100_000}, "autograd::engine::evaluate_function: SyncBatchNormBackward"),
    ],
)
def test_c135_other_reductions_of_the_backward_pass(
    what: dict[str, Any], where: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = ddp(1, SIZES_C132)
    in_backward(trace, 75, 95, where)
    place = {"thread": BACKWARD_THREAD, "launch": 80}
    if what.get("dtype") == "Int":
        place["launch"] = 98  # after the last node: DDP's own end of the pass
    trace.all_reduce(470, 480, metadata=what, **place)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["bucket"] for call in run.report["collectives"]] == [0, 1, None]


def test_c142_copies_into_buckets_are_copies(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 2000)
    in_backward(trace, 0, 90)
    for place in range(4):
        at = 100 + 300 * place
        under = trace.cpu_op("aten::copy_", 5 + 20 * place, 9 + 20 * place, tid=BACKWARD_THREAD)
        trace.gemm(at, at + 100, launch=2 + 20 * place, thread=BACKWARD_THREAD)
        trace.copy(at + 100, at + 150, "DtoD", launch=6 + 20 * place, thread=BACKWARD_THREAD, under=under)
        trace.all_reduce(at + 150, at + 250, launch=10 + 20 * place, thread=BACKWARD_THREAD)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (step,) = run.report["ranks"][0]["steps"]
    assert (step["copy_ns"], step["exposed_copy_ns"], step["comm_ns"]) == (200_000, 200_000, 400_000)
    assert [b["index"] for b in run.report["buckets"]] == [0, 1, 2, 3]


def test_c143_a_compression_hook_on_forty_streams(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for place in range(40):
        trace.all_reduce(
            10 * place, 10 * place + 25, stream=100 + place, metadata={"elements": 1_000_000, "dtype": "BFloat16"}
        )

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (group,) = run.report["groups"]
    assert (group["calls"], group["bytes"]) == (40, 40 * 2_000_000)
    assert run.report["ranks"][0]["whole"]["comm_ns"] == 415_000
    assert {call["size_bytes"] for call in run.report["collectives"]} == {2_000_000}
