"""The checks of ``commprof doctor``: each on a small run that is sound but for one thing."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from commprof.diagnosis.doctor import CHECKS, Fitness, judge
from commprof.diagnosis.examination import Examination, examine
from commprof.diagnosis.fitness.check import Check, count, part_of
from commprof.manifest import Bucket, Clock, DdpModule, Manifest, StepTimes, write_manifest
from tests.builders.kineto import BASE_NS, GEMM, Trace

FIRST = 5
"""The first recorded step of the sound run."""


def sound(
    rank: int = 0, world: int = 2, *, steps: int = 4, lengths: list[int] | None = None, first: int = FIRST
) -> Trace:
    """``steps`` steps of 1000 µs with one GEMM and one all-reduce each, all linked and described.

    The window of a step begins with its GEMM, 100 µs into its mark, so steps but the last are as long as their marks.
    """
    trace = Trace(rank, world)
    trace.top |= {"host_name": "node1", "record_shapes": 1}
    begin = 0
    for index, length in enumerate(lengths or [1000] * steps):
        trace.step(first + index, begin, begin + length)
        trace.gemm(begin + 100, begin + 500, launch=begin + 50)
        trace.all_reduce(begin + 400, begin + 700, launch=begin + 60)
        begin += length
    return trace


def manifest(rank: int = 0, world: int = 2, **more: Any) -> Manifest:
    """A manifest as the hook writes it: steps 0 to 9 of 1 ms, 5 to 8 recorded."""
    values: dict[str, Any] = {
        "trace": f"rank{rank}.json",
        "recorded_steps": tuple(f"ProfilerStep#{i}" for i in range(5, 9)),
        "steps": StepTimes(first=0, start_ns=tuple(range(10)), duration_ns=(1_000_000,) * 10),
        "clock": Clock(),
        "cores": 8,
        "environment": {"OMP_NUM_THREADS": "1"},
    }
    return Manifest(rank=rank, rank_source="process group", world_size=world, host="node1", **(values | more))


def write(folder: Path, *traces: Trace) -> Path:
    for index, trace in enumerate(traces):
        rank = trace.top.get("distributedInfo", {"rank": index})["rank"]
        trace.write(folder / f"rank{rank}.json")
    return folder


def see(path: Path | list[Path], **more: Any) -> tuple[Examination, Fitness]:
    found = examine(path, **more)
    return found, judge(found)


def named(path: Path, name: str) -> list[Check]:
    """All answers of one name."""
    return [check for check in see(path)[1].checks if check.name == name]


def only(path: Path, name: str) -> Check:
    (check,) = named(path, name)
    return check


def not_passed(fitness: Fitness) -> set[str]:
    return {check.name for check in fitness.checks if check.status != "PASS"}


def test_a_sound_run_with_manifests_passes_every_check(tmp_path: Path) -> None:
    write(tmp_path, sound(0), sound(1))
    write_manifest(tmp_path, manifest(0))
    write_manifest(tmp_path, manifest(1))

    _, fitness = see(tmp_path)

    assert not_passed(fitness) == set()
    assert fitness.fit
    # Every check has something to say about such a run but "one per rank", which speaks only of faults.
    assert len({check.name for check in fitness.checks}) == len(CHECKS) - 1
    assert all(check.advice is None for check in fitness.checks)


def test_without_manifests_only_that_is_missed(tmp_path: Path) -> None:
    write(tmp_path, sound(0), sound(1))

    _, fitness = see(tmp_path)

    assert not_passed(fitness) == {"manifest"}
    assert fitness.fit


def test_every_answer_that_is_no_pass_says_what_to_do(tmp_path: Path) -> None:
    trace = sound(lengths=[9000, 1000, 1000, 1000], first=0)
    trace.top["with_stack"] = 1
    for event in trace.events:
        event["args"].pop("dtype", None)
    write(tmp_path, trace)
    (tmp_path / "rank1.json").write_text("")

    _, fitness = see(tmp_path)

    assert len(not_passed(fitness)) > 4
    assert all((check.advice is None) == (check.status == "PASS") for check in fitness.checks)


# The files


def test_one_line_per_broken_file_and_the_others_are_examined(tmp_path: Path) -> None:
    write(tmp_path, sound(0, 5), sound(3, 5))
    (tmp_path / "rank1.json").write_bytes(b"")
    (tmp_path / "rank2.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "na')
    (tmp_path / "notes.txt").write_text("not a trace")
    (tmp_path / "params.json").write_text('{"lr": 1}')

    found, fitness = see(tmp_path)

    lines = [check.message for check in fitness.checks if check.name == "readable"]
    assert [line.partition(":")[0] for line in lines] == ["rank1.json", "rank2.json"]
    assert not fitness.fit
    assert found.refusal() is None
    assert {path for path, _ in found.passed_over} == {"notes.txt", "params.json"}
    assert [file.rank for file in found.files] == [0, 3]


def test_c213_a_missing_rank_is_named(tmp_path: Path) -> None:
    write(tmp_path, *(sound(rank, 8) for rank in range(8) if rank != 6))

    check = only(tmp_path, "ranks")

    assert (check.status, check.message) == ("WARN", "7 of 8: rank 6 missing")


def test_a_missing_rank_says_why_where_its_manifest_knows(tmp_path: Path) -> None:
    write(tmp_path, sound(0))
    write_manifest(tmp_path, manifest(1, trace=None, partial=True, reason="no step recorded: 9 steps needed"))

    check = only(tmp_path, "ranks")

    assert check.message == "1 of 2: rank 1 missing; rank 1: no step recorded: 9 steps needed"


def test_a_broken_manifest_is_one_line_and_its_trace_is_read(tmp_path: Path) -> None:
    write(tmp_path, sound(0), sound(1))
    write_manifest(tmp_path, manifest(0))
    (tmp_path / "rank-00001.manifest.json").write_text("{")

    found, fitness = see(tmp_path)

    assert [check.message.partition(":")[0] for check in fitness.checks if check.status == "FAIL"] == [
        "rank-00001.manifest.json"
    ]
    assert [(file.rank, file.manifest is not None) for file in found.files] == [(0, True), (1, False)]


@pytest.mark.parametrize(
    ("name", "stated", "part"),
    [
        ("host_rank3.json", None, "rank 3: taken from the file name"),  # C001
        ("trace.json", None, "nothing says which rank trace.json is; rank 0 is assumed"),  # C002
        ("r0-x.json", 3, "r0-x.json states rank 3"),  # C005
    ],
)
def test_c001_c002_c005_where_a_rank_comes_from(tmp_path: Path, name: str, stated: int | None, part: str) -> None:
    trace = sound(0, 4)
    if stated is None:
        del trace.top["distributedInfo"]
    else:
        trace.top["distributedInfo"]["rank"] = stated
    trace.write(tmp_path / name)

    check = only(tmp_path, "rank numbers")

    assert check.status == "WARN"
    assert part in check.message


def test_c003_c004_two_files_for_one_rank_are_both_named(tmp_path: Path) -> None:
    sound(0).write(tmp_path / "rank0.step10.json")
    sound(0).write(tmp_path / "rank0.step20.json")

    _, fitness = see(tmp_path)

    (check,) = [check for check in fitness.checks if check.status == "FAIL"]
    assert check.message == "2 files for rank 0: rank0.step10.json, rank0.step20.json"
    assert check.advice is not None
    assert "--only" in check.advice
    # One capture chosen, nothing is wrong any more.
    assert see(tmp_path, only="*step20*")[1].fit


def test_c029_a_cut_file_fails_with_the_number_of_its_events(tmp_path: Path) -> None:
    text = sound().text()
    cut = text.rindex('{"ph"') + 20
    (tmp_path / "rank0.json").write_text(text[:cut])

    check = only(tmp_path, "complete")

    # 4 steps, each a mark, a GEMM and an all-reduce with their launches: 20 events, and the last one is cut.
    assert check.status == "FAIL"
    assert check.message.startswith("rank0.json is cut after 19 events")


def test_a_capture_that_ended_early_says_why(tmp_path: Path) -> None:
    write(tmp_path, sound(0), sound(1))
    write_manifest(tmp_path, manifest(1, partial=True, reason="ValueError in step 8"))

    check = only(tmp_path, "complete")

    assert (check.status, check.message) == ("WARN", "rank 1: the capture ended early (ValueError in step 8)")


def test_damaged_events_are_counted_and_fail_above_one_in_a_hundred(tmp_path: Path) -> None:
    few, many = sound(steps=50), sound()
    for trace in (few, many):
        trace.gemm(0, 5)["dur"] = -5
    few.write(tmp_path / "few" / "rank0.json")
    many.write(tmp_path / "many" / "rank0.json")

    checks = [only(tmp_path / folder, "clean events") for folder in ("few", "many")]

    # 50 steps are 250 events, 4 are 20; and the damaged one.
    assert [check.status for check in checks] == ["WARN", "FAIL"]
    assert checks[0].message == "1 of 251 events (0.4 %) left out: 1 negative duration"
    assert checks[1].message == "1 of 21 events (4.8 %) left out: 1 negative duration"


def test_unreadable_metadata_is_no_event_left_out(tmp_path: Path) -> None:
    trace = sound()
    trace.top["baseTimeNanoseconds"] = "soon"
    write(tmp_path, trace)

    check = only(tmp_path, "clean events")

    assert (check.status, check.message) == ("WARN", "1 entry of the metadata unreadable")


def test_many_steps_are_too_many(tmp_path: Path) -> None:
    write(tmp_path, sound(steps=21))

    check = only(tmp_path, "size")

    assert check.status == "WARN"
    assert check.message.endswith("105 events in 1 file; 21 steps in one capture")


# What the traces hold


def test_launches_without_kernels_mean_that_the_activity_was_off(tmp_path: Path) -> None:
    trace = sound()
    trace.events = [event for event in trace.events if event["cat"] != "kernel"]
    write(tmp_path, trace)

    _, fitness = see(tmp_path)

    (check,) = [check for check in fitness.checks if check.name == "device work"]
    assert check.status == "FAIL"
    # 4 steps, each a mark and two launches.
    assert check.message == "rank0.json: no device work among 12 events, though the host launched 8 kernels"
    assert check.advice is not None
    assert "ProfilerActivity.CUDA" in check.advice


def test_c182_a_rank_with_a_tenth_of_the_kernels_is_incomplete(tmp_path: Path) -> None:
    ranks = [sound(rank, 4, steps=2 if rank == 2 else 20) for rank in range(4)]
    write(tmp_path, *ranks)

    checks = named(tmp_path, "device work")

    assert [(check.status, check.message) for check in checks] == [
        ("WARN", "rank 2 holds 4 device events, the median rank 40: its capture is incomplete")
    ]


def test_a_job_of_two_ranks_without_collectives_fails_and_of_one_passes(tmp_path: Path) -> None:
    for world in (1, 2):
        trace = sound(world=world)
        trace.events = [event for event in trace.events if "nccl" not in event["name"]]
        trace.write(tmp_path / str(world) / "rank0.json")

    two, one = only(tmp_path / "2", "collectives"), only(tmp_path / "1", "collectives")

    assert (two.status, two.message) == ("FAIL", "none recognised, although the job has 2 ranks")
    assert one.status == "PASS"


def test_a_kernel_that_no_rule_knows_is_named_with_its_share(tmp_path: Path) -> None:
    trace = sound(steps=1)
    # Kernels: GEMM 400, all-reduce 300, this one 300 of 1000 µs.
    trace.kernel("my_exchange", 700, 1000, stream=9, launch=80)
    write(tmp_path, trace)

    check = only(tmp_path, "collectives")

    assert (check.status, check.message) == (
        "WARN",
        "my_exchange: no rule knows this kernel (30.0 % of kernel time)",
    )


def test_the_share_of_linked_work_is_measured(tmp_path: Path) -> None:
    trace = sound(steps=1)
    trace.gemm(800, 900)
    trace.gemm(900, 950)
    write(tmp_path, trace)

    check = only(tmp_path, "launch links")

    assert (check.status, check.message) == ("WARN", "2 of 4 device events (50.0 %) linked to a launch")


def test_groups_and_members_count_over_calls(tmp_path: Path) -> None:
    trace = sound()
    for event in [event for event in trace.events if "nccl" in event["name"]][:3]:
        for key in ("Process Group Name", "Process Group Description", "Process Group Ranks", "Group size"):
            event["args"].pop(key)
    write(tmp_path, trace)

    check = only(tmp_path, "metadata")

    assert (check.status, check.message) == ("WARN", "group and members known for 1 of 4 calls (25.0 %)")


def gloo(shapes: bool) -> Trace:
    """Two all-reduces of gloo in one step; their shapes are recorded or not."""
    trace = Trace(backend="gloo")
    if shapes:
        trace.top["record_shapes"] = 1
    trace.step(FIRST, 0, 1000)
    trace.cpu_op("aten::mm", 0, 500)
    for at in (100, 600):
        args = {"Input Dims": [[[1000]]], "Input type": ["TensorList"]} if shapes else {}
        trace.cpu_op("c10d::allreduce_", at, at + 5, args=args)
        span = trace.annotation("gloo:all_reduce", at + 10, at + 100, tid=201)
        if shapes:
            span["args"] |= {"Input Dims": [[1000]], "Input type": ["float"]}
    return trace


def test_gloo_without_shapes_asks_for_record_shapes(tmp_path: Path) -> None:
    gloo(shapes=False).write(tmp_path / "without" / "rank0.json")
    gloo(shapes=True).write(tmp_path / "with" / "rank0.json")

    without, full = only(tmp_path / "without", "sizes"), only(tmp_path / "with", "sizes")

    assert (without.status, without.message) == ("WARN", "bytes known for 0 of 2 calls (0.0 %)")
    assert without.advice is not None
    assert "record_shapes=True" in without.advice
    assert (full.status, full.message) == ("PASS", "bytes known for all 2 calls")
    # Nothing runs on a device, so there is nothing to link.
    assert named(tmp_path / "with", "launch links") == []


def test_without_any_launch_the_advice_follows_from_what_is_there(tmp_path: Path) -> None:
    bare, filtered = sound(), sound()
    for trace in (bare, filtered):
        trace.events = [event for event in trace.events if event["cat"] != "cuda_runtime"]
    filtered.cpu_op("aten::mm", 0, 10)
    write(tmp_path / "bare", bare)
    write(tmp_path / "filtered", filtered)

    checks = [only(tmp_path / folder, "launch links") for folder in ("bare", "filtered")]

    assert {check.message for check in checks} == {"0 of 8 device events (0.0 %) linked to a launch"}
    assert [("ProfilerActivity.CPU" in str(check.advice)) for check in checks] == [True, False]


# Steps and time


def test_c037_no_step_marks(tmp_path: Path) -> None:
    trace = sound()
    trace.events = [event for event in trace.events if "ProfilerStep" not in event["name"]]
    write(tmp_path, trace)

    check = only(tmp_path, "steps")

    assert check.status == "WARN"
    assert "no step marks" in check.message
    assert check.advice is not None
    assert "step()" in check.advice


@pytest.mark.parametrize(("steps", "closed", "status"), [(1, 0, "WARN"), (2, 1, "WARN"), (3, 2, "PASS")])
def test_the_last_step_has_no_known_end(tmp_path: Path, steps: int, closed: int, status: str) -> None:
    write(tmp_path, sound(steps=steps))

    check = only(tmp_path, "steps")

    assert check.status == status
    assert check.message == f"{count(steps, 'step')} marked, {count(closed, 'step')} with a known end"


def test_c039_a_step_whose_kernels_were_cut_is_named(tmp_path: Path) -> None:
    trace = sound()
    trace.runtime("cudaLaunchKernel", 3300, 3302)
    write(tmp_path, trace)

    check = only(tmp_path, "steps")

    assert check.status == "WARN"
    assert "kernels of ProfilerStep#8 are missing" in check.message


def test_a_step_without_work_has_no_window(tmp_path: Path) -> None:
    trace = sound()
    trace.step(9, 4000, 5000)
    write(tmp_path, trace)

    check = only(tmp_path, "steps")

    assert check.message == "rank 0: 1 of 5 steps without a window (1 with no device work)"


def test_ranks_that_recorded_other_steps(tmp_path: Path) -> None:
    # Steps 5 to 8 on rank 0, 6 to 9 on rank 1, 9 to 12 on rank 2: none is common to all, three to the first two.
    write(tmp_path / "some", sound(0), sound(1, first=6))
    write(tmp_path / "none", sound(0, 3), sound(1, 3, first=6), sound(2, 3, first=9))

    some, none = only(tmp_path / "some", "same steps"), only(tmp_path / "none", "same steps")

    assert some.status == "WARN"
    assert some.message.startswith("3 of 5 steps on every rank")
    assert none.status == "FAIL"


@pytest.mark.parametrize(("host", "status"), [("node1", "FAIL"), ("node2", "WARN")])
def test_captures_apart_in_time(tmp_path: Path, host: str, status: str) -> None:
    """Rank 0 works from 100 to 3700 µs of its base, rank 1 from 100 µs of a base 5 s later."""
    late = sound(1)
    late.top |= {"baseTimeNanoseconds": BASE_NS + 5_000_000_000, "host_name": host}
    write(tmp_path, sound(0), late)

    check = only(tmp_path, "same time")

    # 5 s + 0.1 ms - 3.7 ms = 4.9964 s. The steps are the same: on two hosts the clocks may differ, on one they cannot.
    assert check.status == status
    assert check.message == "rank 1 was recorded 5.00 s after rank 0 had ended"


def test_clocks_and_hosts(tmp_path: Path) -> None:
    nameless, relative = sound(1, 3), sound(2, 3)
    del nameless.top["host_name"]
    del relative.top["baseTimeNanoseconds"]
    write(tmp_path / "nameless", sound(0, 3), nameless)
    write(tmp_path / "relative", sound(0, 3), relative)
    write(tmp_path / "good", sound(0, 3), sound(1, 3), sound(2, 3))

    checks = [only(tmp_path / folder, "clocks") for folder in ("nameless", "relative", "good")]

    assert [check.status for check in checks] == ["WARN", "WARN", "PASS"]
    assert "rank 1: no host name" in checks[0].message
    assert "rank 2: times count from an unknown instant" in checks[1].message
    assert checks[2].message == "Unix times; 3 ranks on 1 host"


def test_a_long_first_step_is_measured_against_the_others(tmp_path: Path) -> None:
    """Closed windows of 3000, 1000 and 1000 µs: three times the median of the others. 1500 µs is not yet too long."""
    write(tmp_path / "long", sound(lengths=[3000, 1000, 1000, 1000]))
    write(tmp_path / "fair", sound(lengths=[1500, 1000, 1000, 1000]))

    long, fair = only(tmp_path / "long", "first step"), only(tmp_path / "fair", "first step")

    assert (long.status, fair.status) == ("WARN", "PASS")
    assert fair.message == "the first recorded step takes 1.50 times the median of the others"
    assert long.message == "rank 0: the first recorded step takes 3.00 ms, the others 1.00 ms (3.0 times)"


def test_recording_from_the_start_of_the_run(tmp_path: Path) -> None:
    write(tmp_path, sound(first=1))

    assert only(tmp_path, "first step").status == "WARN"


@pytest.mark.parametrize(("first_us", "status"), [(500, "PASS"), (501, "WARN")])
def test_a_long_first_collective(tmp_path: Path, first_us: int, status: str) -> None:
    """Three more all-reduces of the same kind last 100 µs: five times that is the limit."""
    trace = Trace(0, 2)
    for index, length in enumerate([first_us, 100, 100, 100]):
        begin = index * 1000
        trace.step(FIRST + index, begin, begin + 1000)
        trace.gemm(begin + 100, begin + 200, launch=begin + 50)
        trace.all_reduce(begin + 300, begin + 300 + length, launch=begin + 60)
    write(tmp_path, trace)

    assert only(tmp_path, "first call").status == status


# What surrounded the capture


def test_python_frames_that_are_most_of_the_events(tmp_path: Path) -> None:
    """20 events of the run, 60 frames: 75 %. With as many frames as other events the limit is not exceeded."""
    for name, frames in (("many", 60), ("half", 20)):
        trace = sound()
        trace.top["with_stack"] = 1
        for _ in range(frames):
            trace.add("python_function", "train.py(7): step", 0, 10, 1, 1, {})
        trace.write(tmp_path / name / "rank0.json")

    many, half = only(tmp_path / "many", "options"), only(tmp_path / "half", "options")

    assert (many.status, half.status) == ("WARN", "PASS")
    assert many.message == "with_stack on: 75.0 % of 80 events are needed by no figure"
    assert many.advice == "Profile with with_stack=False."


def test_c181_one_core_is_too_few(tmp_path: Path) -> None:
    write(tmp_path, *(sound(rank, 5) for rank in range(5)))
    for rank in range(5):
        write_manifest(tmp_path, manifest(rank, 5, cores=1 if rank == 4 else 16))

    check = only(tmp_path, "cores")

    assert (check.status, check.message) == ("WARN", "rank 4: 1 core to run on, the others 16")


def test_c202_timing_of_nccl_removes_overlap(tmp_path: Path) -> None:
    write(tmp_path, sound(0), sound(1))
    write_manifest(tmp_path, manifest(0, environment={"TORCH_NCCL_ENABLE_TIMING": "1"}))
    write_manifest(tmp_path, manifest(1, environment={"TORCH_NCCL_ENABLE_TIMING": "0"}))

    check = only(tmp_path, "environment")

    assert check.status == "WARN"
    assert check.message.startswith("TORCH_NCCL_ENABLE_TIMING=1 on rank 0:")


def test_c162_max_connections_in_the_metadata_is_named_and_no_fault(tmp_path: Path) -> None:
    trace = sound()
    trace.top["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    write(tmp_path / "with", trace)
    write(tmp_path / "without", sound())

    check = only(tmp_path / "with", "environment")

    assert check.status == "PASS"
    assert check.message.startswith("CUDA_DEVICE_MAX_CONNECTIONS=1 on rank 0")
    assert named(tmp_path / "without", "environment") == []


@pytest.mark.parametrize(("profiled_us", "status"), [(1100, "PASS"), (1101, "WARN")])
def test_the_cost_of_the_profiler(tmp_path: Path, profiled_us: int, status: str) -> None:
    """Steps 5 to 8 are profiled, the others take 1000 µs: the limit is 10 % more."""
    lengths = tuple(profiled_us * 1000 if 5 <= step <= 8 else 1_000_000 for step in range(10))
    write(tmp_path, sound(0))
    write_manifest(tmp_path, manifest(steps=StepTimes(first=0, start_ns=tuple(range(10)), duration_ns=lengths)))

    check = only(tmp_path, "profiler cost")

    assert check.status == status
    assert f"({(profiled_us - 1000) / 10:.1f} % more)" in check.message


def test_buckets_of_the_first_iteration(tmp_path: Path) -> None:
    write(tmp_path, sound(0))
    buckets = (Bucket(index=0, size_bytes=4, layout="first-iteration"),)
    write_manifest(tmp_path, manifest(ddp=(DdpModule(module="", buckets=buckets),)))

    check = only(tmp_path, "first step")

    assert check.status == "WARN"
    assert "buckets" in check.message


# The capture to make next


def test_the_same_place_and_length_where_nothing_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "ddp", sound(0, first=30), sound(1, first=30))
    for rank in (0, 1):
        write_manifest(tmp_path / "ddp", manifest(rank))

    again = see(tmp_path / "ddp")[1].recapture

    # First recorded step = skip + warmup = 30, as it was.
    assert (again.skip, again.warmup, again.steps, again.reasons) == (29, 1, 4, ())
    assert '"runs/ddp-again", model=model, skip=29, warmup=1, steps=4' in again.call
    assert again.torch_profiler == "schedule=schedule(wait=29, warmup=1, active=4, repeat=1), record_shapes=True"


def test_later_where_the_first_step_was_not_typical(tmp_path: Path) -> None:
    write(tmp_path, sound(lengths=[3000, 1000, 1000, 1000], first=10))

    again = see(tmp_path)[1].recapture

    # It began with step 10; five further is 15 = skip + warmup.
    assert (again.skip, again.warmup) == (14, 1)
    assert any(reason.startswith("skip=14") for reason in again.reasons)


def test_later_where_only_the_first_call_was_slow(tmp_path: Path) -> None:
    """All steps last 1 ms; the first all-reduce lasts 600 µs, the others 100."""
    trace = Trace(0, 2)
    for index, length in enumerate([600, 100, 100, 100]):
        begin = index * 1000
        trace.step(FIRST + index, begin, begin + 1000)
        trace.gemm(begin + 100, begin + 200, launch=begin + 50)
        trace.all_reduce(begin + 300, begin + 300 + length, launch=begin + 60)
    write(tmp_path, trace)

    reasons = see(tmp_path)[1].recapture.reasons

    assert only(tmp_path, "first step").status == "PASS"
    assert any(reason.endswith("the first calls recorded are not typical, so begin later") for reason in reasons)


def test_whole_periods_of_gradient_accumulation(tmp_path: Path) -> None:
    """The optimizer steps in every second step: three periods hold two whole ones wherever they begin."""
    trace = sound(steps=6)
    for index in (1, 3, 5):
        trace.annotation("Optimizer.step#AdamW.step", index * 1000 + 800, index * 1000 + 900)
    write(tmp_path, trace)

    again = see(tmp_path)[1].recapture

    assert again.steps == 6


def test_the_call_is_python_whatever_the_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / 'a "b"\n{c} ' / "x"
    write(folder.parent, sound(0))

    again = see(folder.parent)[1].recapture

    compile(again.call, "call", "exec")
    assert max(map(len, again.call.splitlines())) <= 76


# Whatever the input


def test_counting_words() -> None:
    assert (count(1, "entry"), count(2, "entry"), count(2000, "launch")) == ("1 entry", "2 entries", "2,000 launches")
    assert (part_of(1, 1, "call"), part_of(3, 3, "call"), part_of(1, 4, "call")) == (
        "the only call",
        "all 3 calls",
        "1 of 4 calls (25.0 %)",
    )


def test_kernel_names_that_are_not_text_do_not_stop_the_checks(tmp_path: Path) -> None:
    trace = sound()
    for event in trace.events:
        if event["name"] == GEMM:
            event["name"] = {"odd": 1}
    write(tmp_path, trace)

    _, fitness = see(tmp_path)

    assert only(tmp_path, "readable").status == "PASS"
    assert any(check.name == "collectives" for check in fitness.checks)


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_gives_answers_or_one_error(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(sound(1).text().encode())
    match seed % 4:
        case 0:
            del data[chance.randrange(len(data)) :]
        case 1:
            for _ in range(20):
                data[chance.randrange(len(data))] = chance.randrange(256)
        case 2:
            start = chance.randrange(len(data))
            del data[start : start + chance.randrange(400)]
        case _:
            start = chance.randrange(len(data))
            data[start:start] = data[: chance.randrange(400)]
    write(tmp_path, sound(0))
    (tmp_path / "rank1.json").write_bytes(data)

    found, fitness = see(tmp_path)

    # The other rank is read whatever happened to this one, and what cannot be read is one FAIL.
    assert 0 in {file.rank for file in found.files}
    assert len(found.files) + len(found.broken) == 2
    assert fitness.checks
    assert found.refusal() is None
