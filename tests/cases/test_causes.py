"""C146 to C152, C155 to C157, C161, C163 to C165: why communication is exposed and what idle time waited for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import BACKWARD_THREAD, Trace

Analyze = Callable[..., Run]
LAYER = "autograd::engine::evaluate_function: AddmmBackward0"


def causes(run: Run) -> dict[str | None, int]:
    """Exposed µs by cause, over all steps and ranks."""
    sums: dict[str | None, int] = {}
    for row in run.report["exposure"]:
        if row["by"] == "cause":
            sums[row["name"]] = sums.get(row["name"], 0) + row["exposed_ns"] // 1000
    return sums


def idle(run: Run) -> dict[str, tuple[int, int, str | None]]:
    """Idle µs, how often and through whom, by cause."""
    return {row["cause"]: (row["idle_ns"] // 1000, row["count"], row["op"]) for row in run.report["idle"]}


def sharded(trace: Trace) -> None:
    """A backward pass that reduce-scatters in the same group: what the group gathers before are parameters."""
    trace.cpu_op(LAYER, 3000, 3100, tid=BACKWARD_THREAD)
    trace.gemm(3200, 3300, launch=3010, thread=BACKWARD_THREAD)
    trace.cpu_op(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 3110, 3150, tid=BACKWARD_THREAD
    )
    trace.reduce_scatter(3300, 3310, stream=22, launch=3120, thread=BACKWARD_THREAD)
    trace.gemm(3500, 3600, launch=3200)


def layer_then_gather(launch: int, start: int, end: int) -> Trace:
    """Layer compute 0-1000, the next layer's all-gather, its compute as soon as that ends."""
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, launch=-20)
    trace.all_gather(start, end, stream=21, launch=launch)
    trace.gemm(end, end + 300, launch=launch + 2)
    sharded(trace)
    return trace


def test_c146_one_communicator_serialises_two_streams(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, -100, 1000)
    trace.gemm(-20, 0, launch=-90)
    for place, (call, stream) in enumerate([("_allgather_base", 21), ("_reduce_scatter_base", 22)] * 2):
        trace.collective(call, 100 * place, 100 * place + 100, stream=stream, launch=-80 + 5 * place)
    trace.gemm(400, 500, launch=-50)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["cause"] for call in run.report["collectives"]][1:] == ["serialised"] * 3
    assert causes(run)["serialised"] == 300


