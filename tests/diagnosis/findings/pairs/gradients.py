"""Findings on gradient reduction and on sharded parameters."""

from __future__ import annotations

from tests.builders.kineto import BACKWARD_THREAD, Trace
from tests.cases.test_causes import layer_then_gather, sharded
from tests.diagnosis.findings.pairs.pair import Pair, Setting, one
from tests.diagnosis.findings.test_bucket_copies import buckets

ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
DEFAULT_BUCKET = 25 * (1 << 20) // 4


def reduced(compute: int, spans: list[tuple[int, int]], elements: list[int], length: int, *, kernels: int = 1) -> Trace:
    """One step that computes from its start, in equal kernels, and all-reduces of these spans and sizes."""
    trace = Trace()
    trace.step(1, 0, length)
    for number in range(kernels):
        trace.gemm(compute // kernels * number, compute // kernels * (number + 1))
    for (start, end), size in zip(spans, elements, strict=True):
        trace.all_reduce(start, end, metadata={"elements": size})
    return trace


def ddp_tail_bucket(fires: bool) -> Setting:
    """C137: of four buckets of 1000 µs the last ends 700 after compute; in the neighbour compute goes on until then."""
    spans = [(start, start + 1_000) for start in (3_000, 5_000, 7_000, 9_000)]
    return one(reduced(9_300 if fires else 10_000, spans, [6_000_000 + i for i in range(4)], 10_100))


def ddp_no_overlap(fires: bool) -> Setting:
    """C138: three equal reductions of 900 µs after seven kernels of 1000. Beside compute they could start after 2333,
    4667 and 7000 µs of it, so all but the last would hide: 1800 come back. In the neighbour the first two do."""
    starts = (7_000, 7_900, 8_800) if fires else (5_000, 5_900, 7_000)
    return one(reduced(7_000, [(s, s + 900) for s in starts], [6_000_000 + i for i in range(3)], 10_000, kernels=7))


def compiled_backward(fires: bool) -> Setting:
    """C139: the burst of C138 after a compiled backward pass; 1800 of 2700 µs come back. In the neighbour the graph is
    split at buckets, and the first two are reduced beside compute."""
    trace = Trace()
    trace.step(1, 0, 10_000)
    trace.gemm(10, 3_000, launch=5)
    trace.cpu_op("CompiledFunctionBackward", 100, 180, tid=BACKWARD_THREAD)
    for number in range(4):
        at = 3_000 + 1_000 * number
        trace.gemm(at, at + 1_000, launch=110 + 5 * number, thread=BACKWARD_THREAD)
    for index, start in enumerate((7_000, 7_900, 8_800) if fires else (4_000, 5_000, 7_000)):
        trace.all_reduce(
            start, start + 900, launch=190 + 5 * index, thread=BACKWARD_THREAD, metadata={"elements": 6_000_000 + index}
        )
    return one(trace)


def reduction_alternates(fires: bool) -> Setting:
    """C156: compute and reduction take turns, 2 x 100 µs; in the neighbour compute goes on beside the reductions."""
    trace = Trace()
    trace.step(1, 0, 500)
    for start in (0, 200, 400):
        trace.gemm(start, start + (100 if fires or start == 400 else 200))
    for start in (100, 300):
        trace.collective("reduce", start, start + 100)
    return one(trace)


def buckets_too_small(fires: bool) -> Setting:
    """C136: sixty reductions of 1 MB, 25 µs each where 10 would do at the rate of the largest: 15 of 25 come back. Four
    of 15 MB each, for 150 µs, move as much in few messages."""
    count, elements, length = (60, 250_000, 25) if fires else (4, 3_750_000, 150)
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 20_000)
        trace.gemm(0, 10_000)
        trace.all_reduce(8_000, 9_000, metadata={"elements": 25_000_000})
        for i in range(count):
            trace.all_reduce(10_000 + length * i, 10_000 + length * (i + 1), metadata={"elements": elements})
        ranks.append(trace)
    return Setting(ranks)


