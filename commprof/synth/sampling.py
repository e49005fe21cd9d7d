"""Random scenarios, for checking analyses and rules over all programs and faults.

``random_scenario(seed)`` covers the strategies and their products on 2 to 16 ranks. Of three neighbouring seeds one
gives a host-bound job, one a mixed and one a GPU-bound job: the cost of a launch is changed until the host-bound part
of rank 0's steps is in the range of :data:`HOST_SHARE`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from commprof.synth.build import build_programs
from commprof.synth.clock import Clock, observe
from commprof.synth.cluster import Cluster
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.program import Kind
from commprof.synth.scenario import Fault, Scenario
from commprof.synth.sweep import rank_truth

REGIMES = ("host", "mixed", "gpu")
HOST_SHARE = {"host": (0.3, 1.0), "mixed": (0.05, 0.3), "gpu": (0.0, 0.05)}
"""Share of the step that the host decides, from and below, of each regime."""
_LAUNCH_TO_KERNEL = {"host": (150, 300), "mixed": (60, 100), "gpu": (3, 15)}  # first try, percent of the mean kernel
_AIM = {"host": (0.38, 1.0), "mixed": (0.1, 0.22), "gpu": (0.0, 0.035)}  # inside of that: noise and faults come on top
_TRIES = 12
_CHEAPEST_LAUNCH_NS = 2_000

_PROGRAMS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp-accumulate": {"microbatches": 2},
    "ddp-sync-always": {"microbatches": 2, "accumulate": False},
    "ddp-unused": {"find_unused": True, "bucket_order": "backward"},
    "zero1": {"strategy": "zero1"},
    "zero1-torch": {"strategy": "zero1-torch"},
    "zero2": {"strategy": "zero2", "microbatches": 2},
    "zero3": {"strategy": "zero3"},
    "fsdp": {"strategy": "fsdp"},
    "fsdp-explicit": {"strategy": "fsdp", "prefetch": "explicit"},
    "hsdp": {"strategy": "hsdp", "outer": 2},
    "tp": {"strategy": "none", "tp": 2, "inner": 1},
    "sp": {"strategy": "none", "tp": 4, "inner": 1, "sequence_parallel": True},
    "async-tp": {"strategy": "none", "tp": 2, "inner": 1, "async_tp": True},
    "gpipe": {"strategy": "none", "pp": 2, "inner": 1, "microbatches": 4, "schedule": "gpipe"},
    "1f1b": {"strategy": "none", "pp": 4, "inner": 1, "microbatches": 6},
    "interleaved": {"strategy": "none", "pp": 2, "inner": 1, "microbatches": 4, "chunks": 2, "schedule": "interleaved"},
    "ep": {"experts": True, "inner": 4},
    "ep-dp": {"experts": True, "inner": 2, "outer": 2},
    "tp-dp": {"tp": 2},
    "tp-fsdp": {"tp": 2, "strategy": "fsdp"},
    "tp-pp": {"tp": 2, "pp": 2, "inner": 1, "strategy": "none", "microbatches": 3},
    "pp-dp": {"pp": 2, "microbatches": 4},
    "tp-pp-dp": {"tp": 2, "pp": 2, "inner": 2, "microbatches": 4},
    "pp-zero1": {"pp": 2, "microbatches": 2, "strategy": "zero1"},
}
PROGRAM_NAMES = tuple(_PROGRAMS)


def random_scenario(
    seed: int, *, program: str | None = None, regime: str | None = None, real: bool = False, steps: int = 3
) -> Scenario:
    """A scenario drawn from ``seed``; ``program`` (of :data:`PROGRAM_NAMES`) and ``regime`` can be fixed."""
    rng = np.random.default_rng([seed, 5])
    name = program or PROGRAM_NAMES[int(rng.integers(len(PROGRAM_NAMES)))]
    regime = regime or REGIMES[seed % 3]
    fields: dict[str, Any] = {"inner": int(rng.choice([2, 2, 4]))} | _PROGRAMS[name]
    small = regime != "gpu"
    fields |= {
        "name": name,
        "layers": int(rng.choice([4, 8])),
        "hidden": int(rng.choice([256, 512] if small else [1024, 2048])),
        "sequence": int(rng.choice([128, 256] if small else [512, 1024])),
        "batch": int(rng.choice([1, 2, 4])),
        "coarse": bool(rng.integers(2)),
        "steps": steps,
        "first_step": int(rng.integers(0, 20)),
        "bucket_cap": int(rng.choice([1 << 20, 4 << 20, 25 << 20])),
        "noise_permille": int(rng.choice([0, 5, 20])),
        "contention_permille": int(rng.choice([0, 50, 150])),
        "sync_each_step": bool(rng.integers(2)),
        "last_stage_extra_permille": int(rng.choice([0, 0, 100])) if "pp" in fields else 0,
        "imbalance_permille": int(rng.choice([0, 300, 1000])) if fields.get("experts") else 0,
        "early_receives": bool(rng.integers(2)),
        "described_groups": bool(rng.integers(4)),
        "real": real,
    }
    scenario = replace(Scenario(**fields), cluster=_cluster(rng))
    scenario = replace(scenario, loader_ns=_compute_per_step(scenario) // 100)
    low, high = _LAUNCH_TO_KERNEL[regime]
    launch = _mean_kernel(scenario) * int(rng.integers(low, high)) // 100
    return _in_regime(scenario, regime, launch, int(rng.integers(2, 5)), seed)


def _in_regime(scenario: Scenario, regime: str, launch_ns: int, comm_factor: int, seed: int) -> Scenario:
    """Make launches dearer or cheaper until the host decides as much of the step as ``regime`` says.

    Looked at with the seed of the scenario itself, so that it holds for the run that is made with that seed.
    """
    low, high = _AIM[regime]
    cheap, dear = _CHEAPEST_LAUNCH_NS, 1_000_000
    launch_ns = max(cheap, launch_ns)
    for _ in range(_TRIES):
        scenario = replace(scenario, launch_ns=launch_ns, comm_launch_ns=launch_ns * comm_factor)
        share = host_share(scenario, seed)
        if low <= share < high:
            break
        cheap, dear = (launch_ns, dear) if share < low else (cheap, launch_ns)
        launch_ns = min((cheap + dear) // 2, 3 * launch_ns) if share < low else max((cheap + dear) // 2, launch_ns // 3)
    return scenario


def host_share(scenario: Scenario, seed: int = 0) -> float:
    """Share of rank 0's closed steps in which nothing was enqueued that could have computed."""
    plan = make_plan(scenario, seed)
    timeline = simulate(plan)
    steps = [w for w in rank_truth(plan, 0, observe(timeline.ranks[0], Clock())).steps if not w.open]
    host = sum(w.split["exposed_host_ns"] + w.split["idle_host_ns"] for w in steps)
    return host / max(1, sum(w.end - w.start for w in steps))


