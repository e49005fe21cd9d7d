"""What comes back when gradient reductions run beside the backward pass: against the simulator, which knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.model import Finding
from commprof.synth import Cluster, Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns

SEED = 3


def replicas(**more: object) -> Scenario:
    """Two replicas whose CPU is far ahead, four micro-batches, and reductions that start after the backward pass."""
    fields = {"layers": 8, "hidden": 1024, "sequence": 512, "batch": 2, "steps": 4, "microbatches": 4}
    fields |= {"launch_ns": 2_000, "comm_launch_ns": 8_000, "bucket_cap": 4 << 20, "faults": (Fault("no-overlap"),)}
    return Scenario(**(fields | more))  # type: ignore[arg-type]


def gain_of(scenario: Scenario) -> int:
    """By how much a step is shorter without the fault."""
    with_it, without = (simulate(make_plan(one, SEED)) for one in (scenario, scenario.without("no-overlap")))
    return (step_ns(with_it) or 0) - (step_ns(without) or 0)


def found_in(scenario: Scenario, folder: Path) -> dict[str, Finding]:
    """Findings by id."""
    written = write_run(scenario, folder, seed=SEED, causes=False, calls=False)
    return {finding.id: finding for finding in commprof.diagnose(commprof.analyze(written.folder)).findings}


@pytest.mark.parametrize("accumulate", [False, True], ids=["in every micro-batch", "in the last one"])
def test_overlap_brings_what_one_backward_pass_hides_of_every_series(accumulate: bool, tmp_path: Path) -> None:
    scenario = replicas(name="replicas", accumulate=accumulate)
    gain = gain_of(scenario)

    found = found_in(scenario, tmp_path)

    assert 0.98 * gain <= (found["ddp-no-overlap"].recoverable_ns or 0) <= 1.2 * gain
    # What overlap leaves of the first three series is exposed because they are repeated, and told there.
    assert ("repeated-reduction" in found) is not accumulate
    if not accumulate:
        exposed = sum(found[name].charged_ns or 0 for name in ("repeated-reduction", "ddp-no-overlap"))
        assert (found["repeated-reduction"].recoverable_ns or 0) + gain == pytest.approx(exposed, rel=0.25)


def test_reductions_that_run_while_the_cpu_launches_the_rest_are_hidden_no_sooner(tmp_path: Path) -> None:
    # A CPU that needs as long as the device for a backward pass, and then launches the reductions one after the other.
    scenario = replicas(name="slow", microbatches=1, hidden=512, sequence=256, launch_ns=8_000, comm_launch_ns=20_000)
    gain = gain_of(scenario)

    found = found_in(scenario, tmp_path)

    assert 0.9 * gain <= (found["ddp-no-overlap"].recoverable_ns or 0) <= 1.5 * gain


def test_a_cpu_behind_its_device_ends_the_step_sooner_where_no_reduction_queues_after_the_backward_pass(
    tmp_path: Path,
) -> None:
    # Reductions last little longer than it takes to launch the next: each queues a little, idle gaps lie between them.
    scenario = Scenario(
        name="slow", layers=8, hidden=256, sequence=256, batch=2, steps=6, bucket_cap=4 << 20, launch_ns=30_000,
        comm_launch_ns=90_000, sync_each_step=True, cluster=Cluster(gpus_per_host=1, nics_per_host=1),
        faults=(Fault("no-overlap"),),
    )  # fmt: skip
    gain = gain_of(scenario)

    found = found_in(scenario, tmp_path)

    assert gain > 0
    assert 0.98 * gain <= (found["ddp-no-overlap"].recoverable_ns or 0) <= 1.2 * gain


def test_reductions_of_several_groups_run_side_by_side(tmp_path: Path) -> None:
    # All gradients of the experts in one bucket, all others in another, each on links that the other needs as well.
    scenario = Scenario(
        name="experts", experts=True, inner=2, outer=2, layers=8, hidden=1024, sequence=1024, batch=1, steps=6,
        launch_ns=10_000, comm_launch_ns=30_000, real=True, bucket_cap=1 << 50, first_bucket=1 << 50,
        cluster=Cluster(gpus_per_host=2, nics_per_host=2),
    )  # fmt: skip
    smaller = replace(scenario, bucket_cap=25 << 20, first_bucket=1 << 20)
    whole, without = (step_ns(simulate(make_plan(one, SEED))) or 0 for one in (scenario, smaller))

    found = found_in(scenario, tmp_path)

    assert whole > without
    assert 0.98 * (whole - without) <= (found["bucket-too-large"].recoverable_ns or 0)