def bucket_too_large(fires: bool) -> Setting:
    """C158: two reductions of 1 GB in 5 ms each, the second after twenty kernels of 1 ms. In buckets of 25 MiB they are
    39 and 39, of 5000/39 µs each. A 78th of the gradients takes 20000/78 µs to make, longer than its bucket: only the
    last bucket stays exposed, and of 5000 µs 5000 - 5000/39 come back. In the neighbour the last bucket
    has 25 MiB."""
    sizes = [250_000_000, 250_000_000 if fires else DEFAULT_BUCKET]
    return one(reduced(20_000, [(8_000, 13_000), (20_000, 25_000)], sizes, 40_000, kernels=20))


def tiny_messages(fires: bool) -> Setting:
    """C159: 400 gathers of 16 KiB, 15 µs each, all exposed: joined in one call all but one 400th comes back. Eight of
    them are not worth a change."""
    trace = Trace()
    trace.step(1, 0, 20_000)
    for index in range(400 if fires else 8):
        trace.gemm(30 * index, 30 * index + 15)
        trace.all_gather(30 * index + 15, 30 * index + 30, metadata={"elements": 2_048, "out_elements": 4_096})
    trace.gemm(12_000, 20_000)
    return one(trace)


def repeated_reduction(fires: bool) -> Setting:
    """C141: three buckets of 500, 700 and 800 µs after each of four backward passes before one optimizer step: three of
    the four series, 6000 µs, are needless. In the neighbour one pass is reduced."""
    trace = Trace()
    trace.step(1, 0, 40_000)
    start = 0
    for number in range(4):
        trace.gemm(start, start + 7_000)
        start += 7_000
        for elements, length in ((1_000_000, 500), (2_000_000, 700), (3_000_000, 800)):
            if fires or number == 3:
                trace.all_reduce(start, start + length, metadata={"elements": elements})
                start += length
    trace.annotation("Optimizer.step#AdamW.step", start, start + 1_000)
    return one(trace)


def find_unused(fires: bool) -> Setting:
    """C140: the search for unused parameters takes 300 µs of a step of 10 ms, in the neighbour 10. What of it would
    shorten the step is not known."""
    trace = reduced(9_000, [(8_000, 9_000)], [6_000_000], 10_000)
    trace.cpu_op("torch.distributed.ddp.reducer::search_unused_parameters", 200, 500 if fires else 210)
    return one(trace)


def bucket_copies(fires: bool) -> Setting:
    """C142: a copy of 50 µs before each of four buckets; in the neighbour the same copies come from the host."""
    return one(buckets("DtoD" if fires else "HtoD"))


def fsdp_no_prefetch(fires: bool) -> Setting:
    """C147: a gather launched early that starts when the layer before it is done, 200 µs; in the neighbour it ran
    beside that layer."""
    return one(layer_then_gather(50, 1_000, 1_200) if fires else layer_then_gather(-15, 790, 990))


def fsdp_late_launch(fires: bool) -> Setting:
    """C148: the same gather launched when the layer before it was done, 200 µs; in the neighbour launched early."""
    return one(layer_then_gather(1_005, 1_010, 1_210) if fires else layer_then_gather(50, 1_000, 1_200))


def fsdp_longer_than_compute(fires: bool) -> Setting:
    """C149: a gather of 20 ms beside 15 ms of compute; in the neighbour it takes 2."""
    trace = Trace()
    trace.step(1, -100, 40_000)
    trace.gemm(0, 15_000, launch=-20)
    trace.all_gather(0, 20_000 if fires else 2_000, stream=21, launch=-50)
    trace.gemm(20_000 if fires else 15_000, 30_000, launch=-10)
    return one(trace)


def fsdp_rate_limiter(fires: bool) -> Setting:
    """C150: 235 µs idle in the limiter, and the gather of 200 that it held back. The neighbour launches it 300 µs
    earlier, without a limiter, beside the layer."""
    if not fires:
        return one(layer_then_gather(-15, 790, 990))
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 200, launch=-20)
    trace.annotation("FullyShardedDataParallel.rate_limiter", 190, 440)
    trace.runtime("cudaEventSynchronize", 200, 435)
    trace.all_gather(445, 645, stream=21, launch=440)
    trace.gemm(645, 900, launch=442)
    sharded(trace)
    return one(trace)


