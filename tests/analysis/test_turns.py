"""Pauses that go round one rank after the other, and what is late together, on simulated and hand-made runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commprof.analysis.run import analyze
from commprof.analysis.turns import turns_of_hosts
from commprof.synth import Fault, Scenario, write_run
from tests.builders.command import analyze as analyze_command
from tests.builders.kineto import COMPUTE_STREAM, GEMM, Trace
from tests.cases.test_matching import run
from tests.cases.test_stragglers import Rank, job, late


@pytest.mark.parametrize(
    ("longer", "turns"),
    [
        # Two ranks that pause in turn; one of eight after the other, of which four had their turn.
        ([[50, 0, 48, 0], [0, 51, 0, 49]], [0, 1, 0, 1]),
        ([[0] * 4, [9, 0, 0, 0], [0, 9, 0, 1], [1, 0, 9, 0], [0, 1, 0, 9], [0] * 4, [0] * 4, [0] * 4], [1, 2, 3, 4]),
        # Nobody's turn in one step of five.
        ([[50, 0, 0, 0, 50], [0, 50, 0, 0, 0], [0, 0, 50, 0, 0]], [0, 1, 2, -1, 0]),
    ],
)  # fmt: skip
def test_equal_pauses_on_one_rank_after_the_other_go_round(longer: list[list[int]], turns: list[int]) -> None:
    found = turns_of_hosts(np.array(longer, float))

    assert found is not None
    assert found.tolist() == turns


@pytest.mark.parametrize(
    "longer",
    [
        pytest.param([[50, 50, 50, 50], [0, 0, 0, 0]], id="always the same rank"),
        pytest.param([[50, 50, 50, 0], [0, 0, 0, 50]], id="nearly always the same rank"),
        pytest.param([[50, 45, 50, 48], [48, 50, 47, 50], [0, 0, 0, 0], [0, 0, 0, 0]], id="a host with two ranks"),
        pytest.param([[5, 4, 3, 5], [4, 5, 4, 3], [3, 4, 5, 4]], id="noise of all"),
        pytest.param([[90, 0, 0, 0], [0, 9, 0, 0], [0, 0, 8, 0], [0, 0, 0, 9]], id="one pause far above the noise"),
        pytest.param([[0, 0, 0], [0, 0, 0]], id="no pause at all"),
        pytest.param([[50, 50, 50]], id="one rank"),
    ],
)
def test_what_is_no_pause_that_goes_round(longer: list[list[int]]) -> None:
    assert turns_of_hosts(np.array(longer, float)) is None


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault("gc-pause", None, 400_000), (None, "rotating", "host")),
        (Fault("host-pause", 1, 400_000), (1, "persistent", "host")),
        (Fault("loader-stall", 0, 400_000), (0, "persistent", "input")),
    ],
)
def test_two_ranks_whose_pauses_let_the_other_catch_up(
    fault: Fault, expected: tuple[Any, ...], tmp_path: Path
) -> None:  # fmt: skip
    """While rank 1 pauses in a step, the host of rank 0 gets ahead and its own pause in the next is hidden."""
    scenario = Scenario(
        name="tp", strategy="none", tp=2, inner=1, layers=4, hidden=512, sequence=128, batch=2, steps=6, first_step=0,
        launch_ns=8_000, comm_launch_ns=24_000, real=True, noise_permille=5,
        faults=(fault,),
    )  # fmt: skip
    write_run(scenario, tmp_path / "run", seed=5, causes=False, calls=False)

    analysis = analyze(str(tmp_path / "run"), jobs=1)

    assert [(one.rank, one.kind, one.cause) for one in analysis.stragglers] == [expected]


PAUSES = {0: 3, 3: 6, 5: 9}
"""Which rank pauses in which step."""


@pytest.mark.parametrize(
    ("pauses", "longest", "expected"),
    [
        pytest.param(PAUSES, 1, [(None, "rotating", "host")], id="three ranks, equal pauses"),
        pytest.param({0: 3, 3: 6}, 1, [(0, "intermittent", "host"), (3, "intermittent", "host")], id="two ranks"),
        pytest.param(PAUSES, 6, [(rank, "intermittent", "host") for rank in PAUSES], id="one of three far longer"),
    ],
)
def test_ranks_that_pause_now_and_then_take_turns_if_they_are_many_and_alike(
    pauses: dict[int, int], longest: int, expected: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """8 ranks, 12 steps of 6 ms; a pause lasts 3 ms, on rank 5 ``longest`` times as long."""

    def program(rank: Rank, step: int, place: int) -> None:
        rank.compute(3000)
        if pauses.get(place) == step:
            rank.pause(3000 * (longest if place == 5 else 1))
        rank.compute(3000)

    found = job(tmp_path, 8, 12, program)

    assert sorted(late(found), key=str) == sorted(expected, key=str)


def test_ranks_of_a_host_that_are_late_for_different_reasons_are_named_by_themselves(tmp_path: Path) -> None:
    """Ranks 0 and 1 of host A make their partners on B wait 1 ms each: 0 computes longer, the host of 1 pauses."""

    states = [Rank(Trace(rank=rank, world_size=4)) for rank in range(4)]
    for step in range(5):
        for place, rank in enumerate(states):
            rank.begin()
            rank.pause(1000 if place == 1 else 0)
            rank.compute(4000 if place == 0 else 3000)
        until = max(rank.at for rank in states) + 204
        for place, rank in enumerate(states):
            rank.trace.runtime("cudaStreamSynchronize", rank.at + 5, until)
            rank.reduce(until, group=f"dp{place % 2}", ranks=[place % 2, place % 2 + 2], seq=step)
            rank.end()
    for place, rank in enumerate(states):
        rank.trace.top["host_name"] = "AABB"[place]
        rank.trace.write(tmp_path / "run" / f"rank{place}.json")

    found = analyze_command(tmp_path / "run", tmp_path / "report.json")

    named = {(row["rank"], row["cause"]) for row in found.report["stragglers"]}
    assert named == {(0, "slow-device"), (1, "host")}


def test_a_long_transfer_accuses_none_of_its_members_alone(tmp_path: Path) -> None:
    """The all-reduce of ranks 2 and 3 transfers 1 ms longer than that of 0 and 1, which wait for them afterwards, 0 for
    2 all of it and 1 for 3 a third: what makes 2 and 3 late they have in common, and it is no fault of either."""

    def fill(trace: Trace, rank: int) -> None:
        pair, cross = [rank - rank % 2, rank - rank % 2 + 1], [rank % 2, rank % 2 + 2]
        for step in range(5):
            base = 10_000 * step
            trace.kernel(GEMM, base, base + 3000, stream=COMPUTE_STREAM)
            inner = base + (4500 if rank >= 2 else 3500)
            trace.all_reduce(base + 3000, inner, metadata={"group": f"tp{rank // 2}", "ranks": pair, "seq": step})
            ready = inner + (1667 if rank == 1 else 1000)
            trace.kernel(GEMM, inner, ready, stream=COMPUTE_STREAM)
            trace.all_reduce(ready, base + 5700, metadata={"group": f"dp{rank % 2}", "ranks": cross, "seq": step})
            trace.step(step, base, base + 10_000)

    found = run(tmp_path, 4, fill, step=0)

    assert [row for row in found.report["stragglers"] if row["rank"] is not None] == []
