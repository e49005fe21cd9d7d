"""Where and why against the simulator's truth: phases, buckets, their times, and how much exposed time has a cause.

    python -m tests.benchmarks.synth_where --scenarios 60

Phase and bucket of every call and ready and launch of every bucket have to be exact. Of the causes the simulator knows
what a fault does: where one holds up communication in a way that has a word, that word has to lead.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.places import CAUSES, PHASES, cause_sums
from commprof.analysis.run import analyze
from commprof.synth import Scenario, write_run
from tests.benchmarks.synth_against_analysis import draw

RECORD = Path(__file__).parents[2] / "reports" / "records" / "where.md"
KNOWN = 0.9
LEADS = {
    "blocking-wait": {"blocking-wait", "host-bound", "tail", "structural", "on-compute-stream"},
    "late-launch": {"late-launch", "host-bound", "peer-wait", "structural"},
    "no-overlap": {"tail", "no-prefetch", "structural", "host-bound", "queued"},
}
"""Causes of which one must lead in a run with that fault: the fault's own, or what it leaves behind."""


@dataclass
class Found:
    """What was compared in one run: ``wrong`` says what differs from the truth."""

    calls: int = 0
    buckets: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def known(self) -> float:
        """Share of exposed time whose cause is known."""
        total = sum(self.causes.values())
        return 1 - self.causes["unknown"] / total if total else 1.0


def compare(analysis: Analysis, truth: dict[str, Any]) -> Found:
    """Compare every call and every bucket of a run with its truth."""
    found = Found()
    for rank, known in zip(analysis.ranks, truth["ranks"], strict=True):
        _calls(rank, known["calls"], found)
        shift = rank.base_ns - analysis.origin_ns
        for bucket in rank.buckets:
            found.buckets += 1
            for name, ours in (("ready_ns", bucket.ready), ("launched_ns", bucket.launched)):
                theirs = known["calls"][name][bucket.call]
                if (None if ours is None else ours + shift) != theirs:
                    found.wrong.append(f"rank {rank.rank} bucket {bucket.index}: {name} {ours}, truth {theirs}")
        sums = cause_sums(rank.causes, rank.shares.pieces, rank.shares.pieces.call, len(rank.calls)).sum(axis=0)
        found.causes.update(dict(zip(CAUSES, sums.tolist(), strict=True)))
    return found


def _calls(rank: RankAnalysis, known: dict[str, Any], found: Found) -> None:
    phases = [PHASES[code] if code >= 0 else None for code in rank.places.phase.tolist()]
    buckets = [number if number >= 0 else None for number in rank.places.bucket.tolist()]
    for name, ours in (("phase", phases), ("bucket", buckets)):
        for call, (mine, theirs) in enumerate(zip(ours, known[name], strict=True)):
            if mine != theirs:
                found.wrong.append(f"rank {rank.rank} call {call}: {name} {mine}, truth {theirs}")
    found.calls += len(phases)


def run(scenario: Scenario, seed: int) -> Found:
    """Simulate, analyse and compare."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        write_run(scenario, folder, seed=seed, causes=False)
        truth = json.loads((folder / "truth.json").read_text())
        found = compare(analyze(folder, jobs=1), truth)
    lead = max(found.causes, key=lambda cause: found.causes[cause]) if found.causes.total() else None
    for fault in scenario.faults:
        if fault.rank is None and lead is not None and lead not in LEADS.get(fault.kind, {lead}):
            found.wrong.append(f"{fault.kind} on all ranks: {lead} leads")
    if found.known < KNOWN:
        found.wrong.append(f"only {found.known:.1%} of exposed time has a cause")
    return found


def record(results: dict[int, tuple[Scenario, Found]]) -> str:
    lines = [
        "# Where and why against the simulator's truth",
        "",
        f"Remade by `python -m tests.benchmarks.synth_where --scenarios {len(results)}`.",
        "",
        f"{len(results)} random runs: {sum(f.calls for _, f in results.values())} calls (phase, number of the bucket) "
        f"and {sum(f.buckets for _, f in results.values())} buckets (ready, launched); "
        f"{sum(not f.wrong for _, f in results.values())} runs without any difference. Exposed time by cause:",
        "",
        "| program | faults | known | " + " | ".join(cause for cause in CAUSES if cause != "unknown") + " |",
        "| --- " * (len(CAUSES) + 2) + "|",
    ]
    for scenario, found in results.values():
        total = max(1, found.causes.total())
        lines.append(
            f"| {'+'.join(scenario.parts())} | {', '.join(fault.kind for fault in scenario.faults) or '-'} "
            f"| {found.known:.1%} | "
            + " | ".join(f"{found.causes[c] / total:.0%}" for c in CAUSES if c != "unknown")
            + " |"
        )
    wrong = [f"- {seed}: {text}" for seed, (_, found) in results.items() for text in found.wrong[:3]]
    return "\n".join([*lines, *(["", "Differences:", "", *wrong] if wrong else [])]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    results = {}
    for seed in range(options.first, options.first + options.scenarios):
        scenario = draw(seed)
        results[seed] = (scenario, run(scenario, seed))
    text = record(results)
    if options.no_record:
        print(text)
    else:
        RECORD.write_text(text, encoding="utf-8")
    return 1 if any(found.wrong for _, found in results.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
