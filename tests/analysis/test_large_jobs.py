"""Roles and strategy of jobs of 64 to 1,024 ranks, from what one of their ranks calls on PyTorch's fake backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.analysis.model import Analysis
from commprof.analysis.parallelism import find_parallelism
from commprof.analysis.run import analyze
from tests.builders.sequence import sequence_trace
from tests.capture.jobs.sequences import SEQUENCES, load

LARGE = [name for name, sequence in SEQUENCES.items() if sequence.ranks >= 64]


def roles(analysis: Analysis) -> dict[str, str]:
    return {facts.name or "": role.name for facts, role in zip(analysis.groups, analysis.roles, strict=True)}


def parts(analysis: Analysis) -> set[str]:
    assert analysis.strategy is not None
    return set(analysis.strategy.name.split("+"))


@pytest.mark.parametrize("described", [True, False], ids=["described", "not described"])
@pytest.mark.parametrize("name", LARGE)
def test_large_jobs_are_recognised(name: str, described: bool, tmp_path: Path) -> None:
    sequence = load(name)
    wanted = {group["name"]: SEQUENCES[name].roles[group["description"]] for group in sequence["groups"]}
    path = sequence_trace(sequence, described=described, steps=2).write(tmp_path / "rank0.json")

    analysis = analyze(path, jobs=1)
    first = roles(analysis), parts(analysis)
    for rank in analysis.ranks:
        rank.places.phase[:] = -1
    find_parallelism(analysis)

    assert first == (wanted, SEQUENCES[name].strategy)
    # Without any phase the order of calls and their sizes are enough.
    assert (roles(analysis), parts(analysis)) == first
