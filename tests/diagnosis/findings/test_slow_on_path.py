"""A slow device that the critical path goes through, where nobody knows what of the waiting comes back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import commprof
from commprof.synth import Cluster, Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns

SEED = 3
TENSOR_AND_PIPELINE = Scenario(
    name="tp-pp", strategy="none", tp=2, inner=1, pp=2, layers=4, hidden=256, sequence=256, batch=1, coarse=False,
    steps=6, microbatches=3, loader_ns=3_000, sync_each_step=True, launch_ns=4_000, comm_launch_ns=12_000,
    contention_permille=50, last_stage_extra_permille=100, real=True, cluster=Cluster(gpus_per_host=8, nics_per_host=4),
)  # fmt: skip


def test_a_slow_device_on_the_path_is_named_though_its_peers_may_have_sent_while_they_waited(tmp_path: Path) -> None:
    whole = replace(TENSOR_AND_PIPELINE, faults=(Fault("slow-gpu", 2, 200),))
    gain = (step_ns(simulate(make_plan(whole, SEED))) or 0) - (
        step_ns(simulate(make_plan(TENSOR_AND_PIPELINE, SEED))) or 0
    )
    slow, usual = (
        [f for f in commprof.diagnose(commprof.analyze(one)).findings if f.id == "straggler"]
        for one in (
            write_run(scenario, tmp_path / name, seed=SEED, causes=False, calls=False).folder
            for name, scenario in (("slow", whole), ("usual", TENSOR_AND_PIPELINE))
        )
    )

    assert [(one.cause, one.ranks, one.confidence) for one in slow] == [("slow-device", (2,), "bound")]
    # 20 % more for each of its kernels: its peer does the same in 0.35 ms a step, of which 0.07 then are a bound.
    assert gain <= (slow[0].recoverable_ns or 0) <= 75_000
    assert not usual
