"""Low bandwidth of messages, whose transfer only the side that comes later tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.kineto import Trace
from tests.cases.test_uneven_exchanges import exchange
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]
STEP, EACH, COUNT = 8_000, 1_500, 4
RANKS: dict[str, Any] = {"ranks": [0, 1], "group": "5", "description": "pp"}


def stage(rank: int, length: int) -> Trace:
    """Four messages of 4 MB per step from rank 0 to rank 1, which waits 300 µs for each; three steps, each launched at
    its begin."""
    trace = Trace(rank=rank)
    for step in range(3):
        trace.step(step, STEP * step, STEP * (step + 1))
        for number in range(COUNT):
            at = STEP * step + EACH * number
            sent = at + 1_000
            launch = STEP * step + 20 * number
            trace.gemm(at, sent if rank == 0 else sent - 300, launch=launch)
            trace.collective(
                "recv" if rank else "send", sent - (300 if rank else 0), sent + length, launch=launch + 10,
                metadata={**RANKS, "Src Rank": 0, "Dst Rank": 1, "elements": 1_000_000, "seq": COUNT * step + number},
            )  # fmt: skip
        trace.gemm(STEP * step + EACH * COUNT, STEP * (step + 1), launch=STEP * step)
    return trace


@pytest.mark.parametrize(("length", "low"), [(200, True), (100, False)])
def test_messages_are_held_against_the_hardware_by_their_later_side(length: int, low: bool, judge: Judge) -> None:
    # 4 MB at 100 GB/s need 40 us, and up to 15 of latency: 55. Of 100 that is more than half, of 200 it is not. What is
    # promised leaves 7 to latency, the least that it is inside a host.
    judged = judge(*(stage(rank, length) for rank in (0, 1)), options=("--hardware", "100"))

    assert ("low-bandwidth" in judged.named) == low
    if low:
        assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx(COUNT * 153_000, rel=0.01)


def both_ways(rank: int, length: int) -> Trace:
    """Both ranks send 4 MB to each other at the same time, four times a step, as soon as they have computed."""
    trace = Trace(rank=rank)
    for step in range(3):
        trace.step(step, STEP * step, STEP * (step + 1))
        for number in range(COUNT):
            at = STEP * step + EACH * number
            launch = STEP * step + 20 * number
            trace.gemm(at, at + 1_000, launch=launch)
            for way in (0, 1):
                trace.collective(
                    "recv" if rank != way else "send", at + 1_000, at + 1_000 + length, launch=launch + 5 + way,
                    stream=21 + way,
                    metadata={**RANKS, "Src Rank": way, "Dst Rank": 1 - way, "elements": 1_000_000,
                              "seq": COUNT * step + number},
                )  # fmt: skip
        trace.gemm(STEP * step + EACH * COUNT, STEP * (step + 1), launch=STEP * step)
    return trace


@pytest.mark.parametrize(("length", "low"), [(200, True), (100, False)])
def test_messages_of_both_directions_do_not_share_a_link(length: int, low: bool, judge: Judge) -> None:
    # As above: 55 us of 200 are little. A link carries both directions at once, so that each has all of it.
    judged = judge(*(both_ways(rank, length) for rank in (0, 1)), options=("--hardware", "100"))

    assert ("low-bandwidth" in judged.named) == low


def beside_a_kernel(lengths: list[int], alone: int = -1) -> list[Trace]:
    """Two ranks that reduce 8 MB in every step, for so many µs, of which the first 50 are beside a kernel; but for the
    step that is ``alone``."""
    traces = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for step, length in enumerate(lengths):
            at = 5_000 * step
            trace.step(step, at, at + 5_000)
            trace.gemm(at, at + (950 if step == alone else 1_000))
            trace.all_reduce(at + 950, at + 950 + length, metadata={"elements": 2_000_000, "seq": step})
            trace.gemm(at + 950 + length, at + 5_000)
        traces.append(trace)
    return traces


@pytest.mark.parametrize(("length", "low"), [(400, True), (150, False)])
def test_calls_that_never_run_alone_are_slow_if_half_of_the_link_would_not_explain_it(
    length: int, low: bool, judge: Judge
) -> None:
    # 8 MB between two ranks at 100 GB/s need 80 us, and up to 15 of latency: 95. With half of the link and the half
    # that counts as healthy that is 380; of 400 it is less, of 150 it is not. Every call begins beside a kernel. With
    # the least latency of 7 us 87 of 400 would be left.
    judged = judge(*beside_a_kernel([length] * 4), options=("--hardware", "100"))

    assert ("low-bandwidth" in judged.named) == low
    if low:
        assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx(313_000, rel=0.001)


@pytest.mark.parametrize(
    ("lengths", "alone", "low"),
    [([300] * 5, -1, False), ([300] * 5, 2, True), ([300, 300, 500, 300, 300], 2, False)],
    ids=["none alone", "one as long as the others", "one that is odd"],
)
def test_one_call_that_runs_alone_speaks_for_those_that_are_no_faster(
    lengths: list[int], alone: int, low: bool, judge: Judge
) -> None:
    # As above: 95 us of 300 are less than half, but with half of the link they would be in order. A call that had all
    # of it and took as long tells that the others had it too; one that took much longer is odd itself.
    judged = judge(*beside_a_kernel(lengths, alone), options=("--hardware", "100"))

    assert ("low-bandwidth" in judged.named) == low


def test_a_call_that_shares_the_link_gets_shorter_in_proportion(judge: Judge) -> None:
    # As above; in every second step the call shares the link and takes 700 us: at 100 GB/s it would take 152.25.
    judged = judge(*beside_a_kernel([400, 700, 400, 700, 400]), options=("--hardware", "100"))

    # Five steps: 400 - 87 in three of them, 700 - 152.25 in two.
    assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx((3 * 313_000 + 2 * 547_750) / 5, rel=0.001)


def packing_first(rank: int) -> Trace:
    """In each of four steps 60 us of packing on the stream of an all-reduce of 8 MB, which takes 400 us."""
    trace = Trace(rank=rank)
    packs = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(float**)"
    for step in range(4):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        trace.gemm(at, at + 1_000)
        trace.kernel(packs, at + 1_000, at + 1_060, stream=22, launch=at + 60)
        sizes = {"elements": 2_000_000, "seq": step}
        trace.all_reduce(at + 1_060, at + 1_460, stream=22, launch=at + 70, metadata=sizes)
        trace.gemm(at + 1_460, at + 5_000, launch=at + 80)
    return trace


def test_packing_on_the_stream_of_slow_calls_is_stated_and_not_promised(judge: Judge) -> None:
    judged = judge(*(packing_first(rank) for rank in (0, 1)), options=("--hardware", "100"))

    assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx(313_000, rel=0.001)
    assert judged.evidence("low-bandwidth")["beside it only kernels that pack and unpack, per step"] == 60_000


def exchanging(rank: int) -> Trace:
    """An all-reduce of 4 MB that takes 405 us in each of four steps, then an all-to-all of 3 MB of unequal splits that
    takes 1000, both exposed."""
    trace = Trace(rank=rank)
    for step in range(4):
        at = 20_000 * step
        trace.step(step, at, at + 20_000)
        trace.gemm(at, at + 2_000)
        trace.all_reduce(at + 2_000, at + 2_405, metadata={"elements": 1_000_000})
        trace.gemm(at + 2_405, at + 4_405)
        exchange(trace, rank, [[1_000_000, 2_000_000], [2_000_000, 1_000_000]], at + 4_405, at + 5_405)
        trace.gemm(at + 5_405, at + 20_000)
    return trace


def test_an_exchange_over_the_same_links_is_slow_like_the_reductions(judge: Judge) -> None:
    judged = judge(*(exchanging(rank) for rank in (0, 1)), options=("--hardware", "100"))

    # One size: of 405 us 40 are needed and 7 left to latency. The exchange has no bandwidth of its own.
    share = 1 - 47 / 405
    back = sum(row["recoverable_ns"] for row in judged.report["findings"] if row["id"] == "low-bandwidth")
    assert back == pytest.approx(share * (405_000 + 1_000_000), abs=99)


def reduced_and_gathered(rank: int, reduced: int = 405, gathered: int = 405) -> Trace:
    """In each of four steps an all-reduce of 4 MB, and a gather of 8 MB, of so many us, both exposed."""
    trace = Trace(rank=rank)
    for step in range(4):
        at = 20_000 * step
        trace.step(step, at, at + 20_000)
        trace.gemm(at, at + 2_000)
        trace.all_reduce(at + 2_000, at + 2_000 + reduced, metadata={"elements": 1_000_000, "seq": 2 * step})
        trace.gemm(at + 2_000 + reduced, at + 4_405)
        gather = {"elements": 1_000_000, "seq": 2 * step + 1}
        trace.collective("_allgather_base", at + 4_405, at + 4_405 + gathered, metadata=gather)
        trace.gemm(at + 4_405 + gathered, at + 20_000)
    return trace


def test_operations_over_the_same_links_are_one_finding(judge: Judge) -> None:
    judged = judge(*(reduced_and_gathered(rank) for rank in (0, 1)), options=("--hardware", "100"))

    # Both move 4 MB over the link: 40 us, and 7 left to latency, of 405. 4 MB in 405 us are 9.88 GB/s.
    (finding,) = [row for row in judged.report["findings"] if row["id"] == "low-bandwidth"]
    assert finding["recoverable_ns"] == pytest.approx(2 * 358_000, abs=99)
    assert "all-gather reaches 9.88 GB/s, all-reduce 9.88 GB/s" in finding["title"]


@pytest.mark.parametrize(("reduced", "back"), [(405, 358_000 + 43_000), (60, None)])
def test_what_goes_over_slow_links_is_slow_however_much_of_it_may_be_latency(
    reduced: int, back: int | None, judge: Judge
) -> None:
    judged = judge(*(reduced_and_gathered(rank, reduced, 90) for rank in (0, 1)), options=("--hardware", "100"))

    # Of the 90 us of the gather 40 are needed and up to 15 left to latency, more than half: it accuses nobody by
    # itself. But the reductions show that the link is slow, and then all but 47 of it comes back, too.
    found = judged.by_id.get("low-bandwidth")
    assert (found and found["recoverable_ns"]) == (back and pytest.approx(back, abs=99))


def test_latency_that_sizes_show_is_no_fault_of_the_link(judge: Judge) -> None:
    judged = judge(*in_pairs(102, 372, (4_000_000, 16_000_000)), options=("--hardware", "100"))

    # 12 MB more take 270 us more: 4 MB take 90, so that 12 are left for no bytes at all, which may well be, up to 15.
    # At 100 GB/s 40 and 160 us are needed besides: 50 and 200 come back.
    assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx(250_000, rel=0.001)


def in_pairs(small: int, large: int, sizes: tuple[int, int]) -> list[Trace]:
    """Two ranks whose all-reduces of two sizes (bytes) last so long (us), one after the other and alone, six steps."""
    traces = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for step in range(6):
            at = 1_500 * step
            trace.step(step, at, at + 1_500)
            trace.gemm(at, at + 100)
            for number, (length, size) in enumerate(zip((small, large), sizes, strict=True)):
                begin = at + 110 + 400 * number
                trace.all_reduce(
                    begin, begin + length, launch=at + 5 + number,
                    metadata={"elements": size // 4, "seq": 2 * step + number},
                )  # fmt: skip
            trace.gemm(at + 900, at + 1_500, launch=at + 9)
        traces.append(trace)
    return traces


@pytest.mark.parametrize(
    ("small", "large", "sizes", "low"),
    [
        (89, 341, (4_000_000, 16_000_000), True),
        (89, 311, (4_000_000, 16_000_000), False),
        (6, 98, (4_000, 4_000_000), True),
        (14, 98, (4_000, 4_000_000), False),
    ],
)
def test_latency_that_shows_is_allowed_for_instead_of_the_usual_one(
    small: int, large: int, sizes: tuple[int, int], low: bool, judge: Judge
) -> None:
    # Given messages of 4 and 16 MB at a peak of 100 GB/s: 40 and 160 us, and 15 more each for latency. Of 89 and 341 us
    # that is more than half (230 of 430). But 252 us for 12 MB more leave 5 for no bytes at all: 200 of 420 are less
    # than half. With 222 us more 15 are left, which is the usual latency: 230 of 400.
    # Of 98 us for 4 MB the 55 are more than half. Where 4 kB take 6, large messages may need 12: 40 of 86 are less.
    # Where 4 kB take 14, large ones may well need the usual 15.
    judged = judge(*in_pairs(small, large, sizes), options=("--hardware", "100"))

    assert ("low-bandwidth" in judged.named) == low
