"""The trace of a gloo run, and commprof's analysis of it, against the timers that DDP itself keeps.

DDP states per iteration the time from the first bucket's launch to the last one's completion, and the
part of it before the end of the backward computation. Both are spans; commprof's are a union and an
intersection of intervals, so they cannot be longer. The trace is read here with the standard library
alone.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from commprof.cli.app import main
from tests.capture.fake import manifest_of
from tests.capture.real import run_ranks, trace_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

RANKS = 2
TOLERANCE = 0.05
RECORDED = range(5, 16)


@dataclass(frozen=True)
class Step:
    """One recorded step of one rank in Unix ns: what the trace holds and what DDP measured."""

    name: str
    first_start: int  # of the buckets' gloo spans
    last_end: int
    compute_end: int  # the last gradient is in its bucket
    carried: int  # how long calls of the step before last into this one, where the process had no core to end them
    ddp: dict[str, int]

    @property
    def span(self) -> int:
        return self.last_end - self.first_start

    @property
    def overlap(self) -> int:
        return min(self.compute_end, self.last_end) - self.first_start


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("timers")
    return folder / "run", run_ranks("ddp_timers", folder, RANKS)


@pytest.fixture(scope="module")
def steps(run: tuple[Path, list[Any]]) -> list[list[Step]]:
    """Per rank the recorded steps that both sources know."""
    folder, results = run
    return [list(_steps(folder, rank, results[rank]["rows"])) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def report(run: tuple[Path, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("report") / "report.json"
    assert main(["analyze", str(run[0]), "--json", str(target), "--no-html"]) == 0
    loaded: dict[str, Any] = json.loads(target.read_text())
    return loaded


def _steps(folder: Path, rank: int, rows: list[dict[str, int]]) -> Iterator[Step]:
    trace = trace_of(folder, rank, Decimal)
    base = trace["baseTimeNanoseconds"]
    events = [
        (event["name"], base + int(event["ts"] * 1000), base + int((event["ts"] + event["dur"]) * 1000), event)
        for event in trace["traceEvents"]
        if event.get("ph") == "X"
    ]
    sizes = [bucket["size_bytes"] for bucket in manifest_of(folder, rank)["ddp"][0]["buckets"]]
    for name, begin, end, _ in sorted((e for e in events if e[0].startswith("ProfilerStep#")), key=lambda e: e[1]):
        inside = [e for e in events if begin <= e[1] < end]
        # Only the buckets: other collectives (buffers, the user's own) have other sizes.
        spans = [e for e in inside if e[0] == "gloo:all_reduce" and 4 * e[3]["args"]["Input Dims"][0][0] in sizes]
        earlier = [e[2] for e in events if e[0].startswith("gloo:") and e[1] < begin < e[2]]
        ready = [e for e in inside if e[0] == "torch::distributed::reducer::mul_out"]
        assert len(spans) == len(sizes), name
        # DDP's timers lag one iteration; the stamps themselves say to which step they belong.
        mine = {r["backward_comm_time_start"]: r for r in rows if begin <= r["backward_comm_time_start"] < end}
        for row in mine.values():
            yield Step(
                name=name,
                first_start=min(e[1] for e in spans),
                last_end=max(e[2] for e in spans),
                compute_end=max(e[2] for e in ready),
                carried=max(earlier, default=begin) - begin,
                ddp=row,
            )


def _median_ratio(pairs: list[tuple[int, int]]) -> float:
    return statistics.median(mine / theirs for mine, theirs in pairs)


def test_the_job_learns_and_several_buckets_overlap(run: tuple[Path, list[Any]], steps: list[list[Step]]) -> None:
    folder, results = run

    # A uniform guess over 512 tokens has a loss of log(512) = 6.24.
    assert all(result["loss"] < 6.0 for result in results)
    assert len(manifest_of(folder)["ddp"][0]["buckets"]) >= 5
    assert all(step.overlap > 0 for rank in steps for step in rank)


def test_all_recorded_steps_have_their_timers(steps: list[list[Step]]) -> None:
    names = [f"ProfilerStep#{index}" for index in RECORDED]

    assert [[step.name for step in rank] for rank in steps] == [names] * RANKS
    # The lag, as a check of the mapping by time: iteration i is read after iteration i + 1.
    for rank in steps:
        assert [step.ddp["read_after"] for step in rank] == [index + 1 for index in RECORDED]


@pytest.mark.parametrize("rank", range(RANKS))
def test_span_of_the_buckets_is_ddp_communication_time(steps: list[list[Step]], rank: int) -> None:
    ratio = _median_ratio([(step.span, step.ddp["backward_comm_time"]) for step in steps[rank]])

    assert ratio == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.parametrize("rank", range(RANKS))
def test_overlap_by_the_rule_of_ddp_is_its_own(steps: list[list[Step]], rank: int) -> None:
    ratio = _median_ratio([(s.overlap, s.ddp["backward_compute_comm_overlap_time"]) for s in steps[rank]])

    assert ratio == pytest.approx(1, abs=TOLERANCE)


@pytest.mark.parametrize("rank", range(RANKS))
def test_communication_of_commprof_is_not_above_the_span(
    steps: list[list[Step]], report: dict[str, Any], rank: int
) -> None:
    splits = {split["name"]: split for split in report["ranks"][rank]["steps"]}

    assert report["ranks"][rank]["rank"] == rank
    for step in steps[rank]:
        assert 0 < splits[step.name]["comm_ns"] <= step.span + step.carried
    pairs = [(splits[step.name]["comm_ns"], step.ddp["backward_comm_time"]) for step in steps[rank]]
    assert _median_ratio(pairs) <= 1 + TOLERANCE


@pytest.mark.parametrize("rank", range(RANKS))
def test_overlap_of_commprof_is_not_above_that_of_ddp(
    steps: list[list[Step]], report: dict[str, Any], rank: int
) -> None:
    splits = {split["name"]: split for split in report["ranks"][rank]["steps"]}

    pairs = [(splits[s.name]["overlap_ns"], s.ddp["backward_compute_comm_overlap_time"]) for s in steps[rank]]

    assert all(mine > 0 for mine, _ in pairs)
    assert _median_ratio(pairs) <= 1