def test_c147_a_gather_that_waits_for_the_layer_before_is_not_prefetched(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(layer_then_gather(50, 1000, 1200).write(tmp_path / "rank0.json"))

    gather = run.report["collectives"][0]
    assert (gather["exposed_ns"], gather["cause"]) == (200_000, "no-prefetch")
    assert causes(run)["no-prefetch"] == 200


def test_c148_a_gather_launched_after_the_layer_before_came_late(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(layer_then_gather(1005, 1010, 1210).write(tmp_path / "rank0.json"))

    gather = run.report["collectives"][0]
    assert (gather["exposed_ns"], gather["cause"]) == (200_000, "late-launch")


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize(("length", "exposed"), [(2, 0), (20, 5_000_000)])
def test_c149_a_gather_longer_than_the_layer_beside_it(
    length: int, exposed: int, linked: bool, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    trace.step(1, -100, 40_000)
    trace.gemm(0, 15_000, **({"launch": -20} if linked else {}))
    trace.all_gather(0, 1000 * length, stream=21, **({"launch": -50} if linked else {}))
    trace.gemm(20_000, 30_000, **({"launch": -10} if linked else {}))

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (gather,) = run.report["collectives"]
    assert gather["exposed_ns"] == exposed
    assert gather["cause"] == ("longer-than-compute" if exposed else None)


def test_c150_the_rate_limiter_holds_the_next_gather_back(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 200, launch=-20)
    trace.annotation("FullyShardedDataParallel.rate_limiter", 190, 440)
    trace.runtime("cudaEventSynchronize", 200, 435)
    trace.all_gather(445, 645, stream=21, launch=440)
    trace.gemm(645, 900, launch=442)
    sharded(trace)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert idle(run)["rate-limiter"] == (235, 1, "FullyShardedDataParallel.rate_limiter")
    gather = run.report["collectives"][0]
    assert (gather["cause"], gather["cause_op"]) == ("rate-limiter", "FullyShardedDataParallel.rate_limiter")


def test_c151_allocator_retries(run_analyze: Analyze, tmp_path: Path) -> None:
    # Three releases and allocations while nothing runs: 4 ms in total, in a step that is waited for on the CPU.
    trace = Trace(world_size=1)
    trace.step(1, 0, 10_000)
    at = 0
    for release, allocate in ((1000, 500), (1000, 500), (500, 500)):
        trace.gemm(at + 10, at + 110, launch=at + 2)
        trace.runtime("cudaFree", at + 110, at + 110 + release)
        trace.runtime("cudaMalloc", at + 110 + release, at + 110 + release + allocate)
        at += 110 + release + allocate
    trace.gemm(at + 10, at + 110, launch=at + 2)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    ns, count, operator = idle(run)["allocator"]
    assert (ns, count, operator) == (4000, 3, "cudaFree")


def test_c155_a_value_read_between_layers_delays_the_gather(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, launch=-20)
    trace.cpu_op("aten::item", 10, 1004)
    trace.runtime("cudaStreamSynchronize", 20, 1002)
    trace.all_gather(1010, 1210, stream=21, launch=1005)
    trace.gemm(1210, 1500, launch=1007)
    sharded(trace)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    gather = run.report["collectives"][0]
    assert (gather["cause"], gather["cause_op"]) == ("device-synchronisation", "aten::item")


def test_c156_compute_and_reduction_alternate(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for start in (0, 200, 400):
        trace.gemm(start, start + 100)
    for start in (100, 300):
        trace.collective("reduce", start, start + 100)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    split = run.report["ranks"][0]["whole"]
    assert (split["overlap_ratio"], split["exposed_comm_ns"], split["comm_ns"]) == (0.0, 200_000, 200_000)


def test_c157_parameters_gathered_after_the_optimizer(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 100, launch=1)
    trace.cpu_op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 20, 60, tid=BACKWARD_THREAD)
    trace.gemm(100, 200, launch=25, thread=BACKWARD_THREAD)
    trace.reduce_scatter(200, 260, launch=30, thread=BACKWARD_THREAD)
    trace.annotation("Optimizer.step#AdamW.step", 70, 90)
    trace.gemm(260, 300, launch=75)
    trace.all_gather(300, 420, launch=95)
    trace.step(2, 1000, 2000)
    trace.gemm(1010, 1100, launch=100)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    reduction, gather = run.report["collectives"]
    assert (reduction["phase"], reduction["exposed_ns"], reduction["bucket"]) == ("backward", 60_000, 0)
    assert (gather["phase"], gather["exposed_ns"], gather["bucket"]) == ("optimizer", 120_000, None)
    assert gather["cause"] == "tail"
    assert run.report["units"] == []


def test_c161_copies_around_a_gather_are_compute(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.annotation("FSDP::all_gather_copy_out (layers.0)", 10, 50)
    trace.annotation("FSDP::post_backward_reduce (layers.0)", 60, 90)
    trace.kernel("void split_with_sizes_copy_out_contiguous_no_cast_kernel(...)", 100, 200, launch=20)
    trace.kernel("void chunk_cat_cuda_kernel<float, c10::BFloat16>(...)", 300, 400, launch=70)
    trace.all_gather(500, 600, launch=95)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    split = run.report["ranks"][0]["whole"]
    assert (split["compute_ns"], split["comm_ns"]) == (200_000, 100_000)


@pytest.mark.parametrize("stream", [7, 20])
def test_c163_tensor_parallel_is_on_the_critical_path(stream: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=4)
    trace.step(1, -60, 1000)
    tensor = {"group": "1", "description": "tp", "ranks": [0, 1]}
    data = {"group": "2", "description": "dp", "ranks": [0, 2]}
    trace.gemm(0, 100, launch=-50)
    trace.all_reduce(100, 150, stream=stream, launch=-45, metadata=tensor)
    trace.gemm(150, 250, launch=-40)
    trace.cpu_op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", -30, -5, tid=BACKWARD_THREAD)
    trace.gemm(250, 400, launch=-25, thread=BACKWARD_THREAD)
    trace.gemm(400, 500, launch=-15, thread=BACKWARD_THREAD)
    trace.all_reduce(410, 480, stream=21, launch=-20, thread=BACKWARD_THREAD, metadata=data)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = {group["group"]: group["exposed_ns"] for group in run.report["groups"]}
    assert rows == {"1": 50_000, "2": 0}
    first, second = run.report["collectives"]
    assert (first["cause"], first["bucket"]) == ("structural", None)
    assert (second["cause"], second["bucket"]) == (None, 0)


def pipeline(stages: int, microbatches: int) -> list[Trace]:
    """GPipe with passes of 100 µs each way; receives are posted at once, so a kernel fills the time until data comes.

    Stage ``s`` computes microbatch ``m`` forward at ``100 (s + m)`` and backward, the last stage first, likewise.
    """
    total = 2 * 100 * (microbatches + stages - 1)
    traces = []
    for stage in range(stages):
        trace = Trace(rank=stage, world_size=stages)
        trace.top["host_name"] = "one"
        trace.step(1, -1000, total)
        free = 0
        back = 100 * (microbatches + stages - 1)
        runs = [(100 * (stage + m), False) for m in range(microbatches)]
        runs += [(back + 100 * (stages - 1 - stage + m), True) for m in range(microbatches)]
        for number, (at, backward) in enumerate(runs):
            cpu = -900 + 10 * number
            thread = {"thread": BACKWARD_THREAD} if backward else {}
            if backward:
                trace.cpu_op(LAYER, cpu, cpu + 9, tid=BACKWARD_THREAD)
            source = stage + 1 if backward else stage - 1
            if 0 <= source < stages:
                message(trace, "recv", source, stage, free, at, launch=cpu + 1, stream=30 + backward, **thread)
            trace.gemm(at, at + 100, launch=cpu + 2, **thread)
            target = stage - 1 if backward else stage + 1
            if 0 <= target < stages:
                message(
                    trace, "send", stage, target, at + 100, at + 100, launch=cpu + 3, stream=32 + backward, **thread
                )
            free = at + 100
        traces.append(trace)
    return traces


def message(trace: Trace, call: str, source: int, sink: int, start: int, end: int, **more: Any) -> None:
    """A send or a receive of no length but its waiting."""
    ranks = {"ranks": list(range(trace.world_size)), "group": "5", "description": "pp"}
    trace.collective(call, start, end, metadata={**ranks, "Src Rank": source, "Dst Rank": sink}, **more)


def test_c164_the_bubble_of_a_pipeline_is_idle_and_waiting_for_messages(run_analyze: Analyze, tmp_path: Path) -> None:
    paths = [
        trace.write(tmp_path / f"rank{stage}.json") for stage, trace in enumerate(pipeline(stages=4, microbatches=8))
    ]

    run = run_analyze(paths)

    found = run.report["pipeline"]
    assert (found["stages"], found["microbatches"], found["ideal_share"]) == (4, 8, 3 / 11)
    # 2200 µs from the first forward to the last backward pass, 1600 of them compute in every stage.
    assert [row["stage"] for row in found["bubble"]] == [0, 1, 2, 3]
    for row in found["bubble"]:
        assert row["part_ns"] == 2_200_000
        assert row["idle_ns"] + row["receive_wait_ns"] == 600_000
        assert row["share"] == 3 / 11
    assert found["stage_imbalance_ns"] == 0
    assert sum(row["idle_ns"] for row in found["bubble"]) < sum(row["receive_wait_ns"] for row in found["bubble"])


def test_c164_one_stage_alone_gives_a_lower_bound(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = pipeline(stages=4, microbatches=8)[1]

    run = run_analyze(trace.write(tmp_path / "rank1.json"))

    found = run.report["pipeline"]
    (row,) = found["bubble"]
    assert (row["stage"], row["receive_wait_ns"]) == (1, None)
    assert row["share"] == row["idle_ns"] / row["part_ns"] < 3 / 11


@pytest.mark.parametrize("alone", [True, False])
def test_c165_a_receive_waits_for_its_peer(alone: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    receiver, sender = Trace(rank=1), Trace(rank=0)
    for trace in (receiver, sender):
        trace.step(1, -10, 60_000)
        trace.gemm(-5, 0, launch=-9)
        trace.gemm(50_000, 60_000, launch=-5)
    pair = {"ranks": [0, 1], "Src Rank": 0, "Dst Rank": 1}
    receiver.collective("recv", 0, 50_000, launch=-7, metadata=pair)
    sender.collective("send", 49_000, 50_000, launch=-7, metadata=pair)
    paths = [receiver.write(tmp_path / "rank1.json")]
    if not alone:
        paths.append(sender.write(tmp_path / "rank0.json"))

    run = run_analyze(paths)

    (call,) = (call for call in run.report["collectives"] if call["rank"] == 1)
    assert call["cause"] == ("unknown" if alone else "peer-wait")
    if not alone:
        assert (call["wait_ns"], call["exposed_wait_ns"]) == (49_000_000, 49_000_000)
        assert causes(run)["peer-wait"] == 49_000


def test_exposed_time_without_launches_and_without_other_ranks_has_no_cause(
    run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.all_reduce(500, 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert causes(run) == {"unknown": 300}


def test_host_bound_time_comes_before_any_other_cause(run_analyze: Analyze, tmp_path: Path) -> None:
    # The next kernel is launched at 250; until then nothing could have computed. From 250 on it waits for the call.
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 100, launch=1)
    trace.all_reduce(100, 300, stream=7, launch=2)
    trace.gemm(300, 400, launch=250)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert causes(run) == {"host-bound": 150, "on-compute-stream": 50}
    assert run.report["ranks"][0]["steps"][0]["exposed_host_ns"] == 150_000


def test_idle_time_is_divided_by_what_the_host_did(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 3000)
    trace.gemm(10, 100, launch=1)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 200, 600)
    trace.runtime("cudaDeviceSynchronize", 700, 900)
    trace.gemm(1010, 1100, launch=1000)
    trace.gemm(2000, 2100, launch=1005)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # 100-1010 before a launch at 1000: 400 of it in the loader, 200 in the synchronisation, the rest and the start of
    # the kernel is launching. 1100-2000 is after the launch of what comes next, and nothing says why it waits.
    assert idle(run) == {
        "input": (400, 1, None),
        "synchronisation": (200, 1, "cudaDeviceSynchronize"),
        "launch": (310, 3, None),
        "unknown": (900, 1, None),
    }
