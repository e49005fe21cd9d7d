"""Scenarios by name: one per strategy, and one per fault on a job that shows it."""

from __future__ import annotations

from dataclasses import replace

from commprof.errors import UsageError
from commprof.synth.cluster import Cluster, Link
from commprof.synth.scenario import Fault, Scenario

_JOB = Scenario(
    layers=8, hidden=2048, sequence=1024, batch=4, steps=4, noise_permille=10, contention_permille=80,
    sync_each_step=True,
)  # fmt: skip

STRATEGY_PRESETS: dict[str, Scenario] = {
    "ddp": replace(_JOB, inner=2),
    "zero1": replace(_JOB, strategy="zero1", inner=4),
    "zero1-torch": replace(_JOB, strategy="zero1-torch", inner=4),
    "zero2": replace(_JOB, strategy="zero2", inner=4, microbatches=2),
    "zero3": replace(_JOB, strategy="zero3", inner=4),
    "fsdp": replace(_JOB, strategy="fsdp", inner=4),
    "hsdp": replace(_JOB, strategy="hsdp", inner=2, outer=2),
    "tp": replace(_JOB, strategy="none", tp=4, inner=1),
    "sp": replace(_JOB, strategy="none", tp=4, inner=1, sequence_parallel=True),
    "async-tp": replace(_JOB, strategy="none", tp=4, inner=1, async_tp=True),
    "pp-gpipe": replace(_JOB, strategy="none", pp=4, inner=1, microbatches=8, schedule="gpipe"),
    "pp": replace(_JOB, strategy="none", pp=4, inner=1, microbatches=8),
    "pp-interleaved": replace(
        _JOB, strategy="none", pp=4, inner=1, microbatches=8, chunks=2, schedule="interleaved"
    ),
    "ep": replace(_JOB, experts=True, inner=4, imbalance_permille=500),
    "tp-dp": replace(_JOB, tp=2, inner=2),
    "tp-fsdp": replace(_JOB, strategy="fsdp", tp=2, inner=2),
    "tp-pp-dp": replace(_JOB, tp=2, pp=2, inner=2, microbatches=4),
    "large": replace(
        _JOB, name="large", tp=8, pp=4, inner=32, layers=40, hidden=4096, sequence=2048, batch=1, microbatches=10,
        steps=3, noise_permille=5,
    ),
}  # fmt: skip

_FAULT_JOB = replace(_JOB, inner=4)
FAULT_PRESETS: dict[str, Scenario] = {
    "slow-gpu": replace(_FAULT_JOB, faults=(Fault("slow-gpu", 2, 200),)),
    "slow-host": replace(
        _FAULT_JOB, hidden=512, sequence=512, batch=1, coarse=False,
        cluster=Cluster(gpus_per_host=2, nics_per_host=2), faults=(Fault("slow-host", 2, 1000),),
    ),
    "loader-stall": replace(_FAULT_JOB, faults=(Fault("loader-stall", 1, 8_000_000),)),
    "gc-pause": replace(_FAULT_JOB, steps=8, faults=(Fault("gc-pause", None, 5_000_000),)),
    "host-pause": replace(_FAULT_JOB, faults=(Fault("host-pause", 1, 8_000_000),)),
    "slow-link": replace(
        _FAULT_JOB, cluster=Cluster(gpus_per_host=1, nics_per_host=1), faults=(Fault("slow-link", 1, 100),)
    ),
    "flapping-link": replace(
        _FAULT_JOB, cluster=Cluster(gpus_per_host=1, nics_per_host=1), faults=(Fault("flapping-link", 1, 50),)
    ),
    "misplaced-group": replace(
        _JOB, strategy="none", tp=4, inner=4, cluster=Cluster(gpus_per_host=8), faults=(Fault("misplaced-group"),)
    ),
    "late-launch": replace(_FAULT_JOB, faults=(Fault("late-launch", None, 1_500_000),)),
    "blocking-wait": replace(_FAULT_JOB, faults=(Fault("blocking-wait"),)),
    "tiny-buckets": replace(
        _FAULT_JOB, hidden=512, sequence=512, coarse=False, faults=(Fault("tiny-buckets", None, 4_096),),
        cluster=Cluster(gpus_per_host=1, nics_per_host=1, nic=Link(15_000, 50_000_000_000)),
    ),
    "huge-bucket": replace(_FAULT_JOB, faults=(Fault("huge-bucket"),)),
    "no-overlap": replace(_FAULT_JOB, faults=(Fault("no-overlap"),)),
    "profiler-start": replace(_FAULT_JOB, faults=(Fault("profiler-start", 1, 2_000_000_000),)),
}  # fmt: skip

PRESETS: dict[str, Scenario] = {
    name: replace(scenario, name=name) for name, scenario in {**STRATEGY_PRESETS, **FAULT_PRESETS}.items()
}


def preset(name: str) -> Scenario:
    """The scenario called ``name``; raises ``UsageError`` that lists what there is."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"no scenario {name!r}", hint="there are: " + ", ".join(sorted(PRESETS))) from None
