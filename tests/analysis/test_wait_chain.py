"""The chain of waiting of the worst step, by hand.

Eight ranks in pairs (0 1, 2 3, 4 5, 6 7) that share a model, and in columns (0 2 4 6, 1 3 5 7) that share gradients.
A step: 3 ms of compute, an all-reduce of the pair, 3 ms of compute, an all-reduce of the column.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.builders.command import Run, call
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]
RANKS, STEPS = 8, 5
Extra = Callable[[int, int], tuple[int, int]]
"""Microseconds of compute that a rank has beyond 3 ms before the calls of its pair and its column, by rank and step."""


def write(folder: Path, extra: Extra) -> Path:
    """One trace per rank; everything of a step is launched at its begin."""
    traces = [Trace(rank=rank, world_size=RANKS) for rank in range(RANKS)]
    begin = 0
    for step in range(STEPS):
        at = [begin + 100] * RANKS
        for half, (name, members, transfer) in enumerate((("tp", _pair, 100), ("dp", _column, 200))):
            for rank, trace in enumerate(traces):
                end = at[rank] + 3000 + extra(rank, step)[half]
                trace.kernel("gemm_layer", at[rank], end, launch=begin + 10 * half)
                at[rank] = end
            enter = list(at)
            for rank, trace in enumerate(traces):
                at[rank] = max(enter[other] for other in members(rank)) + transfer
                trace.all_reduce(
                    enter[rank], at[rank], launch=begin + 10 * half + 5,
                    metadata={"group": name, "description": name, "ranks": members(rank), "seq": step},
                )  # fmt: skip
        for trace in traces:
            trace.step(step + 1, begin, max(at))
        begin = max(at)
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


def _pair(rank: int) -> list[int]:
    return [rank - rank % 2, rank - rank % 2 + 1]


def _column(rank: int) -> list[int]:
    return [rank % 2 + 2 * row for row in range(RANKS // 2)]


def _links(run: Run) -> list[tuple[Any, ...]]:
    chain = run.report["wait_chain"]
    return [(link["rank"], link["waited_for"], link["op"], link["wait_ns"]) for link in chain["links"]]


def test_the_chain_leads_through_the_pair_to_the_rank_where_it_began(run_analyze: Analyze, tmp_path: Path) -> None:
    """Rank 5 computes 2 ms longer, 3 ms in the fourth step; rank 4 adds 0.4 ms of its own behind it.

    There the column of rank 4 waits 3.4 ms for it, of which it had waited 3 itself.
    """

    def extra(rank: int, step: int) -> tuple[int, int]:
        return {5: (3000 if step == 3 else 2000, 0), 4: (0, 400)}.get(rank, (0, 0))

    run = run_analyze(write(tmp_path / "run", extra))

    chain = run.report["wait_chain"]
    assert chain["step"] == "ProfilerStep#4"
    first, second = _links(run)
    assert first[0] in (0, 2, 6)
    assert first[1:] == (4, "all_reduce", 3_400_000)
    assert second == (4, 5, "all_reduce", 3_000_000)
    did = {part["what"]: round(part["share"], 3) for part in chain["links"][0]["did"]}
    assert did == {"waiting": round(3000 / 3400, 3), "compute": round(400 / 3400, 3)}
    assert [part["what"] for part in chain["links"][1]["did"]] == ["compute"]
    assert (chain["root_rank"], chain["cause"]) == (5, "slow-device")
    groups = {row["group_id"]: row["description"] for row in run.report["groups"]}
    assert [groups[link["group_id"]] for link in chain["links"]] == ["dp", "tp"]


def test_a_rank_that_is_late_by_itself_is_the_only_link(run_analyze: Analyze, tmp_path: Path) -> None:
    """Rank 4 is slow between the two calls: nobody held it up."""
    run = run_analyze(write(tmp_path / "run", lambda rank, step: (0, 1000 if rank == 4 else 0)))

    ((waiter, late, operation, wait),) = _links(run)
    assert waiter in (0, 2, 6)
    assert (late, operation, wait) == (4, "all_reduce", 1_000_000)
    assert (run.report["wait_chain"]["root_rank"], run.report["wait_chain"]["cause"]) == (4, "slow-device")


def test_waits_below_two_hundredths_of_the_step_are_no_chain(run_analyze: Analyze, tmp_path: Path) -> None:
    """0.1 ms of 6.4 ms."""
    run = run_analyze(write(tmp_path / "run", lambda rank, step: (0, 100 if rank == 4 else 0)))

    assert run.report["wait_chain"] is None


def test_one_rank_waits_for_nobody_of_whom_it_is_known(run_analyze: Analyze, tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda rank, step: (0, 1000 if rank == 4 else 0))

    run = run_analyze(folder / "rank0.json")

    assert run.report["wait_chain"] is None


def test_the_chain_is_told_in_the_terminal_and_in_the_page(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", lambda rank, step: {5: (2000, 0), 4: (0, 400)}.get(rank, (0, 0)))
    page = tmp_path / "report.html"

    _, printed, _ = call("analyze", folder, "-o", page)

    for text in (" ".join(printed.split()), page.read_text(encoding="utf-8")):
        assert "for rank 4 in all_reduce of dp; rank 4 is late by waiting for others itself" in text
        assert "Rank 4 waits 2.00 ms for rank 5 in all_reduce of tp; rank 5 is late by more or slower compute" in text
        assert "began with rank 5: slow device" in text
