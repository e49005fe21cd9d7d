"""The first line of the report: which part of the step is the bottleneck, at and around its limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]


def step_with(exposed: int, copies: int, idle: int) -> Trace:
    """One step of 1000 µs: compute, then exposed communication, exposed copies and idle time of these lengths.

    20 µs of hidden communication stand beside compute, so that there always is some.
    """
    compute = 1000 - exposed - copies - idle
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, compute)
    trace.all_reduce(0, 20)
    if exposed:
        trace.all_reduce(compute, compute + exposed)
    if copies:
        trace.copy(compute + exposed, compute + exposed + copies)
    return trace


@pytest.mark.parametrize(
    ("exposed", "copies", "idle", "bottleneck"),
    [
        (300, 0, 100, "communication"),
        (100, 0, 0, "communication"),  # at least 10 % of the step
        (99, 0, 0, "compute"),  # all that is no compute is below 10 %
        (100, 0, 200, "communication"),  # at least half of idle
        (100, 0, 201, "host"),
        (30, 10, 20, "compute"),
        (0, 0, 99, "compute"),
        (0, 0, 100, "host"),
        (0, 300, 50, "copy"),
        (50, 50, 300, "host"),
        (50, 95, 100, "balanced"),  # idle and copies within 2 % of the step
        (50, 100, 121, "host"),
    ],
)
def test_the_bottleneck_follows_the_limits(
    exposed: int, copies: int, idle: int, bottleneck: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    run = run_analyze(step_with(exposed, copies, idle).write(tmp_path / "rank0.json"))

    (step,) = run.report["ranks"][0]["steps"]
    assert (step["exposed_comm_ns"], step["exposed_copy_ns"], step["idle_ns"]) == (
        1000 * exposed,
        1000 * copies,
        1000 * idle,
    )
    assert run.report["verdict"]["bottleneck"] == bottleneck
    assert run.report["verdict"]["exposed_comm_share"] == exposed / 1000
    assert run.report["verdict"]["summary"]


def test_exposed_communication_while_the_host_is_late_is_not_blamed(run_analyze: Analyze, tmp_path: Path) -> None:
    # 400 of 1000 µs are exposed, but until 590 nothing was enqueued that could have computed.
    trace = Trace()
    for number in (1, 2):
        t = 1000 * (number - 1)
        trace.step(number, t, t + 1000)
        trace.gemm(t + 10, t + 210, launch=t + 1)
        trace.all_reduce(t + 210, t + 610, launch=t + 4)
        trace.gemm(t + 610, t + 1010, launch=t + 590)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    first = run.report["ranks"][0]["steps"][0]
    assert (first["exposed_comm_ns"], first["exposed_host_ns"], first["exposed_blocking_ns"]) == (
        400_000,
        380_000,
        20_000,
    )
    assert run.report["verdict"]["bottleneck"] == "host"


@pytest.mark.parametrize(("exposed", "doubted"), [(10, True), (1500, False)])
def test_a_verdict_that_rests_on_the_start_of_the_recording_says_so(
    exposed: int, doubted: bool, run_analyze: Analyze, tmp_path: Path
) -> None:
    """The first of twenty all-reduces waits 15 ms for the other rank to start recording; the others are exposed for
    ``exposed`` µs each, which is 0.2 or 28.5 ms."""
    end = 15_000 + 19 * (exposed + 1000)
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, end)
        trace.all_reduce(0 if rank == 0 else 15_000 - exposed, 15_000)
        for at in range(15_000, end, exposed + 1000):
            trace.gemm(at, at + 1000)
            trace.all_reduce(at + 1000, at + 1000 + exposed)
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    verdict = run_analyze(tmp_path / "in").report["verdict"]

    assert verdict["bottleneck"] == "communication"
    assert (verdict["confidence"] == "low") is doubted
    assert ("start of the recording" in verdict["summary"]) is doubted


def test_without_step_marks_nothing_is_called_per_step(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = step_with(300, 0, 0)
    del trace.events[0]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert "step time" not in run.report["verdict"]["summary"]
    assert "per step" not in run.everything
