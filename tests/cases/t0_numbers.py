"""The numbers of ``T0``, and the counts of faults beside them."""

from __future__ import annotations

from typing import Any

from tests.builders.command import Run

STEP = {
    "duration_ns": 1_000_000,
    "compute_ns": 600_000,
    "comm_ns": 400_000,
    "overlap_ns": 100_000,
    "exposed_comm_ns": 300_000,
    "copy_ns": 0,
    "exposed_copy_ns": 0,
    "idle_ns": 100_000,
    "overlap_ratio": 0.25,
    "comm_share": 0.3,
}
WHOLE = {**STEP, "duration_ns": 900_000, "idle_ns": 0, "comm_share": 1 / 3}


def assert_t0(run: Run, *, rank: int = 0, operation: str = "all_reduce") -> None:
    """The run ended well and holds the numbers of ``T0`` for this rank, as the only row of it."""
    assert run.code == 0, run.stderr
    (row,) = (row for row in run.report["ranks"] if row["rank"] == rank)
    (step,) = row["steps"]
    assert step["name"] == "ProfilerStep#1"
    assert {key: step[key] for key in STEP} == STEP
    assert {key: row["whole"][key] for key in WHOLE} == WHOLE
    assert (step["end_ns"] - step["start_ns"], row["whole"]["start_ns"] - step["start_ns"]) == (1_000_000, 0)
    (call,) = (call for call in run.report["collectives"] if call["rank"] == rank)
    assert (call["op"], call["duration_ns"], call["exposed_ns"]) == (operation, 400_000, 300_000)


def file_entry(run: Run, place: int = 0) -> Any:
    """What the report says about one input file."""
    return run.report["input"]["files"][place]


def repaired(run: Run) -> dict[str, int]:
    """The kinds of repair that were counted, zeros left out."""
    return {kind: count for kind, count in file_entry(run)["repaired"].items() if count}


def skipped(run: Run) -> dict[str, int]:
    """The kinds of skipped event that were counted, zeros left out."""
    return {kind: count for kind, count in file_entry(run)["skipped"].items() if count}


def faults(run: Run) -> int:
    """How many events were repaired or skipped."""
    return sum(repaired(run).values()) + sum(skipped(run).values())
