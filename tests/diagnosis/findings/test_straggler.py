"""What a late rank is charged with on the rank that lost the most."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.findings.straggler import own_time
from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged
from tests.diagnosis.findings.ground import ground_of

Judge = Callable[..., Judged]
STEP = 3_000


def rank_of(rank: int, late: int) -> Trace:
    """Four steps of two buckets, 200 and 400 µs. Rank 1 runs its first kernel ``late`` µs longer.

    The other rank waits for it in the first bucket, behind its own kernels. The second bucket queues behind the first.
    """
    trace = Trace(rank=rank)
    mine = late if rank else 0
    for number in range(4):
        at = STEP * number
        first, second = at + 1_000 + late, at + 1_400 + late
        trace.step(number, at, at + STEP)
        trace.gemm(at, at + 1_000 + mine, launch=at + 1)
        trace.all_reduce(at + 1_000 + mine, first + 200, launch=at + 2, metadata={"elements": 1_000_000})
        trace.gemm(at + 1_000 + mine, at + 1_400 + mine, launch=at + 3)
        start = max(at + 1_400 + mine, first + 200)
        trace.all_reduce(start, second + 400, launch=at + 4, metadata={"elements": 2_000_000})
        trace.gemm(at + 1_400 + mine, at + 1_800 + mine, launch=at + 5)
        trace.gemm(second + 400, at + STEP, launch=at + 6)
    return trace


@pytest.mark.parametrize("late", [500, 300])
def test_what_waiting_behind_compute_displaces_is_charged_to_the_late_rank(late: int, judge: Judge) -> None:
    judged = judge(rank_of(0, late), rank_of(1, late))

    # Without it both buckets are through at 1800, when the backward pass ends: all that is exposed comes back.
    finding = judged.by_id["straggler"]
    assert finding["ranks"] == [1]
    assert finding["recoverable_ns"] == pytest.approx(1_000 * late, rel=0.01)
    assert "ddp-tail-bucket" not in judged.named


@pytest.mark.parametrize(
    ("charged", "rank", "claimed"), [(500_000, 1, 500_000), (900_000, 1, 550_000), (500_000, 0, 0)]
)
def test_a_late_rank_that_loses_the_most_itself_is_charged_with_its_own_time(
    charged: int, rank: int, claimed: int
) -> None:
    # Its CPU launches late and its device idles 550 µs: it is the reference rank, and waits for nobody.
    trace = Trace(rank=1)
    for number in range(4):
        at = STEP * number
        trace.step(number, at, at + STEP)
        trace.gemm(at, at + 950, launch=at - 1)
        trace.gemm(at + 1_500, at + STEP, launch=at + 1_500)
    ground = ground_of(trace, environment={})
    row = Straggler(None, None, None, "persistent", charged, 0.2, 4, 4, "host", (), (), (rank,), ())

    claim = own_time(ground, row)

    assert claim.idle is not None
    assert claim.host is not None
    assert (int(claim.idle.sum()), int(claim.host.sum())) == (claimed * len(ground.steps), 0)


def test_a_pause_between_the_operators_of_a_core_is_time_of_its_rank() -> None:
    # 950 us of an operator, 550 us in which nothing runs, and 1500 us of an operator again: it is charged with 500 us.
    trace = Trace(rank=1)
    for number in range(4):
        at = STEP * number
        trace.step(number, at, at + STEP)
        trace.cpu_op("aten::mm", at, at + 950)
        trace.cpu_op("aten::mm", at + 1_500, at + STEP)
        trace.annotation("gloo:all_reduce", at + 2_000, at + 2_100, tid=201)
    ground = ground_of(trace, environment={})
    row = Straggler(None, None, None, "persistent", 500_000, 0.2, 4, 4, "host", (), (), (1,), ())

    claim = own_time(ground, row)

    assert claim.idle is not None
    assert int(claim.idle.sum()) == 500_000 * len(ground.steps)


def test_lateness_from_before_the_capture_does_not_dilute_the_steps_after_it(judge: Judge) -> None:
    # Both ranks compute alike but for 300 us that rank 1 needs more in every step; and it begins 20 ms late.
    late, begins, traces = 300, 20_000, []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for number in range(5):
            at = STEP * number + (begins if number else 0)
            first = begins if number == 0 and rank else at
            ends = at + 1_000 + late + (0 if number else begins)
            trace.step(number, at, ends + 1_700)
            trace.gemm(first, first + 1_000 + (late if rank else 0), launch=first + 1)
            trace.all_reduce(
                first + 1_000 + (late if rank else 0), ends + 200, launch=first + 2, metadata={"elements": 1_000_000}
            )
            trace.gemm(ends + 200, ends + 1_700, launch=first + 3)
        traces.append(trace)

    judged = judge(*traces)

    # What it costs in a step that it begins with the others is 300 us, whatever came before the capture.
    assert judged.by_id["straggler"]["ranks"] == [1]
    assert judged.by_id["straggler"]["charged_ns"] >= 0.95 * 1_000 * late
