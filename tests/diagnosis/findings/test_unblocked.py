"""What comes back without the CPU's waits for collectives: replays worked out by hand, and against the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import commprof
from commprof.diagnosis.findings.rank_program import Program
from commprof.diagnosis.findings.unblocked import replayed
from commprof.intervals import Int64Array
from commprof.synth import Cluster, Fault, Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.truth import step_ns

_LATENCY = 3
"""Microseconds from a launch to a start: a call launched so much before zero can start at zero."""


def microseconds(*values: int) -> Int64Array:
    return np.array(values, np.int64) * 1000


def program(work: int, **columns: tuple[int, ...]) -> Program:
    """One window with so much work; columns in microseconds, those of groups and links are plain numbers."""
    count = len(columns["ready"])
    usual: dict[str, tuple[int, ...]] = {
        "after": columns["ready"], "cpu": (-_LATENCY,) * count, "lane": tuple(range(count)),
        "group": tuple(range(count)), "link": tuple(range(count)),
    }  # fmt: skip
    given: dict[str, Any] = {
        name: np.array(values, np.int64) if name in ("lane", "group", "link", "shared_link") else microseconds(*values)
        for name, values in {**usual, **columns}.items()
    }
    none = ("shared_at", "shared_ns", "shared_link", "wait_at", "wait_cpu", "late_at", "late_cpu")
    nothing = {name: np.empty(0, np.int64) for name in none}
    marks = microseconds(0, work, work).reshape(1, 3)
    received = {name: np.zeros(1, np.int64) for name in ("received_at", "received_ns")}
    return Program(**{**nothing, **received, "marks": marks, "measured": marks, **given})


def length(one: Program, sooner: int = 0) -> int:
    """Microseconds that the window takes."""
    times = replayed(one, microseconds(sooner))[0]
    return int(times[2] - times[0]) // 1000


def test_gathers_that_take_longer_than_the_compute_beside_them_stay_exposed() -> None:
    # After 50 of other work three units of 200 with gathers of 300 on one stream, each ready at once.
    one = program(650, ready=(50, 50, 50), needed=(50, 250, 450), lasts=(300,) * 3, lane=(0,) * 3, group=(0,) * 3)

    found = length(one)

    # The first has nothing beside it, 200 run beside the second, which takes 100 more, and beside the third.
    assert found == 50 + 300 + 200 + 100 + 200 + 100 + 200


@pytest.mark.parametrize(("ready", "expected"), [((0, 300), 600), ((0, 600), 800)])
def test_the_last_reduction_has_nothing_left_beside_it(ready: tuple[int, int], expected: int) -> None:
    one = program(600, ready=ready, needed=(600, 600), lasts=(200, 200), lane=(0, 0), group=(0, 0))

    found = length(one)

    assert found == expected


def test_a_cpu_that_launches_late_decides_what_it_decided_before() -> None:
    one = program(600, ready=(0,), needed=(600,), lasts=(100,), after=(200,), cpu=(500,))

    found = length(one)

    # The 400 after the call cannot begin before it is launched at 500 and has reached the device.
    assert found == 500 + _LATENCY + 400


@pytest.mark.parametrize(("link", "expected"), [((0, 0, 0), 500), ((0, 1, 2), 400)])
def test_communicators_share_links(link: tuple[int, ...], expected: int) -> None:
    # The shortest, 100, is taken as the latency of all: the bytes of the others, 200 each, go one after the other.
    one = program(400, ready=(0, 0, 0), needed=(400, 400, 400), lasts=(100, 300, 300), link=link)

    found = length(one)

    assert found == expected


def test_kernels_that_a_cpu_launches_late_begin_no_sooner() -> None:
    one = program(600, ready=(600,), needed=(600,), lasts=(0,), late_at=(200,), late_cpu=(500,))

    found = length(one)

    assert found == 500 + _LATENCY + 400


def test_a_wait_of_the_cpu_does_not_end_with_a_call_that_it_launches_after_it() -> None:
    one = program(600, ready=(600,), needed=(600,), lasts=(100,), cpu=(50,), wait_at=(600,), wait_cpu=(0,))

    found = length(one)

    # The wait ends with the work, at 600; 50 later the call is launched, and 100 later it is over.
    assert found == 600 + 50 + _LATENCY + 100


def test_a_call_of_the_work_has_its_latency_before_its_bytes_share_the_link() -> None:
    # Its bytes follow 100 later, at 250, when 50 of the call beside it are left: both take 50 more.
    one = program(
        600, ready=(0, 500), needed=(600, 600), lasts=(300, 100), link=(0, 0), shared_at=(150,), shared_ns=(200,),
        shared_link=(0,),
    )  # fmt: skip

    found = length(one)

    assert found == 600 + 50


def test_a_message_that_comes_earlier_shortens_the_window_up_to_what_the_cpu_allows() -> None:
    slow, fast = (program(600, ready=(600,), needed=(600,), lasts=(0,), cpu=(cpu,)) for cpu in (500 - _LATENCY, 0))
    for one in (slow, fast):
        one.received_at, one.received_ns = microseconds(400), microseconds(300)

    found = [length(one, sooner=250) for one in (slow, fast)]

    assert found == [500, 350]


_NETWORK, _HOSTS = Cluster(gpus_per_host=1, nics_per_host=1), Cluster(gpus_per_host=2)
_JOB: dict[str, Any] = {
    "layers": 4, "hidden": 1024, "sequence": 512, "batch": 2, "steps": 5, "launch_ns": 3_000, "comm_launch_ns": 8_000,
    "sync_each_step": True, "faults": (Fault("blocking-wait"),),
}  # fmt: skip


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(name="gathers-exposed", strategy="fsdp", inner=2, cluster=_NETWORK, **_JOB),
        Scenario(name="one-stream", strategy="zero3", inner=2, cluster=_NETWORK, **_JOB),
        Scenario(name="gathers-ahead", strategy="fsdp", inner=2, cluster=_NETWORK, **{**_JOB, "batch": 4}),
        Scenario(name="tensor-parallel", tp=2, inner=2, bucket_cap=8 << 20, cluster=_HOSTS, **{**_JOB, "batch": 4}),
        Scenario(name="shared-links", tp=2, inner=2, bucket_cap=8 << 20, cluster=_NETWORK, **{**_JOB, "batch": 4}),
        Scenario(name="pipeline", pp=2, inner=2, microbatches=4, bucket_cap=4 << 20, cluster=_NETWORK, **_JOB),
    ],
    ids=lambda scenario: scenario.name,
)
def test_what_is_promised_is_what_the_run_takes_less(scenario: Scenario, tmp_path: Path) -> None:
    usual = scenario.without("blocking-wait")
    gain = (step_ns(simulate(make_plan(scenario, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    folder = write_run(scenario, tmp_path / "run", seed=3, causes=False, calls=False).folder
    found = [row for row in commprof.diagnose(commprof.analyze(folder)).findings if row.id == "blocking-wait"]

    assert len(found) == 1
    assert found[0].severity == "high"
    assert found[0].recoverable_ns == pytest.approx(gain, rel=0.08)


@pytest.mark.parametrize(("strategy", "hidden"), [("ddp", 256), ("ddp", 128), ("zero1", 256)])
def test_many_short_waits_hold_up_a_cpu_that_is_always_behind(strategy: str, hidden: int, tmp_path: Path) -> None:
    # Small buckets, each done a few us after its launch: the CPU waits for every one and launches all else later.
    scenario = Scenario(
        name=strategy, strategy=strategy, layers=4, hidden=hidden, sequence=128, batch=2, steps=5, launch_ns=12_000,
        comm_launch_ns=12_000, faults=(Fault("blocking-wait"), Fault("tiny-buckets", None, 4_096)),
    )  # fmt: skip
    usual = scenario.without("blocking-wait")
    gain = (step_ns(simulate(make_plan(scenario, 3))) or 0) - (step_ns(simulate(make_plan(usual, 3))) or 0)

    written = write_run(scenario, tmp_path, seed=3, causes=False, calls=False)
    found = {finding.id: finding for finding in commprof.diagnose(commprof.analyze(written.folder)).findings}

    assert found["blocking-wait"].recoverable_ns == pytest.approx(gain, rel=0.01)
