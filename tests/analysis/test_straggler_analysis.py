"""Published jobs of which it is known who was late and why: one slowed worker (AR), one long last stage (ST).

The published answers: of the time that job AR loses, the worker of replica 0 and stage 0 alone holds 1.0017 and the
last stage nothing (-0.0012); of that of job ST the last stage holds 1.2194 and the slowest workers 0.0314. These
figures come from replaying the job with other durations, which is not part of what is compared here: names and causes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.published_timelines import read_job, write_job
from tests.builders.command import Run

pytestmark = pytest.mark.traces
Analyze = Callable[..., Run]


def test_one_slowed_worker_of_16_is_named_alone_and_its_device_is_slow(
    public_traces: Path, run_analyze: Analyze, tmp_path: Path
) -> None:
    """AR, whose last stage is 7 % longer too: that is how pipelines are cut, and accuses nobody."""
    job = read_job(public_traces / "straggler-analysis", "AR", 4)

    run = run_analyze(write_job(job, tmp_path / "run"))

    (late,) = run.report["stragglers"]
    assert (late["rank"], late["kind"], late["cause"]) == (job.rank(0, 0), "persistent", "slow-device")
    assert late["chain"][-1] == job.rank(0, 0)
    assert run.report["matching"]["unmatched"] == 0


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
