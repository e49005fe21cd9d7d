"""Sharded parameters: gathers and reductions that nothing hides, each under its own cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.kineto import BACKWARD_THREAD, Trace
from tests.cases.test_causes import LAYER, layer_then_gather, sharded
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]


def test_c147_a_gather_without_prefetch(judge: Judge) -> None:
    judged = judge(layer_then_gather(50, 1000, 1200))

    finding = judged.by_id["fsdp-no-prefetch"]
    assert finding["charged_ns"] == 200_000
    assert "set_modules_to_forward_prefetch" in finding["advice"][0]
    assert "fsdp-late-launch" not in judged.by_id


def test_what_only_packing_hides_of_a_gather_is_stated_and_not_promised(judge: Judge) -> None:
    trace = layer_then_gather(50, 1000, 1200)
    packs = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(float**)"
    trace.kernel(packs, 1000, 1060, stream=22, launch=60)

    judged = judge(trace)

    # Of the 200 µs the packing of gradients runs beside 60: prefetched, both would run beside the layer.
    assert judged.by_id["fsdp-no-prefetch"]["recoverable_ns"] == 140_000
    assert judged.evidence("fsdp-no-prefetch")["beside it only kernels that pack and unpack, per step"] == 60_000


@pytest.mark.parametrize(("compute", "back"), [(300, 500_000), (120, 420_000)])
def test_what_a_gather_without_prefetch_queues_behind_is_exposed_for_it(compute: int, back: int, judge: Judge) -> None:
    # After two layers: a gather of 200 µs; then a reduction of 100, and behind it on its stream a gather of 200.
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, launch=-20)
    trace.all_gather(1000, 1200, stream=21, launch=50)
    end, backward = 1200 + compute, {"thread": BACKWARD_THREAD}
    trace.cpu_op(LAYER, 51, 58, tid=BACKWARD_THREAD)
    trace.gemm(1200, end, launch=52, **backward)
    trace.cpu_op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 59, 61, tid=BACKWARD_THREAD)
    trace.reduce_scatter(end, end + 100, stream=21, launch=60, **backward)
    trace.all_gather(end + 100, end + 300, stream=21, launch=62, **backward)
    trace.cpu_op(LAYER, 63, 70, tid=BACKWARD_THREAD)
    trace.gemm(end + 300, end + 600, launch=64, **backward)

    judged = judge(trace)

    # Prefetched, gathers run beside the layer before them and the reduction beside the one after it: all of them are
    # hidden, but for what the second gather takes longer than the layer between.
    finding = judged.by_id["fsdp-no-prefetch"]
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (500_000, back)


def test_a_gather_can_be_prefetched_beside_communication_on_other_streams(judge: Judge) -> None:
    # Given a layer of 60 us, an exposed all-reduce of tensor parallelism of 180, 20 us more of the layer, and then a
    # gather of 200 us.
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 60, launch=-20)
    group = {"description": "tp", "ranks": [0, 1], "group": "9"}
    trace.all_reduce(60, 240, stream=31, launch=-15, metadata=group)
    trace.gemm(240, 260, launch=-10)
    trace.all_gather(260, 460, stream=21, launch=50)
    trace.gemm(460, 2000, launch=52)
    sharded(trace)

    judged = judge(trace)

    # Then all of it could run beside the three: its own stream is free for 260 us before.
    finding = judged.by_id["fsdp-no-prefetch"]
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (200_000, 200_000)


def test_a_gather_that_queues_was_not_prefetched_where_another_step_shows_that_none_is(judge: Judge) -> None:
    # Given a step with a gather of 200 us after its layer; and one in which one of 200 us queues behind a reduction of
    # 100.
    trace = Trace()
    trace.step(1, -50, 2000)
    trace.gemm(0, 1000, launch=-20)
    trace.all_gather(1000, 1200, stream=21, launch=50)
    trace.gemm(1200, 1990, launch=52)
    trace.step(2, 2000, 5000)
    backward = {"thread": BACKWARD_THREAD}
    trace.cpu_op(LAYER, 2051, 2058, tid=BACKWARD_THREAD)
    trace.gemm(2060, 3000, launch=2052, **backward)
    trace.cpu_op(
        "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 2059, 2061, tid=BACKWARD_THREAD
    )
    trace.reduce_scatter(3000, 3100, stream=21, launch=2060, **backward)
    trace.all_gather(3100, 3300, stream=21, launch=2062, **backward)
    trace.cpu_op(LAYER, 2063, 2070, tid=BACKWARD_THREAD)
    trace.gemm(3300, 3900, launch=2064, **backward)
    trace.step(3, 5000, 5100)
    trace.gemm(5000, 5090, launch=2070)

    judged = judge(trace)

    # Then in both the gather could run beside the layer before, and the reduction beside the one after it.
    finding = judged.by_id["fsdp-no-prefetch"]
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (250_000, 250_000)


def test_c148_a_gather_that_the_cpu_launched_late(judge: Judge) -> None:
    judged = judge(layer_then_gather(1005, 1010, 1210))

    assert judged.by_id["fsdp-late-launch"]["charged_ns"] == 200_000
    assert "fsdp-no-prefetch" not in judged.by_id


@pytest.mark.parametrize(("length", "exposed"), [(2, 0), (20, 5_000_000)])
def test_c149_a_gather_longer_than_the_layer_beside_it(length: int, exposed: int, judge: Judge) -> None:
    trace = Trace()
    trace.step(1, -100, 40_000)
    trace.gemm(0, 15_000, launch=-20)
    trace.all_gather(0, 1000 * length, stream=21, launch=-50)
    trace.gemm(20_000, 30_000, launch=-10)

    judged = judge(trace)

    assert judged.by_id.get("fsdp-longer-than-compute", {"charged_ns": 0})["charged_ns"] == exposed
    assert "fsdp-no-prefetch" not in judged.by_id


@pytest.mark.parametrize(("role", "charged"), [("shard", 1_500_000), ("tp", 0)])
def test_a_gather_that_queues_behind_a_longer_one_is_no_unnamed_communication(
    role: str, charged: int, judge: Judge
) -> None:
    # Given a gather of a unit that runs on for 900 us after the layer beside it, and one of 600 us queued behind it.
    trace = Trace()
    trace.step(1, -100, 3_000)
    trace.gemm(0, 100, launch=-60)
    group = {"description": role, "ranks": [0, 1], "group": "7"}
    trace.all_gather(0, 1_000, stream=21, launch=-80, metadata=group)
    trace.all_gather(1_000, 1_600, stream=21, launch=-50, metadata=group)
    trace.gemm(1_600, 3_000, launch=-40)

    judged = judge(trace)

    # Then both take longer than the compute beside them; what is no unit of parameters is nothing of the kind.
    assert judged.by_id.get("fsdp-longer-than-compute", {"charged_ns": 0})["charged_ns"] == charged


def test_c150_the_rate_limiter(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 200, launch=-20)
    trace.annotation("FullyShardedDataParallel.rate_limiter", 190, 440)
    trace.runtime("cudaEventSynchronize", 200, 435)
    trace.all_gather(445, 645, stream=21, launch=440)
    trace.gemm(645, 900, launch=442)
    sharded(trace)

    judged = judge(trace)

    # 235 µs idle in the limiter, and the gather of 200 µs that it held back.
    finding = judged.by_id["fsdp-rate-limiter"]
    assert finding["charged_ns"] == 435_000
    assert judged.evidence("fsdp-rate-limiter")["idle while held back"] == 235_000
    assert "limit_all_gathers" in finding["advice"][0]


def test_c146_one_communicator_serialises(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, -100, 1000)
    trace.gemm(-20, 0, launch=-90)
    for place, (call, stream) in enumerate([("_allgather_base", 21), ("_reduce_scatter_base", 22)] * 2):
        trace.collective(call, 100 * place, 100 * place + 100, stream=stream, launch=-80 + 5 * place)
    trace.gemm(400, 500, launch=-50)

    judged = judge(trace)

    assert judged.by_id["serialised-communicator"]["charged_ns"] == 300_000


def test_c157_parameters_gathered_after_the_optimizer(judge: Judge) -> None:
    from tests.builders.kineto import BACKWARD_THREAD

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

    judged = judge(trace)

    assert judged.by_id["gather-after-optimizer"]["charged_ns"] == 120_000
    assert "fsdp-no-prefetch" not in judged.by_id
    assert judged.by_id["ddp-tail-bucket"]["charged_ns"] == 60_000


def test_hidden_gathers_are_no_finding(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, launch=-20)
    trace.all_gather(100, 300, stream=21, launch=-10)
    trace.gemm(1000, 3900, launch=-5)

    judged = judge(trace)

    assert judged.named == []
