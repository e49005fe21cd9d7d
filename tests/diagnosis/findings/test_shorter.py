"""What comes back when calls transfer for less time, also through what queues behind them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]

MB = 1_000_000


def rank_with(rank: int, *, queued: bool) -> Trace:
    """Nine equal all-reduces, the last of which takes 900 instead of 100 µs, all hidden; a larger one follows it and is
    exposed for 300 µs. It was ready before (``queued``) or only when the one before it ended."""
    trace = Trace(rank=rank)
    trace.step(1, 0, 20_000)
    trace.gemm(0, 8_900, launch=1)
    for index in range(8):
        trace.all_reduce(1_000 * index + 100, 1_000 * index + 200, launch=2 + index, metadata={"elements": MB})
    trace.all_reduce(9_000, 9_900, launch=10, metadata={"elements": MB})
    if queued:
        trace.all_reduce(9_900, 10_300, launch=11, metadata={"elements": 4 * MB})
        trace.gemm(8_900, 10_000, launch=12)
    else:
        trace.gemm(8_900, 9_900, launch=11)
        trace.all_reduce(9_900, 10_300, launch=12, metadata={"elements": 4 * MB})
        trace.gemm(9_900, 10_000, launch=13)
    trace.gemm(10_300, 20_000, launch=14)
    return trace


@pytest.mark.parametrize(("queued", "back"), [(True, 300_000), (False, 0)])
def test_a_hidden_delay_is_paid_by_what_queues_behind_it(queued: bool, back: int, judge: Judge) -> None:
    judged = judge(*(rank_with(rank, queued=queued) for rank in (0, 1)))

    # 800 µs too long: the next call would end 800 µs earlier and expose nothing, unless its gradients came no sooner.
    found = judged.by_id.get("network-intermittent")
    assert (found["recoverable_ns"] if found else 0) == back


def test_a_call_gives_back_all_that_it_lasts_too_long(judge: Judge) -> None:
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 20_000)
        trace.gemm(0, 9_000, launch=1)
        for index in range(8):
            trace.all_reduce(1_000 * index + 100, 1_000 * index + 200, launch=2 + index, metadata={"elements": MB})
        trace.all_reduce(8_500, 9_400, launch=10, metadata={"elements": MB})
        trace.gemm(9_400, 20_000, launch=11)
        ranks.append(trace)

    judged = judge(*ranks)

    # Of 900 µs, 500 are hidden and 400 exposed; with the usual 100 it would have ended at 8,600, behind compute.
    assert judged.by_id["network-intermittent"]["recoverable_ns"] == 400_000
