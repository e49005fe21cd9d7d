"""Stalls that show where the recording begins alone: against the simulator, which knows what they cost there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import commprof
from commprof.synth import Cluster, Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns

SEED = 3
TENSOR = Scenario(
    name="tp-dp", tp=2, inner=4, layers=4, batch=2, coarse=False, steps=6, bucket_cap=1 << 20, loader_ns=52_000,
    launch_ns=4_100, comm_launch_ns=16_400, contention_permille=50, cluster=Cluster(gpus_per_host=4, nics_per_host=4),
)  # fmt: skip


def test_a_rank_that_pauses_in_every_step_did_not_begin_late(tmp_path: Path) -> None:
    # The CPU is ahead of its device from the second step on, and its pauses then cost nothing.
    whole = replace(TENSOR, faults=(Fault("host-pause", 1, 1_200_000),))
    gain = (step_ns(simulate(make_plan(whole, SEED))) or 0) - (step_ns(simulate(make_plan(TENSOR, SEED))) or 0)
    held, usual = (
        [f for f in commprof.diagnose(commprof.analyze(folder)).findings if f.id == "straggler"]
        for folder in (
            write_run(one, tmp_path / name, seed=SEED, causes=False, calls=False).folder
            for name, one in (("held", whole), ("usual", TENSOR))
        )
    )

    assert [(one.cause, one.ranks, one.severity != "info") for one in held] == [("host", (1,), True)]
    assert gain <= (held[0].recoverable_ns or 0) <= 1.3 * gain
    assert not usual
