"""How near the analysis is to DDP's own view of its buckets: a real gloo run with an independent record.

``python -m tests.benchmarks.gloo_buckets`` trains the demo's model on four ranks with a communication hook that notes
when each bucket was ready, launched and done, and compares with what the analysis finds in the trace of the same run.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median, quantiles

from commprof.analysis.run import analyze
from tests.capture.real import run_ranks

RECORD = Path(__file__).resolve().parents[2] / "reports" / "records" / "gloo-buckets.md"
LIMITS_NS = {"ready": 100_000, "launched": 500_000, "done": 500_000}
WIDE_NS = 5_000_000


def differences(ranks: int, steps: int) -> tuple[dict[str, list[int]], int, int]:
    """Differences in ns by stamp (ours less the hook's), buckets compared, and buckets with other parameters."""
    os.environ["STEPS"] = str(steps)
    found: dict[str, list[int]] = {name: [] for name in LIMITS_NS}
    count = wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        records = run_ranks("ddp_hook", folder, ranks, timeout_s=220)
        analysis = analyze(folder / "run", jobs=1)
        for rank, rows in zip(analysis.ranks, records, strict=True):
            names = rank.shares.step_names
            by_key = {(row["step"], row["index"]): row for row in rows}
            for bucket in rank.buckets:
                row = by_key[int(names[bucket.step].rpartition("#")[2]), bucket.index]
                count += 1
                wrong += list(bucket.parameters or ()) != row["parameters"] or bucket.size != row["size_bytes"]
                for stamp, time in (("ready", bucket.ready), ("launched", bucket.launched), ("done", bucket.end)):
                    if time is not None:
                        found[stamp].append(rank.base_ns + time - row[stamp])
    return found, count, wrong


def record(found: dict[str, list[int]], count: int, wrong: int, ranks: int) -> tuple[str, bool]:
    """The record as text, and whether every limit is kept."""
    good = not wrong
    lines = [
        "# Buckets of a real run against a hook",
        "",
        "Remade by `python -m tests.benchmarks.gloo_buckets`.",
        "",
        f"{ranks} ranks of the demo's DDP job over gloo on one machine; {count} buckets, {count - wrong} with exactly "
        "the parameters and bytes of the hook's record. Differences are the analysis less the hook, in ms.",
        "",
        "| stamp | median | limit | 5 % | 95 % | within 5 ms |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for stamp, values in found.items():
        cuts = quantiles(values, n=20)
        near = sum(abs(value) <= WIDE_NS for value in values) / len(values)
        good &= abs(median(values)) <= LIMITS_NS[stamp] and near >= 0.95
        lines.append(
            f"| {stamp} | {median(values) / 1e6:+.3f} | {LIMITS_NS[stamp] / 1e6} | {cuts[0] / 1e6:+.3f} "
            f"| {cuts[-1] / 1e6:+.3f} | {near:.1%} |"
        )
    return "\n".join(lines) + "\n", good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    text, good = record(*differences(options.ranks, options.steps), options.ranks)
    print(text)
    if not options.no_record:
        RECORD.write_text(text, encoding="utf-8")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
