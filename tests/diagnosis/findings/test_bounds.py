"""Bounds of the step: one basis, and no finding that promises more than its bound."""

from __future__ import annotations

import pytest

from tests.builders.kineto import Trace
from tests.diagnosis.findings.test_straggler import Judge, rank_of


def test_bounds_start_at_the_mean_step_of_all_ranks(judge: Judge) -> None:
    """Rank 0 takes 1000 µs a step, rank 1 1200, in 200 of which it idles: it is the one that loses most."""
    traces = []
    for rank, length in enumerate((1_000, 1_200)):
        trace = Trace(rank=rank)
        for number in range(4):
            at = length * number
            trace.step(number, at, at + length)
            trace.gemm(at, at + 1_000, launch=at + 1)
        traces.append(trace)

    judged = judge(*traces)

    assert judged.report["bounds"]["step_ns"] == 1_100_000


@pytest.mark.parametrize("late", [500, 300])
def test_no_late_rank_promises_more_than_if_no_rank_waited(late: int, judge: Judge) -> None:
    """A late rank gives back calls that come later for it too, which are not waiting themselves."""
    judged = judge(rank_of(0, late), rank_of(1, late))

    bounds, promised = judged.report["bounds"], judged.by_id["straggler"]["recoverable_ns"]
    assert promised == pytest.approx(1_000 * late, rel=0.01)
    assert bounds["step_ns"] == 3_000_000
    assert bounds["no_waiting_ns"] <= bounds["step_ns"] - promised
    assert bounds["without_top_finding_ns"] <= bounds["step_ns"]
