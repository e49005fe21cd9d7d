"""Several captures in one folder: the newest is read, and that is said."""

from __future__ import annotations

from pathlib import Path

from commprof.manifest import Clock, Manifest, trace_name, write_manifest
from tests.builders.command import analyze, call, strict_json
from tests.builders.kineto import Trace, t0


def capture(folder: Path, rank: int, *, number: int, start_s: int, world: int = 2, exposed_us: int = 400) -> None:
    """A trace of one rank, 1000 µs of compute and one exposed all-reduce per step, with its manifest."""
    trace = Trace(rank=rank, world_size=world)
    for step in range(3):
        start = step * (1000 + exposed_us)
        trace.step(step, start, start + 1000 + exposed_us)
        trace.gemm(start, start + 1000)
        trace.all_reduce(start + 1000, start + 1000 + exposed_us)
    trace.write(folder / trace_name(rank, number))
    clock = Clock(start_ns=start_s * 10**9, stop_ns=(start_s + 2) * 10**9)
    manifest = Manifest(
        rank=rank, rank_source="process group", world_size=world, host="node0", trace=trace_name(rank, number),
        clock=clock,
    )  # fmt: skip
    write_manifest(folder, manifest, number=number)


def test_recording_again_into_a_folder_shows_what_was_recorded_last(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for rank in (0, 1):
        capture(runs, rank, number=1, start_s=1000, exposed_us=400)
        capture(runs, rank, number=2, start_s=2000, exposed_us=100)

    newest = analyze(runs, tmp_path / "new.json")
    first = analyze(runs, tmp_path / "old.json", "--only", "rank-?????.pt.trace.*")

    assert (newest.code, first.code) == (0, 0)
    assert [run.report["overall"]["exposed_comm_ns"] for run in (newest, first)] == [100_000, 400_000]
    (note,) = newest.notes("older-captures")
    assert "the newest is taken; 2 files of older ones left out" in note
    assert "--only 'rank-?????.pt.trace.*'" in note
    assert "the newest is taken" in newest.stderr
    assert first.stderr == ""


def test_ranks_that_only_an_older_run_had_are_left_out(tmp_path: Path) -> None:
    """Four ranks at first, then two: ranks 2 and 3 of the first run are no part of the second."""
    for rank in range(4):
        capture(tmp_path / "runs", rank, number=1, start_s=1000, world=4)
    for rank in range(2):
        capture(tmp_path / "runs", rank, number=2, start_s=2000, world=2)

    run = analyze(tmp_path / "runs", tmp_path / "out.json")

    assert run.report["input"]["ranks"] == [0, 1]
    assert run.report["input"]["world_size"] == 2
    assert len(run.report["input"]["ignored"]) == 4


def test_a_rank_that_was_new_in_the_last_run_belongs_to_it(tmp_path: Path) -> None:
    """One rank of four was left out at first: its only capture has no number, and was recorded with the others."""
    for rank in range(3):
        capture(tmp_path / "runs", rank, number=1, start_s=1000, world=4)
        capture(tmp_path / "runs", rank, number=2, start_s=2000, world=4)
    capture(tmp_path / "runs", 3, number=1, start_s=2001, world=4)

    run = analyze(tmp_path / "runs", tmp_path / "out.json")

    assert run.report["input"]["ranks"] == [0, 1, 2, 3]


def test_doctor_looks_at_the_same_capture(tmp_path: Path) -> None:
    for rank in (0, 1):
        capture(tmp_path / "runs", rank, number=1, start_s=1000)
        capture(tmp_path / "runs", rank, number=2, start_s=2000)

    call("doctor", tmp_path / "runs", "--json", tmp_path / "out.json")

    found = strict_json((tmp_path / "out.json").read_bytes())
    assert [file["path"] for file in found["input"]["files"]] == [trace_name(0, 2), trace_name(1, 2)]
    assert not [check for check in found["checks"] if check["name"] == "one per rank" and check["status"] == "FAIL"]


def test_two_folders_are_told_apart_by_name(tmp_path: Path) -> None:
    """The error names both folders, and what it suggests reads one of them."""
    for folder in ("before", "after"):
        t0().write(tmp_path / folder / "rank0.json")

    code, _, line = call("analyze", tmp_path / "before", tmp_path / "after", "--no-html")
    one = call("analyze", tmp_path / "before", tmp_path / "after", "--no-html", "--only", f"{tmp_path}/after/*")

    assert (code, one[0]) == (2, 0)
    assert f"{tmp_path}/before/rank0.json" in line
    assert f"{tmp_path}/after/rank0.json" in line
    assert f"--only {tmp_path}/after/*" in line.replace("'", "")
    assert "commprof compare" in line
