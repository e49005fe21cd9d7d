"""Tensor parallel, pipelines, expert parallel, artefacts, environment, and what cannot be explained."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.kineto import BACKWARD_THREAD, Trace
from tests.cases.test_causes import message, pipeline
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]


def test_c163_tensor_parallel_is_on_the_critical_path(judge: Judge) -> None:
    trace = Trace(world_size=4)
    trace.step(1, -60, 1000)
    tensor = {"group": "1", "description": "tp", "ranks": [0, 1]}
    data = {"group": "2", "description": "dp", "ranks": [0, 2]}
    trace.gemm(0, 100, launch=-50)
    trace.all_reduce(100, 150, stream=7, launch=-45, metadata=tensor)
    trace.gemm(150, 250, launch=-40)
    trace.cpu_op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", -30, -5, tid=BACKWARD_THREAD)
    trace.gemm(250, 400, launch=-25, thread=BACKWARD_THREAD)
    trace.gemm(400, 500, launch=-15, thread=BACKWARD_THREAD)
    trace.all_reduce(410, 480, stream=21, launch=-20, thread=BACKWARD_THREAD, metadata=data)

    judged = judge(trace)

    finding = judged.by_id["tp-structural"]
    assert finding["charged_ns"] == 50_000
    assert "critical path" in finding["title"]
    text = " ".join(finding["advice"])
    assert "async tensor parallel" in text
    assert "equence parallel" in text
    assert "bucket" not in text
    assert finding["structural"] is True


def test_c164_waiting_in_a_pipeline_is_charged_to_its_bubble_alone(judge: Judge) -> None:
    judged = judge(*pipeline(stages=4, microbatches=8))

    # 2200 µs of pipeline, 1600 of them compute in every stage: 600 µs of bubble on the reference rank, whoever it is.
    bubble = judged.by_id["pipeline-bubble"]
    assert bubble["charged_ns"] == 600_000
    assert bubble["structural"] is True
    assert judged.named == ["pipeline-bubble"]
    assert judged.report["verdict"]["bottleneck"] == "pipeline"


@pytest.mark.parametrize("fetching", [800, 300, 0])
def test_a_stage_that_waits_for_its_input_holds_up_the_other(fetching: int, judge: Judge) -> None:
    # Two stages and one micro-batch: the second waits for the first for 300 µs of compute and the fetching before it.
    first, second = Trace(rank=0), Trace(rank=1)
    for number in range(3):
        t, sent = 4000 * number, 4000 * number + 320 + fetching
        for trace in (first, second):
            trace.step(number, t, t + 4000)
            trace.gemm(t + 10, t + 20, launch=t + 5)
        if fetching:
            first.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t + 9, t + 20 + fetching)
        first.gemm(sent - 300, sent, launch=t + 20 + fetching)
        message(first, "send", 0, 1, sent, sent, launch=t + 22 + fetching, stream=30)
        message(second, "recv", 0, 1, t + 20, sent, launch=t + 7, stream=31)
        second.gemm(sent, sent + 600, launch=t + 8)
        message(second, "send", 1, 0, sent + 600, sent + 600, launch=t + 9, stream=32)
        message(first, "recv", 1, 0, sent, sent + 600, launch=t + 24 + fetching, stream=33)
        first.gemm(sent + 600, t + 4010, launch=t + 26 + fetching)

    judged = judge(first, second)

    found = judged.by_id.get("input-bound", {"charged_ns": 0, "recoverable_ns": 0})
    assert found["charged_ns"] == found["recoverable_ns"] == 1000 * fetching
    assert ("input-bound" in judged.named) is (fetching > 0)


def test_a_call_that_the_profiler_start_made_long_is_an_artefact(judge: Judge) -> None:
    # C108: the first of twenty equal all-reduces waits 15 ms for the other rank to start recording.
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 40_000)
        trace.all_reduce(0 if rank == 0 else 14_986, 15_000)
        for index in range(19):
            at = 15_000 + 1000 * index
            trace.gemm(at, at + 986)
            trace.all_reduce(at + 986, at + 1000)
        ranks.append(trace)

    judged = judge(*ranks)

    finding = judged.by_id["profiler-start"]
    assert finding["severity"] == "info"
    assert finding["charged_ns"] == 15_000_000
    assert finding["recoverable_ns"] is None
    assert "straggler" not in judged.by_id


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", ["_allgather_base", "allreduce", "_reduce_scatter_base", "broadcast"])
def test_c211_without_launches_and_other_ranks_the_cause_is_not_determined(name: str, last: bool, judge: Judge) -> None:
    # One reduction alone may be of gradients or of anything else, also where nothing is computed after it.
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 400)
    trace.collective(name, 300, 700)
    if not last:
        trace.gemm(700, 900)

    judged = judge(trace)

    (finding,) = [row for row in judged.report["findings"] if row["severity"] != "info"]
    assert finding["charged_ns"] == 300_000
    assert finding["cause"] == "unknown"
    assert "not determined" in finding["title"]
    assert finding["advice"][0] == (
        "To decide it record CPU activity, so that launches tell whether the CPU was late, and all ranks, so that "
        "waiting can be told from transfer."
    )


def test_c210_the_larger_cause_comes_first(judge: Judge) -> None:
    # 3 ms of the last bucket after the backward pass; a gather of 1 ms that the CPU launched late.
    trace = Trace()
    trace.step(1, -50, 30_000)
    trace.gemm(0, 5_000, launch=-20)
    trace.all_gather(5_010, 6_010, stream=21, launch=5_005, metadata={"group": "1", "description": "shard"})
    trace.gemm(6_010, 10_000, launch=5_007)
    trace.cpu_op(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 5_100, 5_200, tid=BACKWARD_THREAD
    )
    trace.gemm(10_000, 20_000, launch=5_110, thread=BACKWARD_THREAD)
    trace.all_reduce(19_000, 23_000, launch=5_150, thread=BACKWARD_THREAD)

    judged = judge(trace)

    rows = [row for row in judged.report["findings"] if row["severity"] != "info"]
    assert [(row["id"], row["charged_ns"]) for row in rows[:2]] == [
        ("ddp-tail-bucket", 3_000_000), (rows[1]["id"], rows[1]["charged_ns"]),
    ]  # fmt: skip
    assert 1_000_000 <= rows[1]["charged_ns"] <= 1_020_000
    for row in rows[:2]:
        assert row["share_of_step"] > 0
        assert row["evidence"]
        assert row["advice"]
        assert row["ranks"] == [0]
        assert row["steps"] == ["ProfilerStep#1"]


@pytest.mark.parametrize("value", ["1", None])
def test_c202_timing_of_collectives_removes_overlap(value: str | None, judge: Judge) -> None:
    from commprof.diagnosis.findings.capture import timing_enabled
    from tests.diagnosis.findings.ground import ground_of

    ground = ground_of(Trace(world_size=1), environment={} if value is None else {"TORCH_NCCL_ENABLE_TIMING": value})

    found = list(timing_enabled(ground))

    assert [case.id for case in found] == (["timing-enabled"] if value else [])
    assert all("overlap" in case.title for case in found)


@pytest.mark.parametrize(("value", "named"), [("1", True), ("8", False), (None, False)])
def test_c162_the_order_of_launches_decides_with_one_connection(value: str | None, named: bool) -> None:
    from commprof.diagnosis.findings.capture import max_connections
    from tests.diagnosis.findings.ground import ground_of

    trace = Trace()
    trace.step(1, 0, 800)
    trace.gemm(20, 520, launch=5)
    trace.all_reduce(520, 620, launch=10)
    environment = {} if value is None else {"CUDA_DEVICE_MAX_CONNECTIONS": value}

    found = list(max_connections(ground_of(trace, environment=environment)))

    assert [case.id for case in found] == (["max-connections"] if named else [])
    assert all("CUDA_DEVICE_MAX_CONNECTIONS=1" in case.title for case in found)


def test_a_step_that_computes_has_no_finding(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 995)
    trace.all_reduce(100, 300)

    judged = judge(trace)

    assert judged.named == []
    assert judged.report["verdict"]["bottleneck"] == "compute"
    assert [row["id"] for row in judged.report["findings"] if row["charged_ns"] is None] == ["not-communication"]
