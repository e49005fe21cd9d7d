"""C037 to C041 and C091 to C094: where a step begins and ends, and what belongs to none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import BACKWARD_THREAD, MAIN_THREAD, Trace, t0
from tests.cases.t0_numbers import assert_t0

Analyze = Callable[..., Run]


def steps(run: Run, rank: int = 0) -> dict[str, Any]:
    """The windows of a rank by name."""
    (row,) = (row for row in run.report["ranks"] if row["rank"] == rank)
    return {step["name"]: step for step in row["steps"]}


def bounds(run: Run) -> list[tuple[str, int, int]]:
    """Name, start and end of each window of rank 0, in µs from the first device start."""
    return [(name, s["start_ns"] // 1000, s["end_ns"] // 1000) for name, s in steps(run).items()]


def test_c037_without_step_marks_there_is_one_window(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    del trace.events[0]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code == 0
    assert bounds(run) == [("window", 0, 900)]
    assert run.report["ranks"][0]["windows"] == "none"
    assert round(100 * steps(run)["window"]["comm_share"], 1) == 33.3
    (note,) = run.notes("no-step-marks")
    assert "step()" in note
    assert "33.3 % of the window" in run.stdout
    assert "per step" not in run.everything
    assert "of step time" not in run.everything


def test_c037_without_step_marks_launch_links_make_no_steps(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(10, 600, launch=2)
    trace.all_reduce(500, 900, launch=4)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("window", 0, 890)]
    assert run.report["ranks"][0]["windows"] == "none"
    assert steps(run)["window"]["exposed_host_ns"] is not None


def test_c038_one_step_mark_is_enough(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(t0().write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["ranks"][0]["mean"]["steps"] == 1
    assert not run.notes("no-step-marks")


@pytest.mark.parametrize(
    ("lost", "incomplete"), [(0, False), (1, False), (2, True), (50, True)], ids=lambda value: str(value)
)
def test_c039_the_last_step_is_kept_and_flagged_only_if_it_was_cut(
    lost: int, incomplete: bool, run_analyze: Analyze, tmp_path: Path
) -> None:
    # 100 kernels per step; of the last step's launches 1 % without a kernel is allowed, more is not.
    trace = Trace()
    for number in range(3):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.all_reduce(t + 910, t + 960, launch=t + 2)
        for kernel in range(99):
            trace.gemm(t + 10 + 9 * kernel, t + 15 + 9 * kernel, launch=t + 4 + 3 * kernel)
    last = [event for event in trace.events if event["cat"] == "kernel"]
    for event in last[len(last) - lost :]:
        trace.events.remove(event)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert list(steps(run)) == ["ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    assert [step["incomplete"] for step in steps(run).values()] == [False, False, incomplete]
    assert len(run.notes("incomplete-step")) == incomplete


def test_c040_overlapping_marks_are_cut_where_the_next_begins(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(5, 0, 100)
    trace.step(6, 98, 200)
    trace.gemm(0, 150)
    trace.all_reduce(90, 200)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#5", 0, 98), ("ProfilerStep#6", 98, 200)]
    assert [step["duration_ns"] for step in steps(run).values()] == [98_000, 102_000]


@pytest.mark.parametrize("order", [1, -1], ids=["marks first", "marks last"])
def test_c041_marks_of_several_threads_and_streams_are_one_step(
    order: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    trace.step(1, 0, 1000, tid=BACKWARD_THREAD)
    trace.step(1, 3, 990, cat="gpu_user_annotation", tid=7)
    trace.events = trace.events[::order]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


def test_gpu_side_marks_are_never_steps(run_analyze: Analyze, tmp_path: Path) -> None:
    # ROCm writes marks of a few µs on the device that say nothing.
    trace = t0()
    trace.step(1, 700, 717, cat="gpu_user_annotation", tid=7)
    trace.step(2, 717, 730, cat="gpu_user_annotation", tid=7)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


def test_numbers_of_steps_may_jump(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for place, number in enumerate((9, 10, 100)):
        t = 1000 * place
        trace.step(number, t, t + 1000)
        trace.gemm(t, t + 600)
        trace.all_reduce(t + 500, t + 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [name for name, *_ in bounds(run)] == ["ProfilerStep#9", "ProfilerStep#10", "ProfilerStep#100"]


def test_c091_a_gap_of_one_stream_filled_by_communication_is_not_idle(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 400)
    trace.gemm(0, 100)
    trace.all_reduce(100, 300)
    trace.gemm(300, 400)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = steps(run)["ProfilerStep#1"]
    assert (step["exposed_comm_ns"], step["idle_ns"]) == (200_000, 0)
    (call,) = run.report["collectives"]
    assert (call["exposed_ns"], call["sole_ns"], call["touched_ns"]) == (200_000, 200_000, 200_000)
    assert run.report["idle"] == []


def test_c092_time_belongs_to_the_step_in_which_it_runs(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 250)
    trace.step(2, 250, 500)
    trace.gemm(50, 90, launch=10)
    trace.all_reduce(100, 200, args={"correlation": 999})  # launched before the capture began
    trace.gemm(300, 400, launch=260)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#1", 0, 250), ("ProfilerStep#2", 250, 350)]
    first = steps(run)["ProfilerStep#1"]
    assert (first["comm_ns"], first["exposed_comm_ns"]) == (100_000, 100_000)
    (call,) = run.report["collectives"]
    assert (call["step"], call["launched_ns"]) == ("ProfilerStep#1", None)
    assert (run.report["coverage"]["device_events"], run.report["coverage"]["linked_device_events"]) == (3, 2)
    assert re.search(r"\b(1 kernel\w* without launch|2 of 3)\b", run.everything)


def test_c093_steps_without_device_work_leave_holes(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for number in range(32):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        if number in (3, 20):
            trace.gemm(t + 100, t + 600, launch=t + 10)
            trace.all_reduce(t + 500, t + 900, launch=t + 20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # Step 3 ends with its own work (900 - 100), long before step 20 starts at 17,000 from there.
    assert bounds(run) == [("ProfilerStep#3", 0, 800), ("ProfilerStep#20", 17_000, 17_800)]
    (row,) = run.report["ranks"]
    without = {entry["name"]: entry["reason"] for entry in row["steps_without_window"]}
    assert without == {f"ProfilerStep#{n}": "no device work" for n in range(32) if n not in (3, 20)}
    assert [step["open"] for step in row["steps"]] == [False, False]  # each ends with its own work
    assert row["mean"]["steps"] == 2
    assert row["mean"]["duration_ns"] == 800_000
    assert row["whole"]["idle_ns"] == 17_800_000 - 2 * 800_000
    assert len(run.notes("steps-without-window")) == 1


def test_c093_a_step_that_launched_no_compute_has_no_window(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for number in range(4):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        if number == 1:
            trace.copy(t + 100, t + 200, launch=t + 10)  # it only prefetches
        else:
            trace.gemm(t + 100, t + 600, launch=t + 10)
            trace.all_reduce(t + 500, t + 900, launch=t + 20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert row["steps_without_window"] == [{"name": "ProfilerStep#1", "reason": "no main compute"}]
    assert bounds(run) == [
        ("ProfilerStep#0", 0, 800),
        ("ProfilerStep#2", 2000, 3000),
        ("ProfilerStep#3", 3000, 3800),
    ]


def test_c093_own_work_that_outlasts_the_hole_is_cut_at_the_next_window(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for number in range(3):
        trace.step(number, 1000 * number, 1000 * number + 1000)
    trace.gemm(100, 600, launch=10)
    trace.all_reduce(500, 2500, launch=20)
    trace.gemm(2100, 2700, launch=2010)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#0", 0, 2000), ("ProfilerStep#2", 2000, 2600)]
    (call,) = run.report["collectives"]
    assert call["exposed_by_step"] == {"ProfilerStep#0": 1_500_000}
    assert call["exposed_ns"] == 1_500_000


def test_side_streams_do_not_start_a_window(run_analyze: Analyze, tmp_path: Path) -> None:
    # A small kernel of step 2 runs on stream 9 while step 1 still computes on the main stream 7.
    trace = Trace()
    trace.step(1, 0, 500)
    trace.step(2, 500, 1000)
    trace.gemm(100, 800, launch=10)
    trace.kernel("prefetch_transform", 550, 560, stream=9, launch=505)
    trace.gemm(900, 1200, launch=510)
    trace.all_reduce(1100, 1300, launch=520)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#1", 0, 800), ("ProfilerStep#2", 800, 1200)]


def test_the_main_stream_ties_to_the_lower_number(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 500)
    trace.step(2, 500, 1000)
    trace.gemm(100, 200, launch=10, stream=9)
    trace.gemm(150, 250, launch=12, stream=7)
    trace.gemm(600, 700, launch=510, stream=9)
    trace.gemm(650, 750, launch=512, stream=7)
    trace.all_reduce(700, 800, launch=520)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # From the first device start at 100: stream 7 starts step 1 at 150 and step 2 at 650.
    assert bounds(run) == [("ProfilerStep#1", 50, 550), ("ProfilerStep#2", 550, 700)]


def test_kernels_of_graphs_are_one_stream_whatever_their_rows(run_analyze: Analyze, tmp_path: Path) -> None:
    # Stream 5 computes 300 per step; the graph's rows 7, 8 and 9 only 200 each, but 600 together.
    trace = Trace()
    for number in (1, 2):
        t = 1000 * (number - 1)
        trace.step(number, t, t + 1000)
        trace.gemm(t + 100, t + 400, stream=5, launch=t + 10)
        launch = trace.runtime("cudaGraphLaunch", t + 20, t + 25)
        for place, stream in enumerate((8, 7, 9)):
            args = {"correlation": launch["args"]["correlation"], "graph node id": place}
            trace.gemm(t + 150 + 200 * place, t + 350 + 200 * place, stream=stream, args=args)
        trace.all_reduce(t + 700, t + 800, launch=t + 30)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # The first graph kernel of step 1 starts at 150 and of step 2 at 1150; the first device start is 100.
    assert bounds(run) == [("ProfilerStep#1", 50, 1050), ("ProfilerStep#2", 1050, 1700)]


RUNTIMES = {
    "cuda_runtime": "cudaLaunchKernel",
    "cuda_driver": "cuLaunchKernelEx",
    "Runtime": "cudaLaunchKernel",
    "xpu_runtime": "zeCommandListAppendLaunchKernel",
    "mtia_runtime": "launch",
    "privateuse1_runtime": "launch",
}


def two_linked_steps() -> Trace:
    """Two steps whose kernels run behind the CPU; the windows are 100–800 and 800–950 on the device."""
    trace = Trace()
    trace.step(1, 0, 500)
    trace.step(2, 500, 1000)
    trace.gemm(100, 700, launch=10)
    trace.gemm(800, 900, launch=600)
    trace.all_reduce(850, 950, launch=610)
    return trace


@pytest.mark.parametrize("cat", RUNTIMES)
def test_launches_of_every_runtime_are_links(cat: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = two_linked_steps()
    for event in trace.events:
        if event["cat"] == "cuda_runtime":
            event |= {"cat": cat, "name": RUNTIMES[cat]}

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["ranks"][0]["windows"] == "launch"
    assert bounds(run) == [("ProfilerStep#1", 0, 700), ("ProfilerStep#2", 700, 850)]
    assert run.report["coverage"]["linked_device_events"] == 3


def test_launch_links_of_the_2021_layout(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = two_linked_steps()
    for event in trace.events:
        old = {"cuda_runtime": "Runtime", "kernel": "Kernel", "user_annotation": "Operator"}
        event["cat"] = old[event["cat"]]
        event["args"]["external id"] = event["args"].pop("External id", 0)
        event["tid"] = f"stream {event['tid']}" if event["cat"] == "Kernel" else str(event["tid"])

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#1", 0, 700), ("ProfilerStep#2", 700, 850)]


def test_a_launch_from_any_thread_counts_for_its_step(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 500, tid=MAIN_THREAD)
    trace.step(2, 500, 1000, tid=MAIN_THREAD)
    trace.gemm(100, 400, launch=10, thread=BACKWARD_THREAD)
    trace.gemm(700, 800, launch=600, thread=BACKWARD_THREAD)
    trace.all_reduce(750, 900, launch=610, thread=77)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert bounds(run) == [("ProfilerStep#1", 0, 600), ("ProfilerStep#2", 600, 800)]
    assert run.report["collectives"][0]["step"] == "ProfilerStep#2"


@pytest.mark.parametrize(
    ("optimizer", "groups"),
    [
        ([2, 4, 6], 3),  # 1-2, 3-4, 5-6
        ([1, 3, 5], 2),  # 2-3, 4-5; a lone 1 and a lone 6 are incomplete
        ([3, 6], 2),
    ],
)
def test_figures_are_per_optimizer_step_where_gradients_accumulate(
    optimizer: list[int], groups: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    period = optimizer[1] - optimizer[0]
    for number in range(1, 7):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(t, t + 600)
        trace.all_reduce(t + 500, t + 900)
        if number in optimizer:
            trace.annotation("Optimizer.step#AdamW.step", t + 910, t + 990)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert len(row["steps"]) == 6  # the table keeps the single windows
    assert row["mean"]["steps"] == groups
    assert row["mean"]["duration_ns"] == period * 1_000_000
    assert row["mean"]["exposed_comm_ns"] == period * 300_000
    assert row["micro_steps"] == period
    assert run.report["verdict"]["exposed_comm_share"] == 0.3


def test_an_optimizer_in_every_step_joins_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.annotation("Optimizer.step#AdamW.step", 910, 990)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["ranks"][0]["mean"]["steps"] == 1


def test_c094_kernels_without_a_launch_stay_in_the_busy_time(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    for number in range(100):
        start = 10 * number
        trace.gemm(start + 5, start + 10, launch=start if number < 60 else None)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert row["whole"]["compute_ns"] == 500_000
    coverage = run.report["coverage"]
    assert (coverage["device_events"], coverage["linked_device_events"]) == (100, 60)
    assert "60 of 100 kernels linked" in run.everything


def test_steps_whose_timestamps_contradict_each_other_have_no_length_of_nothing(
    run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace()
    for number, start in enumerate((100, 100, 2100)):  # the second is a millisecond early
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(start, start + 500, launch=t + 10)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert row["steps_without_window"] == [{"name": "ProfilerStep#0", "reason": "timestamps out of order"}]
    assert bounds(run) == [("ProfilerStep#1", 0, 2000), ("ProfilerStep#2", 2000, 2500)]
