"""Gradient reduction: tail, no overlap, alternation, sizes, repetition, the search for unused parameters."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.kineto import BACKWARD_THREAD, Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]


def reduce(trace: Trace, start: int, end: int, elements: int) -> None:
    """An all-reduce of float32."""
    trace.all_reduce(start, end, metadata={"elements": elements})


def step_of(length: int, compute: int) -> Trace:
    """One step that computes from its start."""
    trace = Trace()
    trace.step(1, 0, length)
    trace.gemm(0, compute)
    return trace


def test_c137_the_last_of_four_buckets_is_the_tail(judge: Judge) -> None:
    trace = step_of(10_000, 9_300)
    for index, start in enumerate((3_000, 5_000, 7_000, 9_000)):
        reduce(trace, start, start + 1_000, 6_000_000 + index)

    judged = judge(trace)

    tail = judged.by_id["ddp-tail-bucket"]
    assert (tail["severity"], tail["charged_ns"], tail["recoverable_ns"]) == ("medium", 700_000, 700_000)
    assert tail["share_of_step"] == 0.07
    assert judged.evidence("ddp-tail-bucket")["number of the last bucket"] == 3
    assert judged.evidence("ddp-tail-bucket")["bytes of the last bucket"] == 4 * 6_000_003
    assert judged.named == ["ddp-tail-bucket"]


@pytest.mark.parametrize(("late", "first"), [(1, "Make the last bucket smaller"), (2, "Send fewer bytes")])
def test_c137_with_several_buckets_left_the_size_of_the_last_one_is_not_the_first_advice(
    late: int, first: str, judge: Judge
) -> None:
    trace = step_of(10_000, 8_000)
    reduce(trace, 4_000, 6_000, 6_000_000)
    for index in range(late):
        reduce(trace, 7_900 + 900 * index, 8_800 + 900 * index, 6_000_001 + index)

    judged = judge(trace)

    assert judged.by_id["ddp-tail-bucket"]["advice"][0].startswith(first)


def test_c138_reductions_that_start_only_after_backward(judge: Judge) -> None:
    trace = step_of(10_000, 7_000)
    for index in range(3):
        reduce(trace, 7_000 + 900 * index, 7_900 + 900 * index, 6_000_000 + index)

    judged = judge(trace)

    assert judged.named == ["ddp-no-overlap"]
    assert judged.by_id["ddp-no-overlap"]["charged_ns"] == 2_700_000
    # Beside the 7000 µs of compute the first two would hide; one of 900 is ready last.
    assert judged.by_id["ddp-no-overlap"]["recoverable_ns"] == 1_800_000
    assert "starts only after backward" in judged.by_id["ddp-no-overlap"]["title"]
    assert judged.report["overall"]["overlap_ratio"] == 0.0


def test_reductions_that_overlap_could_hardly_hide_are_left_over_and_no_lack_of_it(judge: Judge) -> None:
    # All compute of the step takes 60 us: beside it no more than that of 9000 us would hide, 0.6 % of the step.
    trace = step_of(10_000, 60)
    for index in range(3):
        reduce(trace, 60 + 3_000 * index, 3_060 + 3_000 * index, 6_000_000 + index)

    judged = judge(trace)

    assert "ddp-no-overlap" not in judged.by_id
    assert judged.by_id["ddp-tail-bucket"]["charged_ns"] == 9_000_000


def test_overlap_of_some_buckets_is_not_called_none(judge: Judge) -> None:
    trace = step_of(10_000, 7_000)
    reduce(trace, 6_000, 6_900, 6_000_000)
    for index in range(2):
        reduce(trace, 7_000 + 900 * index, 7_900 + 900 * index, 6_000_001 + index)

    judged = judge(trace)

    assert judged.named == ["ddp-tail-bucket"]


@pytest.mark.parametrize(
    "name",
    [
        "CompiledFunctionBackward", "CompiledFunctionBackward0",
        "autograd::engine::evaluate_function: CompiledFunctionBackward",
    ],
)  # fmt: skip
def test_c139_a_compiled_backward_returns_all_gradients_at_once(name: str, judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 10_000)
    trace.gemm(10, 3_000, launch=5)
    trace.cpu_op(name, 100, 180, tid=BACKWARD_THREAD)
    trace.gemm(3_000, 7_000, launch=110, thread=BACKWARD_THREAD)
    for index in range(3):
        trace.all_reduce(
            7_000 + 900 * index, 7_900 + 900 * index, launch=190 + 5 * index, thread=BACKWARD_THREAD,
            metadata={"elements": 6_000_000 + index},
        )  # fmt: skip

    judged = judge(trace)

    finding = judged.by_id["compiled-backward"]
    assert finding["charged_ns"] == 2_700_000
    assert "all gradients at once" in finding["title"]
    assert "DDPOptimizer" in finding["advice"][0]
    assert "compiled autograd" in finding["advice"][0]
    assert "ddp-no-overlap" not in judged.by_id


@pytest.mark.parametrize(("length", "severity"), [(10, "info"), (300, "low")])
def test_c140_the_search_for_unused_parameters(length: int, severity: str, judge: Judge) -> None:
    # 0.1 % and 3 % of a step of 10 ms.
    trace = step_of(10_000, 9_000)
    trace.cpu_op("torch.distributed.ddp.reducer::search_unused_parameters", 200, 200 + length)
    reduce(trace, 8_000, 9_000, 6_000_000)

    judged = judge(trace)

    finding = judged.by_id["find-unused"]
    assert finding["severity"] == severity
    assert judged.evidence("find-unused")["search on the CPU per step"] == 1_000 * length
    assert finding["recoverable_ns"] is None
    assert ("find-unused" in judged.named) is (severity == "low")


def test_c141_four_identical_series_between_two_optimizer_steps(judge: Judge) -> None:
    # Three buckets of 500, 700 and 800 µs after each of four backward passes: 8 ms exposed, 6 of them repeated.
    trace = Trace()
    trace.step(1, 0, 40_000)
    start = 0
    for _ in range(4):
        trace.gemm(start, start + 7_000)
        start += 7_000
        for elements, length in ((1_000_000, 500), (2_000_000, 700), (3_000_000, 800)):
            reduce(trace, start, start + length, elements)
            start += length
    trace.annotation("Optimizer.step#AdamW.step", start, start + 1_000)

    judged = judge(trace)

    finding = judged.by_id["repeated-reduction"]
    assert finding["title"] == "Gradients are reduced 4 times per optimizer step"
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (6_000_000, 6_000_000)
    assert "no_sync" in finding["advice"][0]


def test_equal_buckets_of_one_pass_are_no_repetition(judge: Judge) -> None:
    trace = step_of(20_000, 18_000)
    for index in range(4):
        reduce(trace, 10_000 + 2_100 * index, 12_100 + 2_100 * index, 6_000_000)

    judged = judge(trace)

    assert "repeated-reduction" not in judged.by_id


def test_c145_what_cannot_be_hidden_at_this_size(judge: Judge) -> None:
    # 5 ms of transfer beside 2 ms of compute: at most 40 % of it can be hidden.
    trace = step_of(6_000, 2_000)
    reduce(trace, 500, 5_500, 6_000_000)

    judged = judge(trace)

    assert "cannot be hidden at this size" in judged.text
    assert "40.0 % of communication time" in judged.text


def test_c156_compute_and_reduction_alternate(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 500)
    for start in (0, 200, 400):
        trace.gemm(start, start + 100)
    for start in (100, 300):
        trace.collective("reduce", start, start + 100)

    judged = judge(trace)

    assert judged.named == ["reduction-alternates"]
    assert "alternate" in judged.by_id["reduction-alternates"]["title"]
    assert judged.by_id["reduction-alternates"]["charged_ns"] == 200_000


def test_c158_two_huge_buckets(judge: Judge) -> None:
    trace = step_of(40_000, 20_000)
    reduce(trace, 8_000, 18_000, 250_000_000)
    reduce(trace, 20_000, 30_000, 250_000_000)

    judged = judge(trace)

    finding = judged.by_id["bucket-too-large"]
    assert finding["charged_ns"] == 10_000_000
    assert any("smaller" in line for line in finding["advice"])
    assert judged.named[0] == "bucket-too-large"


def test_one_bucket_with_all_gradients_that_starts_after_backward(judge: Judge) -> None:
    trace = step_of(10_000, 7_000)
    reduce(trace, 7_000, 10_000, 2 << 20)

    judged = judge(trace)

    finding = judged.by_id["bucket-too-large"]
    assert judged.named == ["bucket-too-large"]
    assert finding["charged_ns"] == 3_000_000
    # Eight buckets of 1 MiB last 375 µs each and are ready every 875: the last alone stays.
    assert finding["recoverable_ns"] == 3_000_000 - 375_000


@pytest.mark.parametrize(
    ("start", "elements"),
    [
        pytest.param(7_000, (1 << 19) - 1, id="less than two buckets hold"),
        pytest.param(6_000, 2 << 20, id="compute hides a part"),
    ],
)
def test_one_bucket_that_is_no_fault(start: int, elements: int, judge: Judge) -> None:
    trace = step_of(10_000, 7_000)
    reduce(trace, start, 10_000, elements)

    judged = judge(trace)

    assert "bucket-too-large" not in judged.by_id


def test_one_reduce_scatter_of_all_gradients_is_no_bucket(judge: Judge) -> None:
    trace = step_of(10_000, 7_000)
    trace.collective("reduce_scatter", 7_000, 10_000, metadata={"elements": 2 << 20})

    judged = judge(trace)

    assert "bucket-too-large" not in judged.by_id


def test_a_last_bucket_of_usual_size_is_not_too_large(judge: Judge) -> None:
    trace = step_of(40_000, 20_000)
    for index in range(3):
        reduce(trace, 10_000 + 4_000 * index, 14_000 + 4_000 * index, 6_553_600)

    judged = judge(trace)

    assert "bucket-too-large" not in judged.by_id
    assert judged.named == ["ddp-tail-bucket"]


def test_c136_buckets_too_small(judge: Judge) -> None:
    # 1 MB in 25 µs is 40 GB/s on two ranks; 100 MB in 1 ms is 100 GB/s: 15 of every 25 µs could come back.
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 20_000)
        trace.gemm(0, 10_000)
        reduce(trace, 8_000, 9_000, 25_000_000)
        for index in range(60):
            reduce(trace, 10_000 + 25 * index, 10_025 + 25 * index, 250_000)
        ranks.append(trace)

    judged = judge(*ranks)

    finding = judged.by_id["buckets-too-small"]
    assert finding["charged_ns"] == 1_500_000
    assert finding["recoverable_ns"] == 900_000
    assert finding["confidence"] == "estimate"
    assert any("larger" in line for line in finding["advice"])


def test_c133_a_small_first_bucket_is_by_design(judge: Judge) -> None:
    trace = step_of(20_000, 10_000)
    reduce(trace, 7_000, 7_030, 262_144)
    for index in range(10):
        reduce(trace, 8_000 + 300 * index, 8_300 + 300 * index, 25 * 262_144)

    judged = judge(trace)

    assert "buckets-too-small" not in judged.by_id
    assert "tiny-messages" not in judged.by_id


@pytest.mark.parametrize(("first", "count"), [(1.0, 20), (0.5, 12), (1.0, 3)])
def test_c133_buckets_in_one_go_are_gradients_however_many(first: float, count: int, judge: Judge) -> None:
    # Nothing computes between them, so none is made from the result of the one before, as in tensor parallel.
    trace = step_of(60_000, 30_000)
    start = 5_000
    for mebibytes in (first, *[25.0] * count):
        length = int(60 * mebibytes) + 10
        reduce(trace, start, start + length, int(mebibytes * 262_144))
        start += length

    judged = judge(trace)

    assert {"buckets-too-small", "tiny-messages", "tp-structural"} & set(judged.by_id) == set()
    assert judged.report["strategy"]["name"] == "ddp"


@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_reduce"])
def test_c159_many_tiny_messages_are_one_finding(operation: str, judge: Judge) -> None:
    # 16 KiB each, in turn with compute: joined they would not be, so that the order is not what to change.
    metadata = {
        "all_gather": {"elements": 2_048, "out_elements": 4_096},
        "reduce_scatter": {"elements": 4_096, "out_elements": 2_048},
        "all_reduce": {"elements": 4_096},
    }[operation]
    trace = Trace()
    trace.step(1, 0, 20_000)
    for index in range(400):
        trace.gemm(30 * index, 30 * index + 15)
        getattr(trace, operation)(30 * index + 15, 30 * index + 30, metadata=metadata)

    judged = judge(trace)

    # Buckets of gradients have a size of their own to change; any other call has not.
    (name,) = judged.named
    assert name in ("tiny-messages", "buckets-too-small")
    assert (judged.by_id[name]["calls"], judged.by_id[name]["charged_ns"]) == (400, 6_000_000)
    assert operation != "all_gather" or name == "tiny-messages"


def test_a_few_tiny_messages_are_none(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 1_000)
    for index in range(5):
        trace.gemm(30 * index, 30 * index + 15)
        trace.all_gather(30 * index + 15, 30 * index + 30, metadata={"elements": 2_048, "out_elements": 4_096})

    judged = judge(trace)

    assert "tiny-messages" not in judged.by_id


@pytest.mark.parametrize("hidden", [0, 100, 500, 900, 1000])
def test_c098_a_finding_at_every_share_that_is_exposed(hidden: int, judge: Judge) -> None:
    # 200 µs of communication in a step of 1000; 0 to 100 % of it hidden.
    trace = step_of(1_000, 500)
    reduce(trace, 500 - hidden // 5, 700 - hidden // 5, 1_000_000)

    judged = judge(trace)

    exposed = 0.2 - hidden / 5000
    severities = [row["severity"] for row in judged.report["findings"] if row["severity"] != "info"]
    expected = "high" if exposed >= 0.1 else "medium" if exposed >= 0.05 else "low"
    assert severities == ([expected] if exposed >= 0.02 else [])


@pytest.mark.parametrize(("exposed", "named"), [(1_900, False), (2_100, True)])
def test_c099_findings_start_at_2_percent_of_the_step(exposed: int, named: bool, judge: Judge) -> None:
    trace = step_of(100_000, 90_000)
    reduce(trace, 89_000, 90_000 + exposed, 6_000_000)

    judged = judge(trace)

    assert bool(judged.named) is named


def test_c097_recoverable_times_add_up_to_no_more_than_is_exposed(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 30_000)
    start = 0
    for index in range(20):
        trace.gemm(start, start + 700)
        length = (200, 400, 500, 600, 800)[index % 5]
        reduce(trace, start + 700, start + 700 + length, 1_000_000 + index)
        start += 700 + length

    judged = judge(trace)

    rows = judged.report["findings"]
    assert judged.report["overall"]["exposed_comm_ns"] == 10_000_000
    assert sum(row["recoverable_ns"] or 0 for row in rows) <= 10_000_000
    assert judged.named


@pytest.mark.parametrize("known", [True, False])
def test_c140_the_search_is_no_fault_where_parameters_do_go_unused(known: bool) -> None:
    from commprof.diagnosis.findings import find_unused
    from commprof.manifest import DdpModule, Manifest
    from tests.diagnosis.findings.ground import ground_of

    trace = step_of(10_000, 9_000)
    trace.cpu_op("torch.distributed.ddp.reducer::search_unused_parameters", 200, 500)
    ground = ground_of(trace, environment={})
    module = DdpModule(module="", options={"find_unused_parameters": 1, "unused_parameter_size": 4096 if known else 0})
    ground.analysis.manifests = [Manifest(rank=0, rank_source="default", world_size=2, host="a", ddp=(module,))]

    found = list(find_unused(ground))

    assert [case.cost_ns for case in found] == ([] if known else [300_000])


@pytest.mark.parametrize(("passes", "buckets"), [(2, 2), (8, 3), (4, 5)])
def test_c141_other_numbers_of_passes_and_buckets(passes: int, buckets: int, judge: Judge) -> None:
    # Each pass of 5 ms is followed by buckets of 400 µs and more, all exposed.
    trace = Trace()
    lengths = [400 + 100 * index for index in range(buckets)]
    end = passes * (5_000 + sum(lengths))
    trace.step(1, 0, end + 1_500)
    start = 0
    for _ in range(passes):
        trace.gemm(start, start + 5_000)
        start += 5_000
        for index, length in enumerate(lengths):
            reduce(trace, start, start + length, 1_000_000 * (index + 1))
            start += length
    trace.annotation("Optimizer.step#SGD.step", end, end + 1_000)

    judged = judge(trace)

    finding = judged.by_id["repeated-reduction"]
    assert finding["title"] == f"Gradients are reduced {passes} times per optimizer step"
    assert finding["charged_ns"] == finding["recoverable_ns"] == 1000 * sum(lengths) * (passes - 1)


@pytest.mark.parametrize(("compute", "transfer", "share"), [(3_000, 8_000, "37.5 %"), (2_000, 2_500, "80.0 %")])
def test_c145_other_sizes_that_cannot_be_hidden(compute: int, transfer: int, share: str, judge: Judge) -> None:
    trace = step_of(20_000, compute)
    reduce(trace, 500, 500 + transfer, 6_000_000)

    judged = judge(trace)

    assert "cannot be hidden at this size" in judged.text
    assert f"{share} of communication time" in judged.text


def test_c145_what_fits_beside_compute_is_not_said_to_be_too_large(judge: Judge) -> None:
    trace = step_of(20_000, 6_000)
    reduce(trace, 5_000, 10_000, 6_000_000)

    judged = judge(trace)

    assert "cannot be hidden" not in judged.text


def meeting(computes: tuple[int, int], transfer: int) -> list[Trace]:
    """Two ranks, four steps of 12 ms. Rank 0 enters an all-reduce at once and computes 2 ms beside it, rank 1 computes
    as much beside it and enters it 4 ms later."""
    traces = []
    for rank, compute in enumerate(computes):
        trace, enters = Trace(rank=rank), 4_000 * rank
        for number in range(4):
            at = 12_000 * number
            trace.step(number, at, at + 12_000)
            trace.all_reduce(at + enters, at + 4_000 + transfer, launch=at + 1, metadata={"elements": 1_000_000})
            trace.gemm(at + enters, at + enters + compute, launch=at + 2)
        traces.append(trace)
    return traces


def test_c145_waiting_is_no_matter_of_size(judge: Judge) -> None:
    # Communication takes 5.8 and 1.8 ms, 4 of which rank 0 waits, 2 of these behind its compute: 1.8 are transferred.
    judged = judge(*meeting((2_000, 2_000), 1_800))

    assert not [note for note in judged.report["notes"] if "at this size" in note["message"]]


def test_c145_transfers_that_cannot_be_hidden_are_told_without_waiting(judge: Judge) -> None:
    judged = judge(*meeting((2_000, 2_000), 5_000))

    (note,) = [note["message"] for note in judged.report["notes"] if "at this size" in note["message"]]
    assert note == (
        "Communication without waiting takes 5.00 ms per step, all compute beside it 2.00 ms: it cannot be hidden at "
        "this size. At most 40.0 % of communication time without waiting could be hidden."
    )


def test_c145_of_some_ranks_without_the_others_nothing_is_said(judge: Judge) -> None:
    # Two ranks that share no group with each other, of four: nobody tells how long either waits.
    traces = [Trace(rank=rank, world_size=4) for rank in (0, 1)]
    for rank, trace in enumerate(traces):
        trace.step(1, 0, 6_000)
        trace.gemm(0, 2_000)
        reduce(trace, 500, 5_500, 6_000_000 + rank)

    judged = judge(*traces)

    assert not [note for note in judged.report["notes"] if "at this size" in note["message"]]
