"""Phases, buckets and causes of small simulated runs, against the simulator's own record of what it did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commprof.synth.presets import PRESETS
from commprof.synth.scenario import Fault
from tests.benchmarks.synth_where import Found, run


@pytest.mark.parametrize(
    "name", ["ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "sp", "async-tp", "pp-interleaved", "ep", "tp-pp-dp"]
)
def test_places_are_exact_and_causes_known(name: str) -> None:
    scenario = replace(PRESETS[name], layers=8, hidden=512, sequence=512, steps=2)

    found = run(scenario, seed=3)

    assert found.wrong == []
    assert found.calls > 0


def leading(found: Found) -> str:
    return max(found.causes, key=lambda cause: found.causes[cause])


@pytest.mark.parametrize(
    ("name", "fault", "cause"),
    [
        ("ddp", "blocking-wait", "blocking-wait"),
        ("fsdp", "blocking-wait", "blocking-wait"),
        ("ddp", "no-overlap", "tail"),
        ("fsdp", "no-overlap", "no-prefetch"),
        ("ddp", "late-launch", "host-bound"),
        ("ddp", "huge-bucket", "tail"),
        ("tp", None, "structural"),
        ("pp", None, "peer-wait"),
    ],
)
def test_a_fault_shows_as_its_cause(name: str, fault: str | None, cause: str) -> None:
    faults = (Fault(fault, None, 1_500_000 if fault == "late-launch" else 0),) if fault else ()
    scenario = replace(PRESETS[name], layers=4, steps=2, faults=faults)

    found = run(scenario, seed=3)

    assert found.wrong == []
    assert leading(found) == cause
