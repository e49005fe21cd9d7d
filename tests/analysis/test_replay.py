"""Replays: by hand, and of two published jobs whose slowdown and its owners are known.

The published answers come from another program that replayed the same jobs (``result-*.json``, ``mw-*.json``,
``ms-*.json`` of ``straggler-analysis``).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commprof.analysis.replay import Schedule, contribution, slowdown, usual_durations
from tests.analysis.published_timelines import WHOLE_JOB, Operations, operations_of, read_job


def test_members_of_a_collective_start_when_the_last_of_them_can() -> None:
    """Two ranks compute 10 and 30, meet for 5, then compute 7 and 1."""
    schedule = Schedule(np.array([0, 1, 2, 2, 4, 5]), np.array([[0, 2], [1, 3], [2, 4], [3, 5]]))

    ends = schedule.ends(np.array([10.0, 30.0, 5.0, 5.0, 7.0, 1.0]))

    assert ends.tolist() == [10, 30, 35, 35, 42, 36]


def test_several_sets_of_durations_are_replayed_at_once() -> None:
    """The same ranks with what they lose: 20 of the second one's work, of which 20 come back."""
    schedule = Schedule(np.array([0, 1, 2, 2, 4, 5]), np.array([[0, 2], [1, 3], [2, 4], [3, 5]]))
    real = np.array([10.0, 30.0, 5.0, 5.0, 7.0, 1.0])

    lengths = schedule.length(np.stack([real, np.where(np.arange(6) == 1, 10.0, real)]))

    assert lengths.tolist() == [42, 22]


def test_the_order_in_which_pairs_are_given_does_not_matter() -> None:
    """A diamond: 0 before 1 and 2, both before 3, and 0 before 3 as well."""
    before = np.array([[1, 3], [0, 3], [2, 3], [0, 2], [0, 1]])

    ends = Schedule(np.arange(4), before).ends(np.array([1.0, 2.0, 4.0, 8.0]))

    assert ends.tolist() == [1, 3, 5, 13]


def test_operations_without_anything_to_wait_for_start_at_once() -> None:
    schedule = Schedule(np.arange(3), np.empty((0, 2), np.int64))

    assert schedule.ends(np.array([3.0, 1.0, 2.0])).tolist() == [3, 1, 2]


@pytest.mark.parametrize("before", [[[0, 1], [1, 0]], [[0, 2], [1, 0]]], ids=("pair", "within a meeting"))
def test_operations_that_wait_for_each_other_are_refused(before: list[list[int]]) -> None:
    """In the second, 1 and 2 meet, so that 0 waits for its own successor."""
    with pytest.raises(ValueError, match="circle"):
        Schedule(np.array([0, 1, 1]), np.array(before))


def test_usual_durations_are_means_of_computations_and_medians_of_communication() -> None:
    usual = usual_durations(
        np.array([1.0, 2.0, 6.0, 10.0, 20.0, 90.0]), np.array([0, 0, 0, 1, 1, 1]), np.repeat([False, True], 3)
    )

    assert usual.tolist() == [3, 3, 3, 20, 20, 20]


def test_one_slow_rank_owns_the_slowdown() -> None:
    """A step of 30 that would last 20 with everybody at the mean, and 18 with the slow rank alone corrected."""
    assert slowdown(30, 20) == 1.5
    assert contribution(30, without=18, ideal=20) == pytest.approx(1.2)


@pytest.fixture(scope="module", params=("ST", "AR"))
def replayed(request: pytest.FixtureRequest, public_traces: Path) -> tuple[str, Path, Operations]:
    """A published job, all of its steps."""
    folder = public_traces / "straggler-analysis"
    return request.param, folder, operations_of(read_job(folder, request.param, WHOLE_JOB))


@pytest.mark.traces
def test_published_slowdowns_and_contributions(replayed: tuple[str, Path, Operations]) -> None:
    """Steps within 0.1 %, slowdown ``S`` within 0.5 %, contributions ``M`` of the last stage and of the slowest worker
    within 0.005."""
    name, folder, job = replayed
    answers = {
        kind: json.loads((folder / f"{kind}-{name}.json").read_text(encoding="utf-8"))
        for kind in ("result", "ms", "mw")
    }  # fmt: skip
    sizes = answers["result"]["job_meta"]
    last_stage = job.rank // sizes["dp_size"] == sizes["pp_size"] - 1
    usual = usual_durations(job.seconds, job.kind, job.communicates)

    workers = [np.where(job.rank == rank, usual, job.seconds) for rank in np.unique(job.rank)]
    length, ideal, without_stage, *without = job.step_time(
        np.stack([job.seconds, usual, np.where(last_stage, usual, job.seconds), *workers])
    )

    measured = np.mean(list(answers["result"]["step_t_nodelay"].values()))
    assert length == pytest.approx(measured, rel=1e-3)
    assert slowdown(length, ideal) == pytest.approx(answers["result"]["blocking_slowdown"], rel=5e-3)
    assert contribution(length, without_stage, ideal) == pytest.approx(answers["ms"]["Ms"], abs=5e-3)
    slowest = max(contribution(length, other, ideal) for other in without)
    assert slowest == pytest.approx(answers["mw"]["Mw"], abs=5e-3)


@pytest.mark.traces
def test_published_slowdowns_of_stages_and_replicas(replayed: tuple[str, Path, Operations]) -> None:
    """The job with only the operations of one stage, or of one replica, as they were: within 0.5 %."""
    name, folder, job = replayed
    answers = json.loads((folder / f"result-{name}.json").read_text(encoding="utf-8"))
    replicas = answers["job_meta"]["dp_size"]
    stages, columns = answers["blocking_decompose_by_stage"], answers["blocking_decompose_by_dp_rank"]
    usual = usual_durations(job.seconds, job.kind, job.communicates)

    parts = [job.rank // replicas == int(stage) for stage in stages]
    parts += [job.rank % replicas == int(column) for column in columns]
    ideal, *lengths = job.step_time(np.stack([usual, *(np.where(part, job.seconds, usual) for part in parts)]))

    published = [*stages.values(), *columns.values()]
    assert [slowdown(length, ideal) for length in lengths] == pytest.approx(published, rel=5e-3)
