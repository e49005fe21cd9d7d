"""One slow device in a job with tensor, pipeline and data parallelism: who is named, and charged with what it costs.

    python -m tests.benchmarks.slow_device --dp 32 --jobs 2

The preset ``large`` (TP 8, PP 4, 40 layers) with one GPU 10 % slower; the same without a fault and with a last stage
that is longer. What the fault costs is the step with it less the step without it, in the simulator. Adds a row per run
to ``reports/records/slow-device.md``; ``--only`` picks some of the three.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from commprof.analysis import run as runs
from commprof.analysis.across import AnalysisOptions, across
from commprof.analysis.levels import find_levels
from commprof.analysis.model import Analysis
from commprof.analysis.pairing import steps_carried_on
from commprof.analysis.peers import find_peers
from commprof.analysis.stragglers import ledger_of
from commprof.synth import write_run
from commprof.synth.presets import preset
from commprof.synth.scenario import Fault, Scenario
from tests.benchmarks.synth_stragglers import _step_ns

RECORD = Path(__file__).parents[2] / "reports" / "records" / "slow-device.md"
HEAD = """# One slow device among many

Rows are added by `python -m tests.benchmarks.slow_device --dp N` (TP 8 x PP 4 x DP N, 40 layers, 4 steps, noise 0.5 %).
Marks: the slow rank alone is named, its own charge is within 10 % of the step time lost, nobody else of its replica
keeps more than 5 % of that; without a fault and with a longer last stage no rank is named, and the stage is. Matching
and naming: everything after the ranks are read, one process.

| ranks | run | step ms | lost ms | charged / lost | another of its replica / lost | named | naming s | memory GB |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
LONGER = 250


def job(dp: int, what: str) -> tuple[Scenario, int | None]:
    """The scenario, and the rank that is slow in it."""
    base = replace(preset("large"), inner=dp, steps=4)
    if what == "slow":
        # Somewhere in the middle: second stage, not the first of its groups.
        rank = base.tp * dp + base.tp * (dp * 13 // 32) + 3
        return replace(base, faults=(Fault("slow-gpu", rank, 100),)), rank
    return (replace(base, last_stage_extra_permille=LONGER) if what == "stage" else base), None


def measure(dp: int, what: str, jobs: int) -> str:
    """Simulate, analyse, compare; returns a row of the record."""
    scenario, slow = job(dp, what)
    took: list[float] = []

    def timed(analysis: Analysis, options: AnalysisOptions) -> None:
        begin = time.perf_counter()
        across(analysis, options)
        took.append(time.perf_counter() - begin)

    runs.across = timed  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        written = write_run(scenario, Path(folder) / "run", seed=1, causes=False, jobs=jobs)
        analysis = runs.analyze(str(written.folder), jobs=jobs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    named = "; ".join(f"{one.role or f'rank {one.rank}'}, {one.cause}" for one in analysis.stragglers) or "nobody"
    figures = ["", "", ""]
    whole = _step_ns(scenario, 1)
    if slow is not None:
        lost = whole - _step_ns(replace(scenario, faults=()), 1)
        mine, others = charges(analysis, slow)
        figures = [f"{lost / 1e6:.2f}", f"{mine / lost:.3f}", f"{others / lost:.3f}"]
    cells = [scenario.ranks, what, f"{whole / 1e6:.1f}", *figures, named, f"{took[0]:.1f}", f"{memory:.2f}"]
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def charges(analysis: Analysis, slow: int) -> tuple[float, float]:
    """Own charge per closed step of the slow rank, and the largest of another rank of its replica, ns."""
    assert analysis.matching is not None
    assert analysis.charges is not None
    found = analysis.matching
    ledger = ledger_of(analysis, found, analysis.charges)
    own = ledger.own[:, ledger.closed].mean(axis=1)
    peers = find_peers(found.calls, steps_carried_on(found.calls))
    replica = next(
        level.members
        for level in find_levels(analysis, found, peers, {})
        if level.kind == "replica" and slow in level.members
    )
    return float(own[slow]), float(np.max([own[rank] for rank in replica if rank != slow]))


def main() -> None:
    """Add the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dp", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", choices=("slow", "none", "stage"), nargs="*", default=("slow", "none", "stage"))
    options = parser.parse_args()
    for what in options.only:
        row = measure(options.dp, what, options.jobs)
        print(row, flush=True)
        if not RECORD.exists():
            RECORD.write_text(HEAD, encoding="utf-8")
        with RECORD.open("a", encoding="utf-8") as record:
            record.write(row)


if __name__ == "__main__":
    main()
