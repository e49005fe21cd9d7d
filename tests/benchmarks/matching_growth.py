"""Time to match 10,000 and 20,000 collectives on two ranks (C122).

    python -m tests.benchmarks.matching_growth

With sequence numbers, and without them in one run of equal calls of which the second rank lacks one. Processor time of
matching alone, the best of five. Writes ``reports/records/matching-growth.md``.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import commprof
from commprof.analysis.matching import match_calls
from tests.builders.kineto import Trace

RECORD = Path(__file__).parents[2] / "reports" / "records" / "matching-growth.md"
SIZES = (10_000, 20_000)
MARK = 2.5


def write_ranks(folder: Path, calls: int, numbered: bool) -> None:
    """Equal all-reduces at irregular times on two ranks; without numbers the second lacks the one in the middle."""
    ends = 1000 + np.cumsum(np.random.default_rng(1).integers(80, 400, calls))
    for rank in range(2):
        trace = Trace(rank=rank, world_size=2)
        for number, end in enumerate(ends.tolist()):
            if numbered or rank == 0 or number != calls // 2:
                trace.all_reduce(end - 50, end, metadata={"seq": number} if numbered else {})
        trace.write(folder / f"rank{rank}.json")


def measure(calls: int, numbered: bool) -> tuple[float, int]:
    """Seconds of processor time and how many calls were matched."""
    with tempfile.TemporaryDirectory() as scratch:
        write_ranks(Path(scratch), calls, numbered)
        analysis = commprof.analyze(scratch, jobs=1)
    best, matched = float("inf"), 0
    for _ in range(5):
        begin = time.process_time()
        matched = len(match_calls(analysis))
        best = min(best, time.process_time() - begin)
    return best, matched


def main() -> None:
    """Measure both sizes both ways and write the record."""
    rows = ""
    for numbered in (True, False):
        (small, few), (large, many) = (measure(calls, numbered) for calls in SIZES)
        if (few, many) != tuple(calls - (not numbered) for calls in SIZES):
            raise SystemExit(f"wrong matches: {few} and {many}")
        name = "sequence numbers" if numbered else "order and ends"
        rows += f"| {name} | {small:.3f} | {large:.3f} | {large / small:.2f} |\n"
    RECORD.write_text(
        "# Matching twice as many calls\n\nRemade by `python -m tests.benchmarks.matching_growth`: processor time of "
        "matching on two ranks, best of five.\n\n"
        f"| by | {SIZES[0]:,} calls, s | {SIZES[1]:,} calls, s | ratio (mark: at most {MARK}) |\n"
        f"| --- | --- | --- | --- |\n{rows}",
        encoding="utf-8",
    )
    print(RECORD.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
