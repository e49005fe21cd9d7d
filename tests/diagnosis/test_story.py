"""The verdict and the first finding tell one story, and the verdict's figures are those of the report."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commprof.analysis.run import analyze
from commprof.diagnosis.diagnose import diagnose
from commprof.report.view import build_report
from commprof.synth import parse_fault, preset, write_run

FIXTURES = Path(__file__).parents[2] / "fixtures"

SIMULATED = [
    ("ddp", 2, ()), ("ddp", 4, ("host-pause:1:6000",)), ("ddp", 4, ("loader-stall:1:8000",)),
    ("ddp", 4, ("slow-gpu:2:100",)), ("ddp", 4, ("late-launch:all",)), ("ddp", 4, ("huge-bucket",)),
    ("fsdp", 4, ()), ("zero1", 4, ()), ("tp", 4, ()), ("pp", 4, ()), ("ep", 4, ()), ("slow-host", 4, ()),
    ("gc-pause", 4, ()),
]  # fmt: skip

ABOUT = {
    "straggler": {"straggler"}, "input-bound": {"input"}, "host-bound": {"host"}, "device-synchronisation": {"host"},
    "allocator-retries": {"host"}, "blocking-wait": {"communication", "host"}, "pipeline-bubble": {"pipeline"},
    "all-to-all-imbalance": {"imbalance"}, "copy-bound": {"copy"}, "bucket-copies": {"copy"},
}  # fmt: skip
"""Which bottleneck a reader takes a finding to be about; all others are about communication."""


def told(report: dict[str, Any]) -> None:
    """What must hold of every report."""
    verdict, overall = report["verdict"], report["overall"]
    # What gives back less than a fiftieth of the step is not worth a sentence of the verdict.
    found = [row for row in report["findings"] if row["severity"] != "info" and (row["recoverable_share"] or 0) >= 0.02]
    duration = overall["duration_ns"]

    if found and verdict["bottleneck"] not in ("compute", "balanced", "unknown"):
        about = ABOUT.get(found[0]["id"], {"communication"})
        late = [row for row in report["stragglers"] if set(row["members"]) & set(found[0]["ranks"])]
        if any(row["cause"] in about for row in late):
            about |= {"straggler"}
        named = found[0]["title"].partition(": ")[0][1:] in verdict["summary"]
        assert verdict["bottleneck"] in about or named, verdict["summary"]

    exposed = overall["exposed_comm_ns"]
    known = [exposed, overall["idle_ns"], overall["compute_ns"], overall["exposed_copy_ns"]]
    shares = {f"{100 * ns / duration:.1f} %" for ns in known} | {
        # One rounding of one number: the headline gives the share that the list below it gives.
        f"{100 * share:.1f} %"
        for row in found[:1]
        for share in (row["share_of_step"] if row["recoverable_ns"] is None else row["recoverable_share"],)
        if share is not None
    }
    stated = re.findall(r"[\d.]+ %", verdict["summary"])
    parts = [text for text in stated if text not in shares]
    # Waiting, bubble and what late ranks cost are parts of exposed and idle time.
    assert all(float(text[:-2]) <= 100 * (exposed + overall["idle_ns"]) / duration + 0.1 for text in parts)
    assert len(parts) <= 1, (verdict["summary"], shares)

    if len(report["ranks"]) == 1:
        # One rank is its own reference: the verdict and the bar are about the same steps.
        bar = report["accounting"]
        lost = sum(part["exposed_ns"] for part in bar["parts"])
        assert verdict["exposed_comm_share"] == pytest.approx(lost / bar["duration_ns"])
    else:
        assert "mean over ranks" in verdict["summary"] or not stated


@pytest.mark.parametrize(("scenario", "ranks", "faults"), SIMULATED)
def test_simulated_runs(scenario: str, ranks: int, faults: tuple[str, ...], tmp_path: Path) -> None:
    run = preset(scenario).with_ranks(ranks)
    run = replace(run, steps=3, faults=(*run.faults, *map(parse_fault, faults)))
    write_run(run, tmp_path / "run", seed=3, calls=False, jobs=1)

    analysis = analyze(tmp_path / "run", jobs=1)

    told(build_report(analysis, diagnose(analysis)))


@pytest.mark.parametrize("name", sorted(path.name for path in FIXTURES.iterdir() if path.is_dir()))
def test_fixtures(name: str) -> None:
    analysis = analyze(FIXTURES / name, jobs=1)

    told(build_report(analysis, diagnose(analysis)))


@pytest.mark.parametrize(
    ("name", "begins"),
    [("ddp-two-ranks", "All exposed communication sits in all-reduce"), ("shared-exposure", "56.3 % of exposed")],
)
def test_the_whole_is_no_percentage(name: str, begins: str) -> None:
    """One operation of one group has all of it; in the other fixture all-reduce has 90 of 160 µs."""
    verdict = diagnose(analyze(FIXTURES / name)).verdict

    assert verdict.where is not None
    assert verdict.where.startswith(begins)
