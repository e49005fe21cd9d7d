"""Bounds of the step: one basis, one number for each, and no finding that promises more than its bound."""

from __future__ import annotations

import pytest

from tests.builders.kineto import Trace
from tests.diagnosis.findings.test_straggler import Judge, rank_of


def test_bounds_start_at_the_step_of_the_rank_that_loses_the_most(judge: Judge) -> None:
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

    assert judged.report["bounds"]["step_ns"] == 1_200_000


@pytest.mark.parametrize("late", [500, 300])
def test_no_late_rank_promises_more_than_if_no_rank_waited(late: int, judge: Judge) -> None:
    """A late rank gives back calls that come later for it too, which are not waiting themselves."""
    judged = judge(rank_of(0, late), rank_of(1, late))

    bounds, promised = judged.report["bounds"], judged.by_id["straggler"]["recoverable_ns"]
    assert promised == pytest.approx(1_000 * late, rel=0.01)
    assert bounds["step_ns"] == 3_000_000
    assert bounds["no_waiting_ns"] <= bounds["step_ns"] - promised
    assert bounds["without_top_finding_ns"] <= bounds["step_ns"]


def joined(late: int) -> list[Trace]:
    """Two ranks, four steps: 600 µs of compute, on rank 1 ``late`` more, then an all-reduce that takes 400 µs from
    there on, and 100 µs of compute with its result."""
    traces, length = [], 1_100 + late
    for rank in (0, 1):
        trace, mine = Trace(rank=rank), late * rank
        for number in range(4):
            at, end = length * number, length * (number + 1)
            trace.step(number, at, end)
            trace.gemm(at, at + 600 + mine, launch=at + 1)
            trace.all_reduce(at + 600 + mine, end - 100, launch=at + 2, metadata={"elements": 1_000_000})
            trace.gemm(end - 100, end, launch=at + 3)
        traces.append(trace)
    return traces


@pytest.mark.parametrize(
    ("late", "step", "hidden", "said"),
    [
        (0, 1_100_000, 700_000, "400 µs per step (36.4 % of step time on rank 0, which loses the most)"),
        # Rank 0 waits 300 µs more, which would not come back: they are not on the critical path.
        (300, 1_400_000, 1_000_000, "400 µs per step (28.6 % of step time on rank 0, which loses the most)"),
    ],
)
def test_all_communication_hidden_is_one_number(late: int, step: int, hidden: int, said: str, judge: Judge) -> None:
    judged = judge(*joined(late))

    bounds, gain = judged.report["bounds"], judged.report["verdict"]["gain"]
    assert (bounds["step_ns"], bounds["all_hidden_ns"]) == (step, hidden)
    assert gain.startswith(f"At most {said} would come back if all communication were hidden: ")
    assert f": {step / 1e6:.2f} ms would become {'700 µs' if late == 0 else '1.00 ms'}." in gain
    assert judged.report["verdict"]["recoverable_share"] == pytest.approx(1 - hidden / step)
    assert ("not on the critical path" in gain) == (late > 0)