def serialised_communicator(fires: bool) -> Setting:
    """C146: gathers and reductions of 100 µs on two streams and one communicator, all launched before: all but the
    first run after another. With a group of their own for reductions, as in the neighbour, the two run at once."""
    trace = Trace()
    trace.step(1, -100, 1000)
    trace.gemm(-20, 0, launch=-90)
    for place, (call, stream) in enumerate([("_allgather_base", 21), ("_reduce_scatter_base", 22)] * 2):
        start = 100 * place if fires else 100 * (place // 2)
        group = {} if fires or stream == 21 else {"group": "7", "description": "reductions"}
        trace.collective(
            call, start, start + 100, stream=stream, launch=-80 + 5 * place, metadata=group
        )  # fmt: skip
    trace.gemm(400 if fires else 200, 500, launch=-50)
    return one(trace)


def reduce_scatter_queue(fires: bool) -> Setting:
    """Four layers backward. The first reduction takes 400 µs and holds the second, ready at 300, until 600; the last
    layer needs a free buffer and waits for it: from 600 to 800 nothing else runs. In the neighbour the first is done at
    290, and the second runs beside the third layer."""
    trace = Trace()
    trace.step(1, -50, 4_000)
    trace.gemm(0, 100, launch=-20)
    trace.all_gather(10, 60, stream=21, launch=-15)
    trace.cpu_op(ACCUMULATE, 10, 90, tid=BACKWARD_THREAD)
    trace.gemm(100, 200, launch=12, thread=BACKWARD_THREAD)
    trace.reduce_scatter(200, 600 if fires else 290, stream=22, launch=20, thread=BACKWARD_THREAD)
    trace.gemm(200, 300, launch=30, thread=BACKWARD_THREAD)
    second = 600 if fires else 300
    trace.reduce_scatter(second, second + 200, stream=22, launch=40, thread=BACKWARD_THREAD)
    trace.gemm(300, 600, launch=45, thread=BACKWARD_THREAD)
    resumed = 800 if fires else 600
    trace.gemm(resumed, resumed + 700, launch=50, thread=BACKWARD_THREAD)
    return one(trace)


def gather_after_optimizer(fires: bool) -> Setting:
    """C157: 120 µs of gathered parameters after the optimizer; in the neighbour the next forward pass runs beside."""
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 100, launch=1)
    trace.cpu_op(ACCUMULATE, 20, 60, tid=BACKWARD_THREAD)
    trace.gemm(100, 200, launch=25, thread=BACKWARD_THREAD)
    trace.reduce_scatter(140, 200, launch=30, thread=BACKWARD_THREAD)
    trace.annotation("Optimizer.step#AdamW.step", 70, 90)
    trace.gemm(200, 300, launch=75)
    trace.all_gather(300, 420, launch=95)
    trace.step(2, 1000, 2000)
    trace.gemm(1010 if fires else 300, 1100, launch=100)
    return one(trace)


PAIRS = {
    "ddp-tail-bucket": Pair(ddp_tail_bucket, 700, 700),
    "ddp-no-overlap": Pair(ddp_no_overlap, 2_700, 1_800),
    "compiled-backward": Pair(compiled_backward, 2_700, 1_800),
    "reduction-alternates": Pair(reduction_alternates, 200, 200),
    "buckets-too-small": Pair(buckets_too_small, 1_500, 900),
    "bucket-too-large": Pair(bucket_too_large, 5_000, 5_000 - 5_000 / 39),
    "tiny-messages": Pair(tiny_messages, 6_000, 6_000),
    "repeated-reduction": Pair(repeated_reduction, 6_000, 6_000),
    "find-unused": Pair(find_unused, None, None),
    "bucket-copies": Pair(bucket_copies, 200, 200),
    "fsdp-no-prefetch": Pair(fsdp_no_prefetch, 200, 200),
    "fsdp-late-launch": Pair(fsdp_late_launch, 200, 200),
    "fsdp-longer-than-compute": Pair(fsdp_longer_than_compute, 5_000, 5_000),
    "fsdp-rate-limiter": Pair(fsdp_rate_limiter, 435, 435),
    "serialised-communicator": Pair(serialised_communicator, 300, 300),
    "reduce-scatter-queue": Pair(reduce_scatter_queue, 200, 200),
    "gather-after-optimizer": Pair(gather_after_optimizer, 120, 120),
}
