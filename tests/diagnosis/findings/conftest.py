"""Traces in, findings of the report out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace


@dataclass(frozen=True)
class Judged:
    """The report of one run, with its findings by id; the first of each id stands for it."""

    report: dict[str, Any]
    text: str

    @property
    def by_id(self) -> dict[str, dict[str, Any]]:
        return {row["id"]: row for row in reversed(self.report["findings"])}

    @property
    def named(self) -> list[str]:
        """Ids of what counts as a finding: severity low or higher, in the order of the report."""
        return [row["id"] for row in self.report["findings"] if row["severity"] != "info"]

    def evidence(self, identity: str) -> dict[str, Any]:
        """Values of the evidence of a finding by what they are."""
        return {entry["what"]: entry["value"] for entry in self.by_id[identity]["evidence"]}


@pytest.fixture
def judge(run_analyze: Callable[..., Run], tmp_path: Path) -> Callable[..., Judged]:
    """``judge(TRACE...)``: one trace per rank, in order. Charges must fit into the step, whatever the test is about."""

    def run(*traces: Trace, options: tuple[str, ...] = ()) -> Judged:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for index, trace in enumerate(traces):
            trace.write(folder / f"rank{index}.json")
        out = run_analyze(folder, *options)
        assert out.report is not None, out.stderr
        check_accounting(out.report)
        return Judged(out.report, out.everything)

    return run


def check_accounting(report: dict[str, Any]) -> None:
    """The parts of the step add up exactly, and findings promise no more than was lost."""
    accounting = report["accounting"]
    if accounting is None:
        return
    assert sum(part["ns"] for part in accounting["parts"]) == accounting["duration_ns"]
    steps = accounting["steps"]
    lost = sum(part["ns"] for part in accounting["parts"] if part["name"] != "compute")
    exposed = sum(part["exposed_ns"] for part in accounting["parts"])
    rows = report["findings"]
    # Means are rounded to 1 ns each.
    assert sum(row["charged_ns"] or 0 for row in rows) * steps <= lost + len(rows) * steps
    assert sum(row["recoverable_ns"] or 0 for row in rows) * steps <= lost + len(rows) * steps
    # What the critical path tells may be charged to several: calls that come later for a late rank, and its own gaps.
    on_path = {"straggler", "input-bound", "host-bound", "buckets-too-small", "tiny-messages"}
    assert all((row["recoverable_ns"] or 0) <= (row["charged_ns"] or 0) for row in rows if row["id"] not in on_path)
    host = {"host-bound", "input-bound", "device-synchronisation", "allocator-retries", "pipeline-bubble"}
    host |= {"copy-bound", "bucket-copies"}
    communication = [row for row in rows if row["id"] not in host | {"blocking-wait", "fsdp-rate-limiter"}]
    # A late rank that loses the most itself is idle while its input or its CPU makes it late: no communication.
    communication = [row for row in communication if row["cause"] not in ("host-bound", "input", "host")]
    assert sum(row["recoverable_ns"] or 0 for row in communication) * steps <= exposed + len(rows) * steps
