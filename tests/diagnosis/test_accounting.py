"""Every exposed or idle instant is charged once: random simulated runs against the simulator's split of each step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import commprof
from commprof.analysis.model import Analysis
from commprof.diagnosis.accounting import Charge, Ledger, _above_noise, _standard_error, judge, ranked
from commprof.diagnosis.findings import cases
from commprof.diagnosis.findings.case import PARTS, Case, Claim
from commprof.diagnosis.ground import Ground, lay_ground
from commprof.diagnosis.model import Finding, Threshold
from commprof.diagnosis.on_path import all_of
from commprof.diagnosis.thresholds import DEFAULTS
from commprof.report.glossary import MEASURED
from commprof.synth import preset, write_run
from commprof.synth.sampling import possible_faults, random_fault
from tests.analysis.test_shorter_calls import STEPS, analysis_of, waiting_cpu

FIXTURES = Path(__file__).parents[2] / "fixtures"
PROGRAMS = ("ddp", "zero2", "fsdp", "tp-dp", "ep", "pp")
HOST = {
    "host-bound", "input-bound", "device-synchronisation", "allocator-retries", "copy-bound", "bucket-copies",
    "pipeline-bubble", "straggler", "blocking-wait", "fsdp-rate-limiter",
}  # fmt: skip
"""Findings that may be charged with idle time or copies too."""


def simulated(seed: int, folder: Path) -> tuple[Analysis, dict[str, Any]]:
    """A random small run, every second with a fault: its analysis and the simulator's truth."""
    rng = np.random.default_rng([seed, 11])
    scenario = replace(
        preset(PROGRAMS[seed % len(PROGRAMS)]), layers=4, hidden=int(rng.choice([256, 1024])), sequence=256, steps=5,
        launch_ns=int(rng.choice([3_000, 12_000])), bucket_cap=int(rng.choice([1 << 20, 25 << 20])),
        noise_permille=int(rng.choice([0, 20])), imbalance_permille=300 if seed % len(PROGRAMS) == 4 else 0,
    )  # fmt: skip
    if seed % 2:
        kinds = possible_faults(scenario)
        kind = kinds[int(rng.integers(len(kinds)))]
        scenario = replace(scenario, faults=(random_fault(scenario, seed, kind=kind),))
    written = write_run(scenario, folder / "run", seed=seed, causes=False)
    return commprof.analyze(written.folder, jobs=1), json.loads(written.truth.read_text())


