"""The CPU's part: launching, input, synchronisation, blocking waits, the allocator; copies and contention."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]


def two_steps(gap: int, *, name: str | None = None) -> Trace:
    """Steps of 1000 µs: 400 of compute, then nothing for ``gap`` µs until 400 more were launched and run."""
    trace = Trace(world_size=1)
    for number in (1, 2):
        t = 2000 * (number - 1)
        trace.step(number, t, t + 2000)
        trace.gemm(t + 10, t + 410, launch=t + 5)
        if name:
            trace.annotation(name, t + 12, t + 405 + gap)
        trace.gemm(t + 415 + gap, t + 815 + gap, launch=t + 410 + gap)
        trace.gemm(t + 815 + gap, t + 2010, launch=t + 411 + gap)
    return trace


def test_a_cpu_that_launches_late(judge: Judge) -> None:
    judged = judge(two_steps(500))

    # From 410 to the launch at 910; the 5 µs until the kernel starts are the latency of that launch.
    finding = judged.by_id["host-bound"]
    assert finding["charged_ns"] == finding["recoverable_ns"] == 505_000
    assert judged.named == ["host-bound"]


def test_a_loop_that_waits_for_its_input(judge: Judge) -> None:
    judged = judge(two_steps(500, name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"))

    assert judged.named == ["input-bound"]
    # The range ends 5 µs before the launch: without it these would have passed while the device still computed.
    assert judged.by_id["input-bound"]["charged_ns"] == 500_000
    assert "num_workers" in judged.by_id["input-bound"]["advice"][0]


def test_input_that_the_device_has_no_need_of_yet_is_paid_for_later(judge: Judge) -> None:
    """The batch is fetched while the device computes; the CPU, 300 µs less far ahead, launches the rest too late."""
    trace = Trace(world_size=1)
    for number in (1, 2):
        t = 2000 * (number - 1)
        trace.step(number, t, t + 2000)
        trace.gemm(t + 10, t + 410, launch=t + 5)
        trace.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", t + 6, t + 306)
        trace.gemm(t + 410, t + 460, launch=t + 310)
        trace.gemm(t + 860, t + 2010, launch=t + 860)

    judged = judge(trace)

    # Idle from 460 to the launch at 860: 300 of it the CPU would have been further ahead, the other 100 it is slow.
    assert judged.by_id["input-bound"]["recoverable_ns"] == 300_000
    assert judged.by_id["host-bound"]["recoverable_ns"] == 100_000


def test_a_gap_below_2_percent_is_no_finding(judge: Judge) -> None:
    judged = judge(two_steps(20))

    assert judged.named == []


def test_c151_allocator_retries(judge: Judge) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 10_000)
    at = 0
    for release, allocate in ((1000, 500), (1000, 500), (500, 500)):
        trace.gemm(at + 10, at + 110, launch=at + 2)
        trace.runtime("cudaFree", at + 110, at + 110 + release)
        trace.runtime("cudaMalloc", at + 110 + release, at + 110 + release + allocate)
        at += 110 + release + allocate
    trace.gemm(at + 10, at + 110, launch=at + 2)

    judged = judge(trace)

    finding = judged.by_id["allocator-retries"]
    assert finding["charged_ns"] == 4_000_000
    assert judged.evidence("allocator-retries")["calls per step"] == 3


def test_c155_a_value_that_is_read_between_layers(judge: Judge) -> None:
    from tests.cases.test_causes import sharded

    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, launch=-20)
    trace.cpu_op("aten::item", 10, 1004)
    trace.runtime("cudaStreamSynchronize", 20, 1002)
    trace.all_gather(1010, 1210, stream=21, launch=1005)
    trace.gemm(1210, 1500, launch=1007)
    sharded(trace)

    judged = judge(trace)

    finding = judged.by_id["device-synchronisation"]
    assert finding["charged_ns"] >= 200_000
    assert ".item()" in finding["advice"][0]


def test_c175_copies_to_the_host_with_synchronisation(judge: Judge) -> None:
    # 15 times per step: a copy to the host, waited for during 300 µs in which nothing runs.
    trace = Trace(world_size=1)
    for number in (1, 2):
        t = 10_000 * (number - 1)
        trace.step(number, t, t + 10_000)
        at = t
        for _ in range(15):
            trace.gemm(at + 10, at + 110, launch=at + 5)
            trace.runtime("cudaStreamSynchronize", at + 20, at + 410)
            at += 410
        trace.gemm(at + 10, t + 10_010, launch=at + 5)

    judged = judge(trace)

    # Idle from 110 to the next kernel at 420: 300 µs inside the wait and 10 of launching, 15 times.
    finding = judged.by_id["device-synchronisation"]
    assert finding["charged_ns"] >= 15 * 300_000
    assert judged.report["overall"]["exposed_comm_ns"] == 0


def test_c089_communication_on_the_compute_stream(judge: Judge) -> None:
    trace = Trace()
    trace.step(1, 0, 300)
    trace.gemm(0, 100)
    trace.all_gather(100, 200, stream=7)
    trace.gemm(200, 300)

    judged = judge(trace)

    assert judged.by_id["comm-on-compute-stream"]["charged_ns"] == 100_000
    assert "async_op=True" in judged.by_id["comm-on-compute-stream"]["advice"][0]


def test_exposed_copies(judge: Judge) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    trace.gemm(0, 800)
    trace.copy(700, 950)

    judged = judge(trace)

    assert judged.by_id["copy-bound"]["charged_ns"] == 150_000
    assert judged.named == ["copy-bound"]


def test_c100_overlap_is_not_free(judge: Judge) -> None:
    # Five calls alone at 10 ms, five beside communication at 13 ms: 15 ms in one step.
    trace = Trace()
    trace.step(1, 0, 115_000)
    for index in range(5):
        trace.gemm(10_000 * index, 10_000 * index + 10_000, args={"grid": [8, 1, 1]})
    for index in range(5):
        start = 50_000 + 13_000 * index
        trace.gemm(start, start + 13_000, args={"grid": [8, 1, 1]})
    trace.all_reduce(50_000, 115_000)

    judged = judge(trace)

    finding = judged.by_id["overlap-contention"]
    assert judged.evidence("overlap-contention")["overlap cost per step"] == 15_000_000
    assert finding["recoverable_ns"] is None
    assert finding["severity"] == "info"
    assert any(value == 3_000_000 for value in judged.evidence("overlap-contention").values())


@pytest.mark.parametrize("blocking", [True, False])
def test_waits_on_the_cpu_for_every_collective(blocking: bool, judge: Judge) -> None:
    # Twice a step the next kernel could have run beside an all-reduce of 500 µs; with the wait it is launched after it.
    trace = Trace()
    for number in (1, 2):
        t = 3000 * (number - 1)
        trace.step(number, t, t + 3000)
        trace.gemm(t + 10, t + 410, launch=t + 2)
        for half in (0, 1):
            at = t + 410 + 1300 * half
            trace.all_reduce(at, at + 500, launch=t + 4 if half == 0 else at - 700)
            if blocking:
                trace.runtime("cudaStreamSynchronize", at - (400 if half == 0 else 690), at + 502)
                trace.gemm(at + 508, at + 1300, launch=at + 504)
            else:
                trace.gemm(at, at + 1300, launch=at - 390 if half == 0 else at - 680)

    judged = judge(trace)

    assert ("blocking-wait" in judged.named) is blocking
    if blocking:
        # 500 exposed, and 8 µs of launching afterwards, each time.
        assert 1_000_000 <= judged.by_id["blocking-wait"]["charged_ns"] <= 1_016_000


def test_a_cpu_that_did_not_block_would_be_ahead_behind_other_waits_too(judge: Judge) -> None:
    """The CPU waits for 902 µs, 400 of them computed, then for 504, and later launches a kernel 300 µs too late."""
    trace = Trace()
    for number in (1, 2, 3):
        t = 4000 * (number - 1)
        trace.step(number, t, t + 4000)
        trace.gemm(t + 10, t + 410, launch=t + 2)
        trace.all_gather(t + 410, t + 910, launch=t + 4)
        trace.runtime("cudaStreamSynchronize", t + 10, t + 912)
        trace.all_gather(t + 918, t + 1418, launch=t + 914)
        trace.runtime("cudaStreamSynchronize", t + 916, t + 1420)
        trace.gemm(t + 1428, t + 1628, launch=t + 1424)
        trace.gemm(t + 1928, t + 4010, launch=t + 1924)

    judged = judge(trace)

    # 1000 µs exposed meanwhile; of 1406 waited, 406 are left for the 300 and some launching between the waits.
    back = judged.by_id["blocking-wait"]["recoverable_ns"]
    assert 1_300_000 <= back <= 1_330_000


def test_a_pause_of_the_cpu_is_told_from_its_launches(judge: Judge) -> None:
    """A launch every 100 µs, each kernel 90; after twenty the CPU pauses for 3 ms, once per step."""
    trace = Trace(world_size=1)
    for number in (1, 2):
        at = 7_000 * (number - 1)
        trace.step(number, at, at + 7_000)
        for index in range(40):
            launch = at + 100 * index + (3_000 if index >= 20 else 0)
            trace.gemm(launch + 5, launch + 95, launch=launch)

    judged = judge(trace)

    # From 1995, when the device runs dry, to the launch at 5000, and the 95 in which it still had work: without the
    # pause the CPU would have been ahead by those in the 19 gaps of 5 µs that follow.
    pause = next(row for row in judged.report["findings"] if row["id"] == "host-bound" and row["cause"] == "pause")
    assert pause["charged_ns"] == pause["recoverable_ns"] == 3_100_000
