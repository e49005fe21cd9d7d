"""Buckets that are too small: what their launches cost at the usual pace, and what fewer of them would leave."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.model import Diagnosis
from commprof.synth import Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns
from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]
PERIOD, COUNT, STEPS = 200, 16, 3


def launching(rank: int, cost: int) -> Trace:
    """Sixteen all-reduces of 16 KB per step, each launched by ``cost`` µs of the CPU before it launches a kernel."""
    trace = Trace(rank=rank)
    for step in range(STEPS):
        begin = step * PERIOD * COUNT
        trace.step(step, begin, begin + PERIOD * COUNT)
        for number in range(COUNT):
            at = begin + number * PERIOD
            trace.cpu_op("c10d::allreduce_", at, at + cost)
            trace.all_reduce(
                at + (50 if cost == 100 else 15), at + 60, launch=at + (40 if cost == 100 else 10),
                metadata={"elements": 4_096, "seq": COUNT * step + number},
            )  # fmt: skip
            trace.gemm(at + 110, at + (190 if rank else 195), launch=at + 105)
    return trace


@pytest.mark.parametrize(("usual", "back"), [(30, 405), (100, 1_350)])
def test_launches_count_at_what_they_cost_on_the_fastest_cpu(usual: int, back: int, judge: Judge) -> None:
    # Of rank 1, which loses the most, every period idles for 90 us inside the launch of an all-reduce, which takes 100.
    judged = judge(launching(0, usual), launching(1, 100))

    # Of 16 reductions of 16 KB one would do: 15 launches need not be, at 30 of 100 us if another CPU is that fast:
    # 15 x 90 x usual/100.
    assert judged.by_id["tiny-messages"]["title"].startswith(f"Many tiny messages ({COUNT} per step): ")
    evidence = judged.evidence("tiny-messages")
    assert evidence["idle while the CPU launches them"] == pytest.approx(1_000 * back, rel=0.02)
    assert judged.by_id["tiny-messages"]["recoverable_ns"] <= 1_000 * COUNT * usual


def diagnosed(scenario: Scenario, folder: Path) -> Diagnosis:
    """A simulated run, judged."""
    return commprof.diagnose(commprof.analyze(write_run(scenario, folder, seed=3, causes=False, calls=False).folder))


def replicas(**more: object) -> Scenario:
    """Two replicas with large tensors, whose CPU is far ahead."""
    fields = {"layers": 4, "hidden": 1024, "sequence": 512, "batch": 2, "steps": 4, "launch_ns": 2_000}
    return Scenario(**(fields | {"comm_launch_ns": 8_000} | more))  # type: ignore[arg-type]


def test_one_bucket_for_every_tensor_is_too_small_where_fewer_would_leave_less(tmp_path: Path) -> None:
    whole = replicas(faults=(Fault("tiny-buckets", None, 8_192),))
    usual = whole.without("tiny-buckets")
    gain = (step_ns(simulate(make_plan(whole, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    found = {finding.id: finding for finding in diagnosed(whole, tmp_path / "tiny").findings}
    without = [finding.id for finding in diagnosed(usual, tmp_path / "usual").findings if finding.severity != "info"]

    assert found["buckets-too-small"].severity != "info"
    assert 0.7 * gain <= (found["buckets-too-small"].recoverable_ns or 0) <= 1.7 * gain
    assert "buckets-too-small" not in without


@pytest.mark.parametrize(
    "more",
    [{"name": "zero2", "strategy": "zero2"}, {"name": "ddp-sync-always", "accumulate": False}],
    ids=["gathered again", "reduced in every micro-batch"],
)
def test_every_call_that_comes_once_per_bucket_need_not_be_launched(more: dict[str, object], tmp_path: Path) -> None:
    # A slow CPU, two micro-batches: a bucket costs the launch of a second reduction, or of a gather, as well.
    job = {"inner": 2, "microbatches": 2, "hidden": 256, "sequence": 128, "launch_ns": 12_000, "comm_launch_ns": 50_000}
    whole = replicas(**(job | more), faults=(Fault("tiny-buckets", None, 8_192),))
    usual = whole.without("tiny-buckets")
    gain = (step_ns(simulate(make_plan(whole, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    found = {finding.id: finding for finding in diagnosed(whole, tmp_path).findings}

    assert 0.9 * gain <= (found["buckets-too-small"].recoverable_ns or 0) <= 1.3 * gain


@pytest.mark.parametrize(
    "more", [{"name": "zero1", "strategy": "zero1"}, {"name": "zero2", "strategy": "zero2", "microbatches": 2}],
    ids=["one pass", "reduced after every micro-batch"],
)  # fmt: skip
def test_small_buckets_are_gathered_one_by_one_as_well(more: dict[str, object], tmp_path: Path) -> None:
    # A device that decides the step: after the optimizer nothing runs beside the gathers, of which each has a latency.
    job = {"layers": 8, "inner": 4, "steps": 5, "comm_launch_ns": 4_000}
    whole = replicas(**(job | more), faults=(Fault("tiny-buckets", None, 65_536),))
    usual = whole.without("tiny-buckets")
    gain = (step_ns(simulate(make_plan(whole, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    found = {finding.id: finding for finding in diagnosed(whole, tmp_path / "tiny").findings}
    without = {finding.id: finding for finding in diagnosed(usual, tmp_path / "usual").findings}

    assert found["buckets-too-small"].severity != "info"
    assert gain <= (found["buckets-too-small"].recoverable_ns or 0) <= 1.3 * gain
    assert "buckets-too-small" not in without
    # What is left to the gathers is what they take in the buckets of the usual size.
    gathers = [one["gather-after-optimizer"].recoverable_ns or 0 for one in (found, without)]
    assert gathers[0] == pytest.approx(gathers[1], rel=0.05)


def test_units_of_sharded_parameters_are_no_buckets(tmp_path: Path) -> None:
    # Eight layers are scattered one by one, and reduced over replicas: sixteen reductions that no bucket size decides.
    hybrid = replicas(
        name="hsdp", strategy="hsdp", inner=2, outer=2, layers=8, hidden=256, sequence=128, comm_launch_ns=40_000
    )

    found = diagnosed(hybrid, tmp_path)

    assert "buckets-too-small" not in [finding.id for finding in found.findings]


def test_reductions_that_a_late_gather_queues_behind_do_not_alternate(tmp_path: Path) -> None:
    # ZeRO-3 has one stream: without prefetch the gather that compute waits for stands behind the reduction.
    serial = replicas(name="zero3", strategy="zero3", hidden=512, faults=(Fault("no-overlap"),))

    named = [finding.id for finding in diagnosed(serial, tmp_path).findings if finding.severity != "info"]

    assert "fsdp-no-prefetch" in named
    assert "reduction-alternates" not in named
