"""Roles of process groups in jobs of 64 to 1,024 ranks, from what one rank of each calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.command import analyze
from tests.builders.sequence import sequence_trace
from tests.capture.jobs.sequences import SEQUENCES, load


@pytest.mark.parametrize("described", [True, False], ids=["described", "undescribed"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_roles_are_right_on_one_rank_of_a_large_job(name: str, described: bool, tmp_path: Path) -> None:
    sequence = load(name)
    path = sequence_trace(sequence, described=described).write(tmp_path / "rank.json")

    report = analyze(path, tmp_path / "report.json").report

    by_members = {tuple(group["ranks"]): group["description"] for group in sequence["groups"]}
    found = {by_members[tuple(row["ranks"])]: row["role"] for row in report["groups"]}
    assert found == SEQUENCES[name].roles


@pytest.mark.parametrize("name", SEQUENCES)
def test_the_calls_of_the_sequence_are_all_there_with_their_bytes(name: str, tmp_path: Path) -> None:
    sequence = load(name)
    path = sequence_trace(sequence, steps=1).write(tmp_path / "rank.json")

    report = analyze(path, tmp_path / "report.json").report

    size_of = {group["name"]: len(group["ranks"]) for group in sequence["groups"]}
    calls = sequence["calls"]
    rows = report["collectives"]
    assert [(row["op"], row["size_bytes"], row["group_size"]) for row in rows] == [
        (call["op"], call["size"], size_of[call["group"]]) for call in calls
    ]
    # A pipeline sends between passes, and gradients may be reduced after the last one: neither has a phase to record.
    last = max(index for index, call in enumerate(calls) if call["phase"] == "backward")
    told = [index for index, call in enumerate(calls[: last + 1]) if call["op"] not in ("send", "recv")]
    assert [rows[index]["phase"] for index in told] == [calls[index]["phase"] for index in told]
