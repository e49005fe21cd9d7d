"""Matching, waiting and late ranks of public traces of several ranks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run

pytestmark = pytest.mark.traces
Analyze = Callable[..., Run]
SHIFT_US = 5000
"""How far the clocks of ranks 4 to 7 are moved."""

# By the shortest duration of each call in the trace; the fourth has unequal splits, so no transfer is stated.
TRANSFER_US = [10, 8, 7, None, 86, 10, 20, 69]
LAST = [7, 7, 7, 7, 7, 5, 5, 4]


def shifted(source: Path, folder: Path) -> Path:
    """A copy of the eight traces in which the clocks of ranks 4 to 7 are ahead."""
    folder.mkdir()
    for file in sorted(source.glob("*.json.gz")):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        if trace["distributedInfo"]["rank"] >= 4:
            for event in trace["traceEvents"]:
                if "ts" in event:
                    event["ts"] += SHIFT_US
        (folder / file.name.removesuffix(".gz")).write_text(json.dumps(trace), encoding="utf-8")
    return folder


def rows(run: Run) -> list[list[dict[str, Any]]]:
    """The calls of all ranks by match, in order of time."""
    matches: dict[int, list[dict[str, Any]]] = {}
    for call in run.report["collectives"]:
        matches.setdefault(call["match"], []).append(call)
    return [sorted(matches[match], key=lambda call: call["rank"]) for match in sorted(matches)]


def test_all_ranks_of_the_recommender_meet_and_the_last_of_each_call_is_known(
    public_traces: Path, run_analyze: Analyze
) -> None:
    run = run_analyze(public_traces / "dlrm-8rank-v100")

    calls = rows(run)

    assert [len(ranks) for ranks in calls] == [8] * 8
    assert run.report["matching"]["unmatched"] == 0
    for place, (transfer, last) in enumerate(zip(TRANSFER_US, LAST, strict=True)):
        expected = None if transfer is None else 1000 * transfer
        assert {call["transfer_ns"] for call in calls[place]} == {expected}
        assert {call["last_rank"] for call in calls[place]} == {last}
        if expected is not None:
            assert [call["wait_ns"] for call in calls[place]] == [c["duration_ns"] - expected for c in calls[place]]
    assert max(map(abs, run.report["matching"]["clock_offsets_ns"].values())) < 10_000
    assert run.report["stragglers"][0]["rank"] == 7
    assert run.report["stragglers"][0]["last"] == 5
    # Its lateness is from before the capture; nobody with all eight ranks at hand is asked for all ranks.
    (advice,) = next(row["advice"] for row in run.report["findings"] if row["cause"] == "inherited")
    assert advice == "Record more steps to see what makes it late."


def test_clocks_that_are_ahead_change_neither_waiting_nor_transfer_nor_who_is_late(
    public_traces: Path, run_analyze: Analyze, tmp_path: Path
) -> None:
    keys = ("wait_ns", "transfer_ns", "exposed_wait_ns", "exposed_transfer_ns", "last_rank", "skew_ns", "end_skew_ns")
    plain = run_analyze(public_traces / "dlrm-8rank-v100")

    moved = run_analyze(shifted(public_traces / "dlrm-8rank-v100", tmp_path / "moved"))

    before, after = plain.report["matching"]["clock_offsets_ns"], moved.report["matching"]["clock_offsets_ns"]
    assert {rank: after[rank] - before[rank] for rank in before} == {
        str(rank): 1000 * SHIFT_US * (rank >= 4) for rank in range(8)
    }
    for key in keys:
        assert [[call[key] for call in calls] for calls in rows(moved)] == [
            [call[key] for call in calls] for calls in rows(plain)
        ]
    late = [(row["rank"], row["charged_ns_per_step"], row["cause"]) for row in plain.report["stragglers"]]
    assert [(row["rank"], row["charged_ns_per_step"], row["cause"]) for row in moved.report["stragglers"]] == late


def test_two_of_128_ranks_whose_kernels_do_not_pair_match_nothing_and_name_nobody(
    public_traces: Path, run_analyze: Analyze
) -> None:
    """Events were sampled at random: the ten calls of each rank are not the same ten."""
    run = run_analyze(public_traces / "sampled-2of128")

    matching = run.report["matching"]

    assert run.report["input"]["missing_ranks"] == list(range(2, 128))
    assert (matching["matched"], matching["unmatched"]) == (0, 20)
    assert {call["match"] for call in run.report["collectives"]} == {None}
    assert {call["last_rank"] for call in run.report["collectives"]} == {None}
    assert run.report["stragglers"] == []