def possible_faults(scenario: Scenario) -> list[str]:
    """Kinds of faults that change something in ``scenario``."""
    kinds = ["loader-stall"]
    dp = scenario.inner * scenario.outer
    if scenario.ranks > 1:
        kinds += ["slow-gpu", "host-pause", "gc-pause", "profiler-start", "slow-link", "flapping-link", "late-launch"]
        kinds += ["slow-host"] if scenario.ranks > scenario.cluster.gpus_per_host else []
    if scenario.tp > 1 and scenario.ranks > scenario.cluster.gpus_per_host >= scenario.tp:
        kinds.append("misplaced-group")
    if dp > 1 and scenario.strategy != "none":
        kinds += ["blocking-wait", "no-overlap"]
        if scenario.strategy in ("ddp", "zero1", "zero1-torch", "zero2"):
            kinds += ["tiny-buckets", "huge-bucket"]
    return kinds


def random_fault(scenario: Scenario, seed: int, *, kind: str | None = None) -> Fault:
    """A fault that ``scenario`` can have; pauses are 2 to 30 % of the compute of a step."""
    rng = np.random.default_rng([seed, 6])
    kinds = possible_faults(scenario)
    chosen = kind or kinds[int(rng.integers(len(kinds)))]
    share = int(rng.integers(20, 300))
    rank: int | None = int(rng.integers(scenario.ranks))
    pause = max(20_000, _compute_per_step(scenario) * share // 1000)
    if chosen == "loader-stall" and rng.integers(2):
        rank = None
    if chosen in ("gc-pause", "late-launch", "misplaced-group", "blocking-wait", "no-overlap"):
        rank = None
    if chosen in ("tiny-buckets", "huge-bucket"):
        rank = None
    size = {
        "slow-gpu": share, "slow-host": 4 * share, "slow-link": int(rng.integers(50, 500)),
        "flapping-link": int(rng.integers(10, 100)), "tiny-buckets": 1 << int(rng.integers(12, 17)), "huge-bucket": 0,
        "misplaced-group": 0, "blocking-wait": 0, "no-overlap": 0, "late-launch": max(5_000, pause // 10),
    }.get(chosen, pause)  # fmt: skip
    return Fault(chosen, rank, size)


def _cluster(rng: np.random.Generator) -> Cluster:
    gpus = int(rng.choice([1, 2, 4, 8]))
    return Cluster(gpus_per_host=gpus, nics_per_host=max(1, gpus // int(rng.choice([1, 2]))))


def _mean_kernel(scenario: Scenario) -> int:
    work = _work(scenario)
    return sum(work) // len(work)


def _compute_per_step(scenario: Scenario) -> int:
    return sum(_work(scenario)) // scenario.steps


def _work(scenario: Scenario) -> list[int]:
    program = build_programs(scenario)[0]
    return [ins.work_ns for _, ins in program.launches() if ins.kind == Kind.COMPUTE]
