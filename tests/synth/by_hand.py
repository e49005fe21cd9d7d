"""A job with round numbers, and how to look at its timeline in µs."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from commprof.synth import Cluster, Link, Scenario, make_plan, simulate
from commprof.synth.clock import Clock, observe
from commprof.synth.program import Kind
from commprof.synth.sweep import RankTruth, rank_truth
from commprof.synth.timeline import Timeline

# A layer of 12 h^2 + 4 h = 120,400 parameters (h = 100): 481,600 B of fp32 gradients, 240,800 B of bf16.
# Launching costs 1 µs of CPU, the runtime call starts 0.4 µs into it, kernels start without delay.
LAYER_BYTES = 481_600
ROUND = Scenario(
    layers=1, hidden=100, sequence=1, batch=1, layer_forward_ns=100_000, optimizer_ns=50_000, steps=1, first_step=1,
    loader_ns=0, launch_ns=1_000, comm_launch_ns=1_000, launch_latency_ns=0, comm_base_ns=0,
    bucket_cap=LAYER_BYTES, first_bucket=LAYER_BYTES,
)  # fmt: skip


def round_job(bytes_per_s: int, **changes: Any) -> Scenario:
    """The round job on links without latency and with the given bandwidth."""
    link = Link(0, bytes_per_s)
    return replace(ROUND, cluster=Cluster(nvlink=link, nic=link, pcie=link), **changes)


def run(scenario: Scenario, seed: int = 0) -> Timeline:
    return simulate(make_plan(scenario, seed))


def rows(timeline: Timeline, rank: int = 0) -> list[tuple[str, str, str]]:
    """What ran on the device of ``rank`` in order of launch: a short name, start and end in µs as text."""
    times = timeline.ranks[rank]
    result = []
    for i, ins in timeline.plan.program(rank).launches():
        name = ins.name if ins.comm is not None else ins.op.rsplit("::", 1)[-1]
        if ins.kind == Kind.COPY:
            name = "copy"
        result.append((name, micros(times.dev_start[i]), micros(times.dev_end[i])))
    return result


def micros(ns: int) -> str:
    return str((Decimal(ns) / 1000).normalize().quantize(Decimal("0.001"))).rstrip("0").rstrip(".")


def truth(timeline: Timeline, rank: int = 0) -> RankTruth:
    """Split and exposure of ``rank`` on an exact clock."""
    return rank_truth(timeline.plan, rank, observe(timeline.ranks[rank], Clock()))
