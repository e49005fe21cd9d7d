"""C025, C026, C220 and C223: many ranks in one call, with any number of workers, give one and the same report."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace
from tests.cases.t0_numbers import assert_t0
from tests.oracle.identities import check_identities

Analyze = Callable[..., Run]


@pytest.fixture
def eight_ranks(tmp_path: Path) -> Path:
    """A folder of eight ranks like ``T0``; rank ``r`` computes ``r`` µs longer and has ``r`` broken names."""
    for rank in range(8):
        trace = Trace(rank=rank, world_size=8)
        trace.step(1, 0, 1000)
        trace.gemm(0, 600 + rank)
        trace.all_reduce(500, 900)
        for number in range(rank):
            trace.annotation(f"@{number}", 10, 20)
        data = trace.text().encode().replace(b'"@', b'"D:\\x')
        path = tmp_path / "in" / f"trace_{rank}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "in"


def test_c026_any_number_of_workers_gives_the_same_bytes(eight_ranks: Path, run_analyze: Analyze) -> None:
    runs = [run_analyze(eight_ranks, "--jobs", jobs) for jobs in ("1", "4")]

    assert runs[0].code == runs[1].code == 0, runs[1].stderr
    assert runs[0].json_bytes == runs[1].json_bytes
    assert runs[0].stdout == runs[1].stdout


def test_c026_a_bad_file_is_reported_alike_by_any_number_of_workers(eight_ranks: Path, run_analyze: Analyze) -> None:
    (eight_ranks / "trace_5.json").write_text('{"schema": "1.1.1-chakra.0.0.4", "nodes": []}')

    runs = [run_analyze(eight_ranks, "--jobs", jobs) for jobs in ("1", "2")]

    assert runs[0].code == runs[1].code
    assert runs[0].json_bytes == runs[1].json_bytes
    assert runs[0].stderr == runs[1].stderr


def test_c025_each_rank_is_reduced_before_the_next_is_read(
    eight_ranks: Path, run_analyze: Analyze, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C025: what is kept of a rank is small; how small, with many files, ``tests.benchmarks.many_ranks`` measures."""
    from commprof.analysis import run as stage

    read, earlier, alive = stage.read_rank, [], []

    def watched(*arguments: Any, **options: Any) -> Any:
        gc.collect()
        alive.append(sum(columns() is not None for columns in earlier))
        rank = read(*arguments, **options)
        earlier.append(weakref.ref(rank.device.start))
        return rank

    monkeypatch.setattr(stage, "read_rank", watched)

    run = run_analyze(eight_ranks, "--jobs", "1")

    assert run.report["input"]["ranks"] == list(range(8))
    assert alive == [0] * 8


def test_c223_one_call_one_report_over_all_ranks(eight_ranks: Path, run_analyze: Analyze) -> None:
    run = run_analyze(eight_ranks)

    assert run.code == 0
    assert [row["rank"] for row in run.report["ranks"]] == list(range(8))
    for rank, row in enumerate(run.report["ranks"]):
        step = row["steps"][0]
        assert (step["compute_ns"], step["exposed_comm_ns"]) == (600_000 + 1000 * rank, 300_000 - 1000 * rank)
    assert [file["repaired"]["invalid_escape"] for file in run.report["input"]["files"]] == list(range(8))
    assert run.report["input"]["missing_ranks"] == []
    check_identities(run.report)


def test_c223_progress_never_reaches_standard_output(eight_ranks: Path, run_analyze: Analyze) -> None:
    run = run_analyze(eight_ranks)

    # Not a terminal here: no bar at all, and no control sequence in what is piped.
    assert "\r" not in run.stdout + run.stderr
    assert "\x1b" not in run.stdout + run.stderr


def test_c220_the_same_input_twice_gives_the_same_bytes(eight_ranks: Path, run_analyze: Analyze) -> None:
    one, other = run_analyze(eight_ranks), run_analyze(eight_ranks)

    assert one.json_bytes == other.json_bytes
    assert one.stdout == other.stdout


def test_c223_files_of_several_places_are_one_run(run_analyze: Analyze, tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 1000)
        trace.gemm(0, 600)
        trace.all_reduce(500, 900)
        paths.append(trace.write(tmp_path / f"host{rank}" / "trace.json"))

    run = run_analyze(paths)

    for rank in (0, 1):
        assert_t0(run, rank=rank)


def test_c223_a_glob_is_a_set_of_files(eight_ranks: Path, run_analyze: Analyze) -> None:
    run = run_analyze(eight_ranks / "trace_[0-3].json")

    assert run.report["input"]["ranks"] == [0, 1, 2, 3]
    assert run.report["input"]["missing_ranks"] == [4, 5, 6, 7]
