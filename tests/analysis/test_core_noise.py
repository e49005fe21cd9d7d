"""What ranks on CPU cores are accused of: only what cores do not differ by without a fault."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from commprof.analysis.behaviour import COMM, COMPUTE, HOST, INPUT, KernelTotals
from commprof.analysis.blame import find_cause
from commprof.analysis.core_noise import beyond_core_noise
from commprof.analysis.lateness import INHERITED, REASONS, Float64Array
from commprof.analysis.peers import Peers
from commprof.analysis.slow_links import through_memory

STEPS = ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
STEP_NS = 1_000


def operators(count: int, ns: int) -> KernelTotals:
    """``count`` calls of one operator in every step, ``ns`` in all."""
    many = len(STEPS)
    return KernelTotals(
        np.arange(many), np.zeros(many, np.int64), np.full(many, count), np.full(many, ns), ["aten::mm|-1"]
    )


def job(late: KernelTotals, other: KernelTotals, on_cpu: bool = True, core_wait: dict[str, float] | None = None) -> Any:
    """Two ranks; the first is the one that charges are about."""
    ranks = [
        SimpleNamespace(
            rank=number,
            on_cpu=on_cpu,
            behaviour=SimpleNamespace(kernels=table),
            shares=SimpleNamespace(step_names=STEPS),
        )
        for number, table in enumerate((late, other))
    ]
    return SimpleNamespace(ranks=ranks, notes=[], capture={"core_wait": core_wait or {}})


def charged(**by_step: list[float]) -> Float64Array:
    """Charges of rank 0, as shares of a step; the last column is for what lies in no step."""
    places = {"compute": COMPUTE, "comm": COMM, "host": HOST, "input": INPUT, "inherited": INHERITED}
    own = np.zeros((2, len(STEPS) + 1, len(REASONS)))
    for reason, shares in by_step.items():
        own[0, : len(STEPS), places[reason]] = np.array(shares) * STEP_NS
    return own


def accused(analysis: Any, charges: Float64Array) -> dict[str, list[float]]:
    """What rank 0 may be named for, by reason, as shares of a step."""
    peers = Peers(np.zeros(2, np.int64), np.empty(0, np.int64))
    length = np.full(len(STEPS), float(STEP_NS))
    found = beyond_core_noise(analysis, charges, peers, STEPS, STEPS, length)[0, : len(STEPS)] / STEP_NS
    return {REASONS[at]: found[:, at].round(6).tolist() for at in np.flatnonzero(found.any(axis=0)).tolist()}


def test_transfers_and_lateness_from_before_accuse_no_core() -> None:
    analysis = job(operators(10, 500), operators(10, 500))

    found = accused(analysis, charged(comm=[0.3] * 4, inherited=[0.3] * 4))

    assert found == {}
    assert [note.code for note in analysis.notes] == ["core-noise"]
    assert "rank 0 makes the others wait for 60.0 % of the step" in analysis.notes[0].message


@pytest.mark.parametrize(("late_ns", "part"), [(500, 0.0), (580, 0.0), (690, 0.0), (710, 1.0), (1_000, 1.0)])
def test_equal_operators_must_take_much_longer(late_ns: int, part: float) -> None:
    """On the other rank they take 500 ns a step; up to 1.16 times as long was seen without a fault."""
    analysis = job(operators(10, late_ns), operators(10, 500))

    found = accused(analysis, charged(compute=[0.4] * 4, host=[0.05] * 4, comm=[0.02] * 4))

    whole = {"compute": [0.4] * 4, "comm": [0.02] * 4, "host": [0.05] * 4}
    assert found == (whole if part else {})


def test_more_operators_are_evidence_for_their_part_of_the_compute() -> None:
    """15 calls of 55 ns against 10 of 50: five more are 275 ns, and ten slower ones 50."""
    analysis = job(operators(15, 825), operators(10, 500))

    found = accused(analysis, charged(compute=[0.26, 0.0, 0.26, 0.26], host=[0.02] * 4))

    kept = round(0.26 * 275 / 325, 6)
    assert found == {"compute": [kept, 0.0, kept, kept]}


def test_a_rank_with_fewer_and_larger_operators_of_a_name_is_no_slow_core() -> None:
    """Beside ten products of 50 ns the other rank runs 30 of 10 ns: by their mean those here take 2.5 times as long."""
    analysis = job(operators(10, 500), operators(40, 800))

    found = accused(analysis, charged(compute=[0.1, 0.1, 0.0, 0.0], inherited=[0.2, 0.2, 0.0, 0.0]))

    assert found == {}


@pytest.mark.parametrize(
    ("reason", "shares", "kept"),
    [
        pytest.param("host", [0.03, 0.06, 0.04, 0.05], [0.0, 0.0, 0.0, 0.0], id="gaps as cores have them"),
        pytest.param("host", [0.12, 0.14, 0.05, 0.13], [0.12, 0.14, 0.05, 0.13], id="gaps in most steps"),
        pytest.param("host", [0.0, 0.18, 0.0, 0.01], [0.0, 0.18, 0.0, 0.0], id="one long gap"),
        pytest.param("host", [0.0, 0.12, 0.0, 0.01], [0.0, 0.0, 0.0, 0.0], id="one gap of a sound run"),
        pytest.param("input", [0.02, 0.02, 0.01, 0.02], [0.0, 0.0, 0.0, 0.0], id="input as cores have it"),
        pytest.param("input", [0.05, 0.06, 0.04, 0.05], [0.05, 0.06, 0.04, 0.05], id="a slow loader"),
    ],
)
def test_gaps_and_input_count_beyond_what_sound_runs_show(reason: str, shares: list[float], kept: list[float]) -> None:
    analysis = job(operators(10, 520), operators(10, 500))

    found = accused(analysis, charged(**{reason: shares, "compute": [0.05] * 4}))

    assert found == ({reason: kept} if any(kept) else {})


@pytest.mark.parametrize(("late_ns", "part"), [(400, 1.0), (530, 1.0), (540, 0.0), (690, 0.0)])
def test_gaps_go_with_a_slow_core(late_ns: int, part: float) -> None:
    """Equal operators take 500 ns on the other rank. 15 % of the step lies between them: 1.06 times as long makes 5.9 %
    usual, 1.08 times 6.2 %."""
    analysis = job(operators(10, late_ns), operators(10, 500))

    found = accused(analysis, charged(host=[0.06] * 4))

    assert found == ({"host": [0.06] * 4} if part else {})


@pytest.mark.parametrize(
    ("core_wait", "counts"),
    [
        pytest.param({"0": 0.52, "1": 0.04}, True, id="another program has half of its core"),
        pytest.param({"0": 0.18, "1": 0.04}, False, id="threads of its own and of the system"),
        pytest.param({"0": 0.52, "1": 0.50}, False, id="both cores alike"),
        pytest.param({"0": 0.52}, False, id="of the other nobody knows"),
        pytest.param({}, False, id="nobody knows"),
    ],
)
def test_whoever_waits_for_its_core_is_late_for_all_of_it(core_wait: dict[str, float], counts: bool) -> None:
    """Equal operators take 1.12 times as long, which alone would be no evidence."""
    analysis = job(operators(10, 560), operators(10, 500), core_wait=core_wait)
    charges = charged(compute=[0.05] * 4, host=[0.06] * 4)

    found = accused(analysis, charges)

    assert found == ({"compute": [0.05] * 4, "host": [0.06] * 4} if counts else {})
    if counts:
        cause = find_cause(
            analysis,
            cast(Any, SimpleNamespace(own=charges)),
            Peers(np.zeros(2, np.int64), np.empty(0, np.int64)),
            (0,),
            STEPS,
        )
        assert cause.name == "slow-device"
        assert ("ready to run, but others used its core", 0.52, "share") in cause.evidence


def test_two_steps_are_judged_as_single_ones() -> None:
    """Fewer than three steps have no mean: a gap of 12 % is not yet evidence there."""
    analysis = job(operators(10, 500), operators(10, 500))
    peers = Peers(np.zeros(2, np.int64), np.empty(0, np.int64))
    charges = charged(host=[0.12, 0.16, 0.0, 0.0])

    found = beyond_core_noise(analysis, charges, peers, STEPS, STEPS[:2], np.full(2, float(STEP_NS)))

    assert found[0, :2, HOST].tolist() == [0.0, 0.16 * STEP_NS]


def test_on_devices_every_charge_counts() -> None:
    analysis = job(operators(10, 500), operators(10, 500), on_cpu=False)
    charges = charged(comm=[0.05] * 4, inherited=[0.05] * 4, host=[0.03] * 4)
    peers = Peers(np.zeros(2, np.int64), np.empty(0, np.int64))

    found = beyond_core_noise(analysis, charges, peers, STEPS, STEPS, np.full(len(STEPS), float(STEP_NS)))

    assert found is charges
    assert analysis.notes == []


@pytest.mark.parametrize(
    ("on_cpu", "hosts", "expected"),
    [
        pytest.param(True, {0: "a", 1: "a"}, True, id="two cores of one machine"),
        pytest.param(True, {0: "a", 1: "b"}, False, id="two machines"),
        pytest.param(True, {0: "a"}, False, id="nobody knows where the other is"),
        pytest.param(True, {}, False, id="nobody knows"),
        pytest.param(False, {0: "a", 1: "a"}, False, id="devices of one machine have links"),
    ],
)
def test_cores_of_one_machine_have_no_network_to_blame(on_cpu: bool, hosts: dict[int, str], expected: bool) -> None:
    analysis: Any = SimpleNamespace(
        ranks=[SimpleNamespace(on_cpu=on_cpu)] * 2, hosts=hosts, groups=[SimpleNamespace(ranks=(0, 1))]
    )

    found = through_memory(analysis, 0)

    assert found == expected
