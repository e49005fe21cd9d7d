"""C001 to C009: which file is which rank, and which files of a folder are traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace, comm_args, t0
from tests.cases.t0_numbers import assert_t0, file_entry

Analyze = Callable[..., Run]


def without_info() -> Trace:
    """``T0`` that does not say which rank it is."""
    trace = t0()
    del trace.top["distributedInfo"]
    return trace


def of_rank(rank: int, world_size: int = 2) -> Trace:
    """``T0`` as seen by another rank."""
    trace = Trace(rank=rank, world_size=world_size)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.all_reduce(500, 900)
    return trace


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("host_rank3.json", 3),
        ("rank3.json", 3),
        ("rank-3.json", 3),
        ("rank_3.json", 3),
        ("rank3.step10.json", 3),
        ("trace_rank_12.pt.trace.json", 12),
        ("worker7_step_12.1694128201553.pt.trace.json", 7),
    ],
)
def test_c001_rank_from_the_file_name(name: str, rank: int, run_analyze: Analyze, tmp_path: Path) -> None:
    path = without_info().write(tmp_path / name)

    run = run_analyze(path)

    assert_t0(run, rank=rank)
    assert file_entry(run)["rank_source"] == "filename"
    assert len([line for line in run.lines if "rank" in line.lower() and name in line]) == 1


@pytest.mark.parametrize("name", ["trace.json", "train.pt.trace.json", "t0.json"])
def test_c002_rank_assumed_where_nothing_says_it(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    path = without_info().write(tmp_path / name)

    run = run_analyze(path)

    assert_t0(run, rank=0)
    assert file_entry(run)["rank_source"] == "default"
    assert len(run.notes("rank-assumed")) == 1
    assert len([line for line in run.lines if "rank" in line.lower() and name in line]) == 1


@pytest.mark.parametrize("says", [True, False], ids=["both say so", "neither says anything"])
def test_c003_two_files_of_one_rank_are_refused(says: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (t0() if says else without_info()).write(tmp_path / "in" / name)

    run = run_analyze(tmp_path / "in")

    assert (run.code, run.report) == (2, None)
    assert len(run.lines) == 1
    assert "a.json" in run.lines[0]
    assert "b.json" in run.lines[0]


def test_c003_also_when_the_files_are_listed(run_analyze: Analyze, tmp_path: Path) -> None:
    paths = [t0().write(tmp_path / "x" / "one.json"), t0().write(tmp_path / "y" / "two.json")]

    run = run_analyze(paths)

    assert (run.code, len(run.lines)) == (2, 1)
    assert "one.json" in run.lines[0]
    assert "two.json" in run.lines[0]


@pytest.mark.parametrize("says", [True, False], ids=["with distributedInfo", "by file name"])
def test_c004_two_captures_of_one_rank_name_the_option(says: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    names = ["rank0.step10.json", "rank0.step20.json"]
    for name in names:
        (t0() if says else without_info()).write(tmp_path / "in" / name)

    refused = run_analyze(tmp_path / "in")
    chosen = run_analyze(tmp_path / "in", "--only", "*step20*")

    assert (refused.code, len(refused.lines)) == (2, 1)
    assert all(name in refused.lines[0] for name in [*names, "--only"])
    assert_t0(chosen)
    assert [Path(file["path"]).name for file in chosen.report["input"]["files"]] == [names[1]]


def test_c005_the_content_wins_over_the_file_name(run_analyze: Analyze, tmp_path: Path) -> None:
    path = of_rank(3, world_size=4).write(tmp_path / "r0-x.json")
    other = of_rank(3, world_size=4).write(tmp_path / "rank0.json")

    for named in (path, other):
        run = run_analyze(named)

        assert_t0(run, rank=3)
        assert file_entry(run)["rank_source"] == "distributedInfo"
        assert len(run.notes("rank-conflict")) == 1
        assert len([line for line in run.lines if named.name in line]) == 1


@pytest.mark.parametrize("style", ["compact", "spaced", "pretty"])
def test_c006_compact_files_keep_their_ranks(style: str, run_analyze: Analyze, tmp_path: Path) -> None:
    for name, rank in (("a.json", 0), ("b.json", 3)):
        of_rank(rank, world_size=4).write(tmp_path / "in" / name, style=style)

    run = run_analyze(tmp_path / "in")

    assert run.report["input"]["ranks"] == [0, 3]
    for rank in (0, 3):
        assert_t0(run, rank=rank)


@pytest.mark.parametrize("call", ["send", "recv", "broadcast", "reduce", "gather", "scatter"])
def test_c007_the_rank_of_a_collective_is_not_the_rank(call: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = without_info()
    trace.cpu_op("record_param_comms", 10, 20, args={**comm_args(call, ranks=list(range(8))), "Rank": 5})
    path = trace.write(tmp_path / "trace.json")

    run = run_analyze(path)

    assert_t0(run, rank=0)
    assert file_entry(run)["rank_source"] == "default"


def test_c008_a_missing_rank_renumbers_nobody(run_analyze: Analyze, tmp_path: Path) -> None:
    for rank in (3, 1, 0):
        of_rank(rank, world_size=4).write(tmp_path / "in" / f"trace_{rank}.json")

    run = run_analyze(tmp_path / "in")

    assert run.report["input"]["world_size"] == 4
    assert run.report["input"]["ranks"] == [0, 1, 3]
    assert run.report["input"]["missing_ranks"] == [2]
    assert [row["rank"] for row in run.report["ranks"]] == [0, 1, 3]
    assert len(run.notes("missing-ranks")) == 1
    for rank in (0, 1, 3):
        assert_t0(run, rank=rank)


def test_c009_traces_are_found_below_a_folder_and_the_rest_is_listed(run_analyze: Analyze, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    of_rank(0).write(folder / "x" / "y" / "a.pt.trace.json")
    of_rank(1).write(folder / "b.json.gz")
    (folder / "notes.txt").write_text("learning rate 3e-4\n")
    (folder / "params.json").write_text('{"lr": 0.0003, "layers": [1, 2]}\n')

    run = run_analyze(folder)

    assert_t0(run, rank=0)
    assert_t0(run, rank=1)
    assert [Path(file["path"]).name for file in run.report["input"]["files"]] == ["a.pt.trace.json", "b.json.gz"]
    ignored = {Path(entry["path"]).name: entry["reason"] for entry in run.report["input"]["ignored"]}
    assert sorted(ignored) == ["notes.txt", "params.json"]
    assert all(ignored.values())


def test_the_host_of_a_file_is_kept(run_analyze: Analyze, tmp_path: Path) -> None:
    for rank, host in ((0, "node7"), (1, "node8")):
        trace = of_rank(rank)
        trace.top["host_name"] = host
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "in")

    assert {file["rank"]: file["host"] for file in run.report["input"]["files"]} == {0: "node7", 1: "node8"}
