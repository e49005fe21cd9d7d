"""Stalls of the CPU that are about the same in every step cost about the same in every step: against the simulator."""

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

SEED = 4
BEHIND_A_GATHER = Scenario(
    name="zero2", strategy="zero2", layers=4, hidden=256, sequence=256, batch=2, coarse=False, steps=6, microbatches=2,
    bucket_cap=1 << 20, loader_ns=5_000, launch_ns=3_000, comm_launch_ns=9_000, contention_permille=50, real=True,
    cluster=Cluster(gpus_per_host=8, nics_per_host=4),
)  # fmt: skip
QUEUES = Scenario(
    name="fsdp", strategy="fsdp", inner=4, hidden=512, sequence=128, batch=2, steps=6, bucket_cap=4 << 20,
    loader_ns=4_000, launch_ns=14_000, comm_launch_ns=57_000, noise_permille=20, contention_permille=150, real=True,
    cluster=Cluster(gpus_per_host=2, nics_per_host=2),
)  # fmt: skip


def gain_and_found(scenario: Scenario, fault: Fault, folder: Path) -> tuple[int, list[Finding], list[Finding]]:
    """By how much a step is shorter without the fault, and what is said of input above ``info`` with and without it."""
    whole = replace(scenario, faults=(fault,))
    gain = (step_ns(simulate(make_plan(whole, SEED))) or 0) - (step_ns(simulate(make_plan(scenario, SEED))) or 0)
    rows = [
        commprof.diagnose(commprof.analyze(write_run(one, folder / name, seed=SEED, causes=False, calls=False).folder))
        for name, one in (("whole", whole), ("usual", scenario))
    ]
    found, usual = ([f for f in row.findings if f.severity != "info" and f.cause == "input"] for row in rows)
    return gain, found, usual


@pytest.mark.parametrize(
    ("scenario", "fault", "ranks"),
    [
        # While the loop fetches, the gather of the step before is exposed, and no device is idle.
        (BEHIND_A_GATHER, Fault("loader-stall", None, 68_000), (0, 1)),
        # One rank fetches longer; what the others wait for it is little, and scatters with what queues meanwhile.
        (QUEUES, Fault("loader-stall", 1, 60_000), (1,)),
    ],
    ids=["of all ranks", "of one rank"],
)  # fmt: skip
def test_inputs_on_the_path_of_every_step_are_told_whatever_else_is_exposed_meanwhile(
    scenario: Scenario, fault: Fault, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    gain, found, usual = gain_and_found(scenario, fault, tmp_path)

    assert [one.ranks for one in found] == [ranks]
    assert 0.98 * gain <= (found[0].recoverable_ns or 0)
    assert not usual
