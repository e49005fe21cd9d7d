"""Pauses of the CPU that show in something else: against what the simulator gains without them."""

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

SHARDED = Scenario(
    name="zero3", strategy="zero3", inner=2, layers=4, hidden=512, sequence=256, batch=1, steps=6, launch_ns=3_800,
    comm_launch_ns=11_500, loader_ns=1_700, sync_each_step=True,
)  # fmt: skip
REPLICAS = Scenario(
    name="ddp", strategy="ddp", inner=2, layers=4, hidden=512, sequence=256, batch=1, steps=6, launch_ns=18_000,
    comm_launch_ns=50_000, loader_ns=4_000, bucket_cap=1 << 20,
)  # fmt: skip
ONE_BUCKET = Scenario(
    name="ddp", strategy="ddp", layers=4, hidden=1024, batch=2, steps=6, launch_ns=3_500, comm_launch_ns=7_000,
    loader_ns=50_000, microbatches=2, sync_each_step=True, coarse=False, contention_permille=50, bucket_cap=1 << 40,
    first_bucket=1 << 40, cluster=Cluster(gpus_per_host=1, nics_per_host=1),
)  # fmt: skip


def gain_and_found(scenario: Scenario, fault: Fault, folder: Path) -> tuple[int, list[Finding], list[Finding]]:
    """By how much a step is shorter without the fault, and what is found with and without it but for launches."""
    whole = replace(scenario, faults=(fault,))
    gain = (step_ns(simulate(make_plan(whole, 3))) or 0) - (step_ns(simulate(make_plan(scenario, 3))) or 0)
    rows = [
        commprof.diagnose(commprof.analyze(write_run(one, folder / name, seed=3, causes=False, calls=False).folder))
        for name, one in (("whole", whole), ("usual", scenario))
    ]
    found, usual = (
        [one for one in row.findings if one.severity != "info" and (one.id == "straggler" or one.cause == "pause")]
        for row in rows
    )
    return gain, found, usual


def test_pauses_in_turn_right_after_a_wait_for_the_device(tmp_path: Path) -> None:
    # 37 us after the loss was read: shorter than what passes for a pause, and what follows from the wait anyway.
    gain, found, usual = gain_and_found(SHARDED, Fault("gc-pause", None, 37_500), tmp_path)

    assert [(one.cause, one.ranks) for one in found] == [("host", ())]
    assert gain <= (found[0].recoverable_ns or 0) <= 1.3 * gain
    assert not usual


def test_a_pause_that_is_short_beside_the_gaps_between_launches(tmp_path: Path) -> None:
    gain, found, usual = gain_and_found(REPLICAS, Fault("host-pause", 1, 100_000), tmp_path)

    assert [(one.id, one.cause, one.ranks) for one in found] == [("straggler", "host", (1,))]
    # Rank 0 waits for all of it, and the step needs it for nearly as long.
    assert gain <= (found[0].recoverable_ns or 0) <= 1.2 * gain
    assert not usual


def test_a_pause_before_a_transfer_that_may_have_begun_without_it(tmp_path: Path) -> None:
    # All gradients in one call: what the other rank sent while it waited may be more than the pause.
    gain, found, usual = gain_and_found(ONE_BUCKET, Fault("host-pause", 1, 750_000), tmp_path)

    assert [(one.id, one.cause, one.ranks) for one in found] == [("host-bound", "pause", (1,))]
    assert found[0].recoverable_ns == pytest.approx(gain, rel=0.1)
    assert not usual