def lost_of(truth: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Of every closed step the split of the rank that loses the most, by the truth."""
    best: dict[str, dict[str, int]] = {}
    for rank in truth["ranks"]:
        for step in rank["steps"]:
            if not step["open"] and (step["name"] not in best or lost(step) > lost(best[step["name"]])):
                best[step["name"]] = step
    return best


def lost(step: dict[str, int]) -> int:
    """Time of a step in which nothing is computed."""
    return step["exposed_comm_ns"] + step["exposed_copy_ns"] + step["idle_ns"]


def ground_of(analysis: Analysis) -> Ground:
    """What the rules look at."""
    ground = lay_ground(analysis)
    assert ground is not None
    return ground


@pytest.mark.parametrize("seed", range(12))
def test_the_parts_of_the_step_are_those_of_the_truth(seed: int, tmp_path: Path) -> None:
    analysis, truth = simulated(seed, tmp_path)
    worst = lost_of(truth).values()

    accounting = commprof.diagnose(analysis).accounting

    assert accounting is not None
    parts = accounting.parts
    assert accounting.steps == len(worst)
    assert sum(part.ns for part in parts) == accounting.duration_ns == sum(s["end_ns"] - s["start_ns"] for s in worst)
    assert sum(part.exposed for part in parts) == sum(step["exposed_comm_ns"] for step in worst)
    assert sum(part.idle for part in parts) == sum(step["idle_ns"] for step in worst)
    assert sum(part.copy for part in parts) == sum(step["exposed_copy_ns"] for step in worst)
    assert all(min(part.exposed, part.idle, part.copy) >= 0 for part in parts)
    assert all(part.ns == part.exposed + part.idle + part.copy for part in parts[1:])
    assert not [part for part in parts[1:] if part.finding is not None and part.name not in HOST and part.copy]


@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_no_instant_is_charged_to_two_findings(seed: int, tmp_path: Path) -> None:
    # Kept apart from the ledger: every row of exposed and idle time counts down what each finding is given of it.
    ground = ground_of(simulated(seed, tmp_path)[0])
    left = {part: getattr(ground.exposed, part).astype(np.int64) for part in PARTS}
    left |= {"idle": ground.idle.ns.astype(np.int64), "copy": ground.copies.astype(np.int64)}
    expected = []
    for case in cases(ground):
        given = 0
        for part, amounts in left.items():
            wanted = getattr(case.claim, part)
            if wanted is not None:
                assert (wanted >= 0).all(), (case.id, part)
                taken = [min(int(has), int(asks)) for has, asks in zip(amounts, wanted, strict=True)]
                amounts -= np.array(taken, np.int64)
                given += sum(taken)
        expected.append((case.id, given))

    charged = [(finding.id, charge.ns) for finding, charge in judge(ground, cases(ground), Ledger(ground))]

    assert all((amounts >= 0).all() for amounts in left.values())
    assert [entry for entry in charged if entry[1]] == [entry for entry in expected if entry[1]]


@pytest.mark.parametrize(
    ("where", "error"), [([1, 0, 1, 0, 1], 4.66), ([1, 1, 1, 1, 1], 35.0), ([0, 1, 1, 1, 1], 35.0)]
)
def test_noise_over_steps_is_that_within_the_steps_of_one_reference_rank(where: list[int], error: float) -> None:
    lost = np.array([22, 154, 1, 146, 1], np.int64)
    ground = SimpleNamespace(steps=[SimpleNamespace(where=rank) for rank in where])

    found = _standard_error(ground, lost)  # type: ignore[arg-type]

    # Rank 1 loses 22, 1, 1 (mean 8) and rank 0 154, 146 (mean 150): (196 + 49 + 49 + 16 + 16) / 3 = 108.7, whose root
    # over the root of 5 is 4.66. Over all steps, mean 64.8: 24,523 / 4 = 6,131, which makes 35.0. A rank that is the
    # reference once tells nothing of scatter.
    assert found == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize(
    ("lost", "above"), [([900, 140, 142, 140, 138], True), ([900, 0, 0, 0, 0], False), ([900, 10, 12, 10, 8], False)]
)
def test_one_step_that_stands_out_does_not_make_noise_of_the_others(lost: list[int], above: bool) -> None:
    # All five: mean 292, standard error 152, and twice that is more. The other four: mean 140, standard error 0.8; but
    # nothing, or less than 2 % of a step of 1000, in the neighbours.
    ground = SimpleNamespace(
        steps=[SimpleNamespace(where=0)] * 5, limits=DEFAULTS, duration=5_000,
    )  # fmt: skip

    assert _above_noise(ground, np.array(lost, np.int64)) == above  # type: ignore[arg-type]


@pytest.mark.parametrize(("inputs", "severity"), [(10, "info"), (30, "low"), (90, "medium")])
def test_a_finding_is_as_severe_as_what_would_come_back(inputs: int, severity: str, tmp_path: Path) -> None:
    # Given a run of which 1, 3 or 9 % of the critical path are fetching input, and a rule that claims as good as
    # nothing of its idle time: a nanosecond of every cause.
    ground = ground_of(simulated(0, tmp_path)[0])
    path = ground.analysis.critical_path
    assert path is not None
    path.inputs = np.zeros(len(ground.analysis.ranks), np.int64)
    path.inputs[0] = inputs * ground.duration // (1_000 * len(ground.steps)) * path.steps
    claim, measured = Claim(idle=np.minimum(ground.idle.ns, 1)), np.arange(100, 100 + len(ground.steps))
    case = Case("input-bound", "", claim, (), path=all_of(path, "inputs"), measured=measured)

    finding, charge = judge(ground, [case], Ledger(ground))[0]

    # Then it is judged by what would come back, if what it is measured by is no noise: 100, 101, 102 is none.
    assert charge.ns < ground.duration // 100
    assert finding.severity == severity


@pytest.mark.parametrize("on_path", [True, False])
def test_only_what_the_path_or_a_replay_of_calls_tells_is_promised_beyond_the_charge(
    on_path: bool, tmp_path: Path
) -> None:
    """As the glossary says of what could come back: every other cause promises no more than it is charged with."""
    ground = ground_of(simulated(0, tmp_path)[0])
    path = ground.analysis.critical_path
    assert path is not None
    lost = ground.lost // len(ground.steps)
    path.inputs = np.full(len(ground.analysis.ranks), lost * path.steps // len(ground.analysis.ranks))
    # Given a claim of a nanosecond of each idle row, and all that is lost on the path or by the case's own estimate.
    case = Case(
        "input-bound", "", Claim(idle=np.minimum(ground.idle.ns, 1)), (), host_back=True,
        path=all_of(path, "inputs") if on_path else None,
        recoverable=np.full(len(ground.steps), lost, np.int64),
    )  # fmt: skip

    finding, charge = judge(ground, [case], Ledger(ground))[0]

    assert 0 < charge.ns < lost
    assert finding.recoverable_ns is not None
    assert finding.charged_ns is not None
    assert (finding.recoverable_ns > finding.charged_ns) == on_path
    text = next(term.text for term in MEASURED if term.slug == "recoverable")
    assert "may be more than the charge" in text


def test_what_the_program_is_like_promises_what_causes_leave(tmp_path: Path) -> None:
    # Given a run of which half of the lost time is launching on the critical path, and a structural finding that comes
    # first and is charged with all of the idle time.
    analysis = simulated(0, tmp_path)[0]
    for rank in analysis.ranks:
        assert rank.trail is not None
        rank.trail.progress = None
    ground, path = ground_of(analysis), analysis.critical_path
    assert path is not None
    lost = ground.lost // len(ground.steps)
    path.cpu = np.full(len(analysis.ranks), lost // 2 * path.steps // len(analysis.ranks))
    bubble = Case(
        "pipeline-bubble", "", Claim(idle=ground.idle.ns, **vars_of(ground)), (), host_back=True, structural=True
    )
    late = Case("host-bound", "", Claim(copy=ground.copies), (), path=all_of(path, "cpu", at_most=lost))

    promised = [finding.recoverable_ns for finding, _ in judge(ground, [bubble, late], Ledger(ground))]

    # Then launching promises its half, and the other one the rest.
    assert promised[1] == pytest.approx(lost // 2, abs=len(analysis.ranks))
    assert promised[0] == pytest.approx(lost - lost // 2, abs=len(analysis.ranks) + 1)


def test_launching_on_the_path_comes_back_where_others_are_charged_with_all_time(tmp_path: Path) -> None:
    # Given a run of which half of the lost time is launching on the critical path, as where all ranks wait for one and
    # its CPU decides the step; a structural finding is charged with everything.
    analysis = simulated(0, tmp_path)[0]
    for rank in analysis.ranks:
        assert rank.trail is not None
        rank.trail.progress = None
    ground, path = ground_of(analysis), analysis.critical_path
    assert path is not None
    lost = ground.lost // len(ground.steps)
    path.cpu = np.full(len(analysis.ranks), lost // 2 * path.steps // len(analysis.ranks))
    everything = Claim(idle=ground.idle.ns, copy=ground.copies, **vars_of(ground))
    first = Case("pipeline-bubble", "", everything, (), host_back=True, structural=True)
    late = Case("host-bound", "", Claim(idle=ground.idle.ns), (), path=all_of(path, "cpu", at_most=lost))

    found = judge(ground, [first, late], Ledger(ground))

    assert [(finding.id, charge.ns > 0) for finding, charge in found] == [
        ("pipeline-bubble", True), ("host-bound", False),
    ]  # fmt: skip
    assert found[1][0].recoverable_ns == pytest.approx(lost // 2, abs=len(analysis.ranks))


def vars_of(ground: Ground) -> dict[str, Any]:
    """All parts of all exposed rows, as a claim asks for them."""
    return {part: getattr(ground.exposed, part) for part in PARTS}


@pytest.mark.parametrize(("alone", "severity"), [(10, "info"), (60, "medium")])
def test_a_finding_of_which_another_took_nearly_all_is_as_severe_as_it_would_be_alone(
    alone: int, severity: str, tmp_path: Path
) -> None:
    # Given a cause that costs 1 or 6 % of every step, of which a nanosecond of every cause of idle time is left for it.
    ground = ground_of(simulated(0, tmp_path)[0])
    cost = np.full(len(ground.steps), alone * ground.duration // (1_000 * len(ground.steps)))
    claim = Claim(idle=np.minimum(ground.idle.ns, 1))

    finding, charge = judge(ground, [Case("blocking-wait", "", claim, (), alone=cost)], Ledger(ground))[0]

    # Then it says so, and promises no more than what is left.
    assert finding.severity == severity
    assert finding.recoverable_ns == pytest.approx(charge.ns / len(ground.steps), abs=1)


@pytest.mark.parametrize(("alone", "told"), [(10, False), (60, True)])
def test_a_cause_of_which_others_took_all_is_told_if_it_is_worth_a_finding(
    alone: int, told: bool, tmp_path: Path
) -> None:
    # Given a cause that costs 1 or 6 % of every step, and one before it that is charged with all that is lost.
    ground = ground_of(simulated(0, tmp_path)[0])
    cost = np.full(len(ground.steps), alone * ground.duration // (1_000 * len(ground.steps)))
    everything = Claim(idle=ground.idle.ns, copy=ground.copies, **vars_of(ground))
    both = [
        Case("ddp-no-overlap", "", everything, (), host_back=True),
        Case("buckets-too-small", "", everything, (), alone=cost),
    ]

    found = judge(ground, both, Ledger(ground))

    # Then it stands there with what it would cost without the other, is charged with nothing and promises nothing.
    assert [finding.id for finding, _ in found] == ["ddp-no-overlap", "buckets-too-small"][: 1 + told]
    if told:
        finding, charge = found[1]
        assert (charge.ns, finding.charged_ns, finding.recoverable_ns, finding.severity) == (0, 0, 0, "medium")
        assert [entry.value for entry in finding.evidence] == [int(cost[0])]


@pytest.mark.parametrize("seed", [1, 2, 5])
def test_late_cpus_are_held_against_their_noise_over_all_ranks(seed: int, tmp_path: Path) -> None:
    analysis, truth = simulated(seed, tmp_path)

    found = [case for case in cases(ground_of(analysis)) if case.id == "host-bound" and case.cause != "pause"]

    # What the simulator says of every closed step, mean over the ranks.
    closed = [
        [step["idle_host_ns"] + step["exposed_host_ns"] for step in rank["steps"] if not step["open"]]
        for rank in truth["ranks"]
    ]
    assert found
    assert found[0].measured is not None
    assert found[0].measured.tolist() == [sum(ns) // len(ns) for ns in zip(*closed, strict=True)]


def test_nothing_about_transfers_alone_promises_more_than_hiding_all_of_them() -> None:
    # By hand (fixtures/README.md): the CPU launches the next forward pass at T + 1010, whenever the last bucket ends;
    # without that bucket, which ends at T + 850, steps would take their 1000 all the same.
    diagnosis = commprof.diagnose(commprof.analyze(FIXTURES / "ddp-two-ranks", jobs=1))

    (tail,) = [finding for finding in diagnosis.findings if finding.id == "ddp-tail-bucket"]

    assert diagnosis.bounds.all_hidden_ns == diagnosis.bounds.step_ns == 1_000_000
    assert tail.charged_ns
    assert tail.recoverable_ns == 0


def test_slow_calls_whose_time_others_are_charged_with_give_back_what_a_replay_tells(tmp_path: Path) -> None:
    ground = ground_of(analysis_of(tmp_path, [waiting_cpu(rank, 5_000) for rank in (0, 1)]))
    everything = Claim(rest=ground.exposed.rest)
    slow = np.full(STEPS, 6_000_000)
    cases_of = [
        Case("first", "", everything, ()),
        Case("slow", "", everything, (), shorter=slow, measured=slow),
        Case("no-slower", "", everything, (), shorter=slow),
    ]

    found = {finding.id: finding for finding, _ in judge(ground, cases_of, Ledger(ground))}

    # All-reduces of 1 ms instead of 7 let a step of 8 ms last as long as its CPU is busy, 5 ms. What makes the same
    # calls last as long again gives back nothing more, is charged with nothing, and says nothing.
    assert set(found) == {"first", "slow"}
    assert found["slow"].charged_ns == 0
    assert "charged to other findings" in found["slow"].evidence[-1].what
    assert found["slow"].recoverable_ns == pytest.approx(3_000_000, abs=20_000)
    assert found["slow"].severity == "high"


def told(identity: str, back: int, cause: str | None = None, severity: str = "high") -> tuple[Finding, Charge]:
    """A finding that promises so many nanoseconds, and was charged nothing."""
    found = Finding(
        id=identity, severity=severity, title=identity, charged_ns=0, recoverable_ns=back, share_of_step=0.1,
        evidence=(), advice=(), threshold=Threshold(0.02, "share of step", "test"), confidence="bound", cause=cause,
    )  # fmt: skip
    return found, Charge({})


def test_who_waits_comes_after_what_it_waits_for() -> None:
    queue = told("exposed-communication", 900, "queued")
    link, late = told("low-bandwidth", 500), told("straggler", 300)
    other = told("host-bound", 700)

    found = [finding.id for finding, _ in ranked([late, queue, link, other, told("copy-bound", 200)])]
    unnamed = [finding.id for finding, _ in ranked([other, queue, told("straggler", 950, severity="info")])]

    # By what comes back: 900, 700, 500, 300, 200; but the queue is there because calls are long and a rank is late.
    assert found == ["host-bound", "low-bandwidth", "straggler", "exposed-communication", "copy-bound"]
    # Nothing that names a cause elsewhere: the largest first.
    assert unnamed == ["exposed-communication", "host-bound", "straggler"]
