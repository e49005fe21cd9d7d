"""Published jobs of which it is known who was late and why: one slowed worker (AR), one long last stage (ST).

The published answers: of the time that job AR loses, the worker of replica 0 and stage 0 alone holds 1.0017 and the
last stage nothing (-0.0012); of that of job ST the last stage holds 1.2194 and the slowest workers 0.0314. These
figures come from replaying the job with other durations (``test_replay``); here names and causes are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.published_timelines import CLIP, Job, read_job, write_job
from tests.builders.command import Run

Analyze = Callable[..., Run]
US = 1000
REPLICAS, STAGES = 3, 3


def small_job(slow: dict[tuple[int, int], float]) -> Job:
    """Five steps of one micro-batch through three stages; a pass lasts 1 ms, of a slow (replica, stage) longer.

    The first stage ends last in every step. The last one has waited 2 ms by then to sum the tied embeddings with it.
    """
    job = Job(REPLICAS, STAGES, {})
    for number in range(1, 6):
        begin = 100_000 * US * number
        step: list[dict[str, Any]] = []

        def add(what: str, replica: int, stage: int, start: int, length: int, into: Any = step) -> int:
            row = {"what": what, "rank": job.rank(replica, stage), "start": start, "end": start + length, "number": 0}
            into.append(row)
            return start + length

        done: dict[tuple[int, int], int] = {}
        for replica in range(REPLICAS):
            at = begin
            passes = [("forward", stage) for stage in range(STAGES)]
            passes += [("backward", stage) for stage in reversed(range(STAGES))]
            for place, (way, stage) in enumerate(passes):
                length = round(1000 * US * slow.get((replica, stage), 1.0))
                at = done[replica, stage] = add(f"{way}-compute", replica, stage, at, length)
                if place + 1 < len(passes) and passes[place + 1][1] != stage:
                    add(f"{way}-send", replica, stage, at, 10 * US)
                    at = add(f"{way}-recv", replica, passes[place + 1][1], at, 10 * US)
            for stage in (0, STAGES - 1):
                add("embedding-grads-all-reduce", replica, stage, at, 50 * US)
                done[replica, stage] = at + 50 * US
        for stage in range(STAGES):
            start = max(done[replica, stage] for replica in range(REPLICAS))
            for replica in range(REPLICAS):
                done[replica, stage] = add("grads-reduce-scatter", replica, stage, start, 200 * US)
        start = max(done.values())
        for replica, stage in done:
            add("optimizer", replica, stage, add(CLIP, replica, stage, start, 20 * US), 100 * US)
        job.steps[number] = step
    return job


def test_a_pipeline_that_drains_into_tied_embeddings_names_nobody(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(write_job(small_job({}), tmp_path / "run"))

    assert {row["role"] for row in run.report["groups"] if row["group"] == "embd"} == {"embedding"}
    assert run.report["stragglers"] == []


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_slow_worker_is_named_and_its_stage_is_not(stage: int, run_analyze: Analyze, tmp_path: Path) -> None:
    """Twice as slow: the mean of its stage is a third above that of the others."""
    job = small_job({(1, stage): 2.0})

    run = run_analyze(write_job(job, tmp_path / "run"))

    late = [(row["rank"], row["kind"], row["cause"]) for row in run.report["stragglers"]]
    assert late == [(job.rank(1, stage), "persistent", "slow-device")]


@pytest.mark.parametrize("slow", [{}, {(0, 0): 3.0}], ids=["alone", "beside a slow worker"])
def test_a_stage_that_is_a_little_longer_is_mentioned_and_not_accused(
    slow: dict[tuple[int, int], float], run_analyze: Analyze, tmp_path: Path
) -> None:
    """The last stage: two passes of 1070 us and an optimizer of 100, 2240 in all, against 2100 in the others."""
    job = small_job({(replica, STAGES - 1): 1.07 for replica in range(REPLICAS)} | slow)

    run = run_analyze(write_job(job, tmp_path / "run"), "-o", tmp_path / "report.html")

    assert [row["rank"] for row in run.report["stragglers"]] == [job.rank(*worker) for worker in slow]
    assert run.report["pipeline"]["longest_stage"] == STAGES - 1
    # In what follows the norm each worker scales its gradients for as long.
    assert run.report["pipeline"]["longest_stage_excess"] == pytest.approx(2240 / 2100 - 1, abs=0.005)
    said = "the last stage computes 6.7 % longer than the others do on average"
    assert said in " ".join(run.stdout.split())
    assert said in " ".join((tmp_path / "report.html").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_stage_with_more_to_compute_is_named_as_a_stage(stage: int, run_analyze: Analyze, tmp_path: Path) -> None:
    job = small_job({(replica, stage): 1.5 for replica in range(REPLICAS)})

    run = run_analyze(write_job(job, tmp_path / "run"))

    late = [(row["rank"], row["role"], row["cause"]) for row in run.report["stragglers"]]
    assert late == [(None, f"pipeline stage {stage}", "more-work")]


@pytest.mark.traces
def test_one_slowed_worker_of_16_is_named_alone_and_its_device_is_slow(
    public_traces: Path, run_analyze: Analyze, tmp_path: Path
) -> None:
    """AR, whose last stage is 7 % longer too: that is how pipelines are cut, and accuses nobody."""
    job = read_job(public_traces / "straggler-analysis", "AR", 4)

    run = run_analyze(write_job(job, tmp_path / "run"))

    (late,) = run.report["stragglers"]
    assert (late["rank"], late["kind"], late["cause"]) == (job.rank(0, 0), "persistent", "slow-device")
    assert late["chain"][-1] == job.rank(0, 0)
    assert run.report["pipeline"]["longest_stage"] == job.pp - 1
    # Of its median worker, over all that it computes.
    assert 0.02 < run.report["pipeline"]["longest_stage_excess"] < 0.10
    assert "the last stage computes" in " ".join(run.stdout.split())
    assert run.report["matching"]["unmatched"] == 0


@pytest.mark.traces
def test_a_last_stage_with_more_to_compute_is_no_fault_of_a_worker(
    public_traces: Path, run_analyze: Analyze, tmp_path: Path
) -> None:
    """ST: both workers of the last stage have the layer that turns activations into a loss."""
    job = read_job(public_traces / "straggler-analysis", "ST", 32)

    run = run_analyze(write_job(job, tmp_path / "run"))

    (late,) = run.report["stragglers"]
    assert (late["rank"], late["role"], late["cause"]) == (None, "pipeline stage 3", "more-work")
    assert run.report["matching"]["unmatched"] == 0
    assert {row["role"] for row in run.report["groups"] if row["group"] == "embd"} == {"embedding"}
