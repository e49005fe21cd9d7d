"""Findings on the CPU's part, on copies and contention, on the recording, and on what has no cause or is none."""

from __future__ import annotations

from tests.builders.kineto import Trace
from tests.cases.test_causes import sharded
from tests.diagnosis.findings.pairs.pair import Pair, Setting, one

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def gap(length: int, name: str | None = None) -> Trace:
    """Two steps of 2000 µs; in each the CPU launches the second kernel only ``length`` µs after the first has ended."""
    trace = Trace(world_size=1)
    for number in (1, 2):
        t = 2000 * (number - 1)
        trace.step(number, t, t + 2000)
        trace.gemm(t + 10, t + 410, launch=t + 5)
        if name:
            trace.annotation(name, t + 12, t + 405 + length)
        trace.gemm(t + 415 + length, t + 2010, launch=t + 410 + length)
    return trace


def host_bound(fires: bool) -> Setting:
    """500 µs until the launch and 5 until its kernel starts; 15 µs of such a gap are no finding."""
    return one(gap(500 if fires else 15))


def input_bound(fires: bool) -> Setting:
    """The same gap, 495 µs of it inside the loader and at most 10 before the kernel that it held up; in the
    neighbour in a range of the program's own."""
    return one(gap(500, LOADER if fires else "prepare"))


def allocator_retries(fires: bool) -> Setting:
    """C151: three times cudaFree and cudaMalloc, 4000 µs without a kernel; in the neighbour one runs meanwhile."""
    trace = Trace(world_size=1)
    trace.step(1, 0, 10_000)
    at = 0
    for release, allocate in ((1000, 500), (1000, 500), (500, 500)):
        idle = release + allocate
        trace.gemm(at + 10, at + 110 + (0 if fires else idle + 10), launch=at + 2)
        trace.runtime("cudaFree", at + 110, at + 110 + release)
        trace.runtime("cudaMalloc", at + 110 + release, at + 110 + idle)
        at += 110 + idle
    trace.gemm(at + 10, at + 1_110, launch=at + 2)
    return one(trace)


def device_synchronisation(fires: bool) -> Setting:
    """C175: fifteen waits of the CPU in a step, each with 300 µs in which nothing runs, and 10 of launching. In the
    neighbour the device works while the CPU waits."""
    trace = Trace(world_size=1)
    for number in (1, 2):
        t = 10_000 * (number - 1)
        trace.step(number, t, t + 10_000)
        at = t
        for _ in range(15):
            trace.gemm(at + 10, at + (110 if fires else 418), launch=at + 5)
            trace.runtime("cudaStreamSynchronize", at + 20, at + 410)
            at += 410
        trace.gemm(at + 10, t + 10_010, launch=at + 5)
    return one(trace)


def blocking_wait(fires: bool) -> Setting:
    """Twice a step the CPU waits for a gather of 500 µs before it launches the kernel that could run beside it; 8
    more until that kernel runs. In the neighbour it launches the kernel at once."""
    trace = Trace()
    for number in (1, 2):
        t = 3000 * (number - 1)
        trace.step(number, t, t + 3000)
        trace.gemm(t + 10, t + 410, launch=t + 2)
        for half in (0, 1):
            at = t + 410 + 1300 * half
            trace.all_gather(at, at + 500, launch=t + 4 if half == 0 else at - 700)
            if fires:
                trace.runtime("cudaStreamSynchronize", at - (400 if half == 0 else 690), at + 502)
                trace.gemm(at + 508, at + 1300, launch=at + 504)
            else:
                trace.gemm(at, at + 1300, launch=at - 390 if half == 0 else at - 680)
    return one(trace)


def comm_on_compute_stream(fires: bool) -> Setting:
    """C089: 100 µs on the stream of the kernels; the neighbour has a stream for communication."""
    trace = Trace()
    trace.step(1, 0, 300)
    trace.gemm(0, 100)
    trace.all_gather(100, 200, stream=7 if fires else 20)
    trace.gemm(200, 300)
    return one(trace)


def copy_bound(fires: bool) -> Setting:
    """A copy from the host ends 150 µs after compute; in the neighbour compute goes on."""
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    trace.gemm(0, 800 if fires else 1000)
    trace.copy(700, 950)
    return one(trace)


def overlap_contention(fires: bool) -> Setting:
    """C100: five kernels alone at 10 ms and five beside an all-reduce at 13, in the neighbour at 10 as well. The cost
    lies inside compute, so no time is charged."""
    beside = 13_000 if fires else 10_000
    trace = Trace()
    trace.step(1, 0, 115_000)
    for index in range(5):
        trace.gemm(10_000 * index, 10_000 * index + 10_000, args={"grid": [8, 1, 1]})
    for index in range(5):
        start = 50_000 + beside * index
        trace.gemm(start, start + beside, args={"grid": [8, 1, 1]})
    trace.all_reduce(50_000, 50_000 + 5 * beside)
    return one(trace)


def max_connections(fires: bool) -> Setting:
    """C162: an all-reduce launched at 10 starts when the kernel launched at 5 has ended, with one connection or 8."""
    trace = Trace()
    trace.step(1, 0, 800)
    trace.gemm(20, 520, launch=5)
    trace.all_reduce(520, 620, launch=10)
    return Setting([trace], environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1" if fires else "8"})


def timing_enabled(fires: bool) -> Setting:
    """C202: collectives are timed; in the neighbour the variable says no."""
    trace = Trace()
    trace.step(1, 0, 800)
    trace.gemm(0, 500)
    trace.all_reduce(500, 600)
    return Setting([trace], environment={"TORCH_NCCL_ENABLE_TIMING": "1" if fires else "0"})


def exposed_communication(fires: bool) -> Setting:
    """C211: 300 µs of a gather with neither launches nor other ranks; in the neighbour launches tell why."""
    trace = Trace()
    trace.step(1, -50, 4000)
    trace.gemm(0, 1000, **({} if fires else {"launch": -20}))
    trace.all_gather(1_010, 1_310, stream=21, **({} if fires else {"launch": 1_005}))
    trace.gemm(1_310, 1_700, **({} if fires else {"launch": 1_007}))
    if not fires:
        sharded(trace)
    return one(trace)


def not_communication(fires: bool) -> Setting:
    """A step that computes for 995 of 1000 µs; in the neighbour for 500, and half of it is exposed communication."""
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 995 if fires else 500)
    trace.all_reduce(100, 300 if fires else 995)
    return one(trace)


PAIRS = {
    "host-bound": Pair(host_bound, 505, 505),
    "input-bound": Pair(input_bound, 495, 495, within=10),
    "allocator-retries": Pair(allocator_retries, 4_000, 4_000),
    "device-synchronisation": Pair(device_synchronisation, 4_500, 4_500, within=150),
    "blocking-wait": Pair(blocking_wait, 1_000, 1_000, within=16),
    "comm-on-compute-stream": Pair(comm_on_compute_stream, 100, 100),
    "copy-bound": Pair(copy_bound, 150, 150),
    "overlap-contention": Pair(overlap_contention, None, None),
    "max-connections": Pair(max_connections, None, None),
    "timing-enabled": Pair(timing_enabled, None, None),
    "exposed-communication": Pair(exposed_communication, 300, 300),
    "not-communication": Pair(not_communication, None, None),
}
