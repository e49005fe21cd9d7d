"""A run replayed with shorter calls, by hand: what comes back is what neither its CPUs nor other calls take anyway."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import commprof
from commprof.analysis.model import Analysis
from commprof.analysis.shorter_calls import replay_calls
from commprof.analysis.slow_links import intermittent, slow_links
from tests.builders.kineto import Trace
from tests.cases.test_uneven_exchanges import exchange

STEPS, STEP = 5, 8_000


def waiting_cpu(rank: int, busy: int) -> Trace:
    """Steps of 8 ms: 1 ms of compute, an all-reduce of 7 ms; the CPU works until ``busy`` us of the step have passed,
    then it waits for the device."""
    trace = Trace(rank=rank)
    for step in range(STEPS):
        at = STEP * step
        trace.step(step, at, at + STEP)
        trace.gemm(at + 10, at + 1_000, launch=at)
        trace.all_reduce(
            at + 1_000, at + STEP, launch=at + 10, metadata={"ranks": [0, 1], "elements": 25_000_000, "seq": step}
        )
        trace.runtime("cudaStreamSynchronize", at + busy, at + STEP)
    return trace


def analysis_of(folder: Path, traces: list[Trace], hardware: str | None = None) -> Analysis:
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return commprof.analyze(folder, jobs=1, hardware=hardware)


@pytest.mark.parametrize(("busy", "gain"), [(20, 6_000), (5_000, 3_000), (7_900, 100)])
def test_a_step_is_no_shorter_than_what_its_cpu_does(tmp_path: Path, busy: int, gain: int) -> None:
    analysis = analysis_of(tmp_path, [waiting_cpu(rank, busy) for rank in (0, 1)])

    replay = replay_calls(analysis)

    # All-reduces of 1 ms: 2 ms on the device, or as long as the CPU is busy if that is more.
    assert replay is not None
    assert replay.error < 0.001
    assert replay.gain(np.full(STEPS, 6_000_000)) == pytest.approx(1_000 * gain, abs=20_000)


def test_what_is_promised_is_what_the_cpu_lets_come_back(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, [waiting_cpu(rank, 5_000) for rank in (0, 1)], hardware="100")

    found = {finding.id: finding for finding in commprof.diagnose(analysis).findings}

    # 100 MB at 100 GB/s need 1 ms, and 7 us are left to latency: of 7 ms 5.99 are too long, but the CPU is busy for 5.
    assert found["low-bandwidth"].recoverable_ns == pytest.approx(3_000_000, abs=20_000)


def queued_calls(rank: int) -> Trace:
    """Steps of 8 ms: 1 ms of compute, then four all-gathers one behind the other, launched at once: three of 2 ms, the
    last of 990 us. The CPU works for 4 ms, launches another kernel, of 90 us, and waits for the device."""
    trace = Trace(rank=rank)
    for step in range(STEPS):
        at = STEP * step
        trace.step(step, at, at + STEP)
        trace.gemm(at + 10, at + 1_000, launch=at)
        for number in range(4):
            begin = at + 1_000 + 2_000 * number
            trace.collective(
                "_allgather_base", begin, begin + (2_000 if number < 3 else 990), launch=at + 10 * (number + 1),
                metadata={"ranks": [0, 1], "elements": 25_000_000, "seq": 4 * step + number},
            )  # fmt: skip
        trace.gemm(at + 4_010, at + 4_100, launch=at + 4_000)
        trace.runtime("cudaStreamSynchronize", at + 4_020, at + STEP)
    return trace


def test_a_call_does_not_wait_for_compute_that_was_launched_after_it(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, [queued_calls(rank) for rank in (0, 1)])

    replay = replay_calls(analysis)

    # The first three of 100 us: the last ends 2.29 ms after the begin of the step, and the kernel that the CPU launches
    # at 4 ms after 4.1. It lies in the queue of the calls, but none of them needs it. No more than the 4 ms come back
    # for which the CPU does not work.
    assert replay is not None
    assert 3_900_000 <= replay.gain(np.tile([1_900_000] * 3 + [0], STEPS)) <= 4_000_000


def exchanges(rank: int) -> Trace:
    """Eight all-to-alls with unequal splits, 3 MB from each rank in 300 us or 6 MB in 600; two of 3 MB take 1.5 ms."""
    trace = Trace(rank=rank)
    for step in range(4):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        for number in range(2):
            begin, size = at + 2_000 * number, 2 if (step, number) in ((1, 0), (2, 0)) else 1
            trace.gemm(begin, begin + 400)
            length = 1_500 if (step, number) in ((1, 1), (3, 1)) else 300 * size
            matrix = [[1_000_000 * size, 2_000_000 * size], [2_000_000 * size, 1_000_000 * size]]
            exchange(trace, rank, matrix, begin + 400, begin + 400 + length)
        trace.gemm(at + 4_000, at + 5_000)
    return trace


def test_exchanges_of_unequal_splits_are_slow_for_the_bytes_of_the_busiest(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, [exchanges(rank) for rank in (0, 1)])

    (row,) = intermittent(analysis)

    # Twice as many bytes may take twice as long; two take five times as long as others of as many.
    assert row.excess.tolist() == [1_200_000] * 2
    assert row.factors.tolist() == [5.0, 5.0]


def messages(rank: int) -> Trace:
    """Four messages of 4 MB in each of three steps: 20 us, the last 120."""
    trace = Trace(rank=rank)
    for step in range(3):
        trace.step(step, 8_000 * step, 8_000 * (step + 1))
        for number in range(4):
            at = 8_000 * step + 1_500 * number
            ends = {"ranks": [0, 1], "group": "5", "description": "pp", "Src Rank": 0, "Dst Rank": 1}
            trace.gemm(at, at + 1_000)
            trace.collective(
                "recv" if rank else "send", at + 1_000, at + (1_120 if number == 3 else 1_020),
                metadata={**ends, "elements": 1_000_000, "seq": 4 * step + number},
            )  # fmt: skip
        trace.gemm(8_000 * step + 6_000, 8_000 * (step + 1))
    return trace


@pytest.mark.parametrize(("hardware", "slow"), [(None, 3), ("400", 3), ("100", 0)])
def test_a_message_that_was_in_buffers_is_no_measure_of_others(tmp_path: Path, hardware: str | None, slow: int) -> None:
    analysis = analysis_of(tmp_path, [messages(rank) for rank in (0, 1)], hardware)

    # Six times as long as most. But 4 MB in 20 us are 200 GB/s: over a link of 100 they need 40, of which 120 are three
    # times as many, and the others had not crossed it then.
    assert sum(len(row.matches) for row in intermittent(analysis)) == slow


def in_groups(rank: int, slow: dict[int, tuple[int, int]]) -> Trace:
    """Four ranks; in each of six steps all of them reduce 4 MB in 200 us, beside that pairs 0 1 and 2 3 do the same. In
    the steps of ``slow`` the pair 0 1 takes so many us, and so many what all reduce."""
    trace, pair = Trace(rank=rank, world_size=4), [rank - rank % 2, rank - rank % 2 + 1]
    for step in range(6):
        at, end = 5_000 * step, 5_000 * step + 1_000
        trace.step(step, at, at + 5_000)
        trace.gemm(at + 10, end, launch=at)
        of_pair, of_all = slow.get(step, (200, 200))
        longest = max(of_pair, of_all)
        for number, (name, ranks, length) in enumerate(
            (("world", [0, 1, 2, 3], of_all), ("pair", pair, of_pair if rank < 2 else 200))
        ):
            trace.all_reduce(
                end, end + length, stream=20 + number, launch=at + 10 + number,
                metadata={"ranks": ranks, "group": name, "description": name, "elements": 1_000_000, "seq": step},
            )  # fmt: skip
        trace.gemm(end + longest, at + 5_000, launch=at + 20)
    return trace


def test_calls_beside_one_that_is_slow_now_and_then_are_part_of_it(tmp_path: Path) -> None:
    # Twice the pair takes ten times as long, and what all reduce beside it once so long that it is slow by itself, once
    # 560 us: with two on the link it may take that, but most of its kind take 200.
    analysis = analysis_of(tmp_path, [in_groups(rank, {2: (2_000, 2_000), 4: (2_000, 560)}) for rank in range(4)])

    rows = {analysis.groups[row.group].ranks: row for row in intermittent(analysis)}

    assert rows[0, 1].excess.tolist() == [1_800_000] * 2
    assert rows[0, 1].beside_excess.tolist() == [360_000]


def one_slow_pair(rank: int) -> Trace:
    """Eight ranks in pairs that reduce 4 MB, 100 us each, the pair 6 7 in 400; then all reduce as much in 300."""
    trace, pair = Trace(rank=rank, world_size=8), [rank - rank % 2, rank - rank % 2 + 1]
    for step in range(4):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        trace.gemm(at + 10, at + 1_000, launch=at)
        begin = at + 1_000
        for number, (name, ranks, length) in enumerate(
            (("pair", pair, 400 if rank >= 6 else 100), ("world", list(range(8)), 300))
        ):
            trace.all_reduce(
                begin, begin + length, launch=at + 10 + number,
                metadata={"ranks": ranks, "group": name, "description": name, "elements": 1_000_000, "seq": step},
            )  # fmt: skip
            begin = at + 1_400
        trace.gemm(at + 1_700, at + 5_000, launch=at + 20)
    return trace


def test_a_group_without_siblings_is_slow_with_the_link_that_it_needs(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, [one_slow_pair(rank) for rank in range(8)], hardware="100")

    (row,) = slow_links(analysis)

    # The pair takes four times as long as the others: a quarter of its bandwidth is left, and to all eight as well. Of
    # their 300 us 225 are too long, but 4 MB times 7/4 at 100 GB/s need 70: no more than 230 come back.
    assert row.ranks == (6, 7)
    assert row.factor == pytest.approx(4.0)
    assert row.beside_excess.tolist() == [225_000] * 4
