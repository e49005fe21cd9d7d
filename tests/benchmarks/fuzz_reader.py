"""Damage clean traces in every known way, many times, and check every promise of the reader on each.

    python -m tests.benchmarks.fuzz_reader --inputs 100000

Every input is a function of its number alone; ``--first N --inputs 1 --show`` makes one again. Writes
``reports/records/fuzz.md``; ends with exit code 1 if any input broke a promise. Parts of a run, several at once, are
kept with ``--first N --inputs M --part FILE`` and become one record with ``--merge FILE...``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

from tests.fuzz.corpus import Seed, fixture_seeds, trace_seeds
from tests.fuzz.harness import TIME_LIMIT_S, Checker
from tests.fuzz.large import LARGE, cost
from tests.fuzz.mutators import MUTATORS, Mutator, interleave, nesting, several

SLOW = (interleave, nesting, several)
MEMORY = Path("/dev/shm")
RECORD = Path(__file__).parents[2] / "reports" / "records" / "fuzz.md"


def draw(number: int, seeds: list[Seed]) -> tuple[Seed, Mutator, bytes, int, int]:
    """Input ``number``: the clean file, the kind of damage, the bytes, and the block sizes of a third reading."""
    rng = random.Random(number)
    mutate = MUTATORS[number % len(MUTATORS)]
    small = [seed for seed in seeds if len(seed.data) < 9000]
    if mutate in SLOW:  # with hundreds of faults in a file, the small ones show the same in less time
        small = seeds = [seed for seed in seeds if len(seed.data) < 2000]
    seed = rng.choice(small if rng.random() < 0.92 else seeds)
    data = mutate(seed.data, rng)
    block = rng.choice((1, 2, 3, 7, 16, 50, 100, 333, 1000, 4096)) if rng.random() < 0.2 else 0
    block = max(block, len(data) // 80) if block else 0  # each border is hit many times; more of them only take longer
    return seed, mutate, data, block, rng.choice((0, 1, 60, 300, 1 << 16))


def main() -> int:
    """Run the long version."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--part", type=Path, help="keep what came of these inputs here instead of writing the record")
    parser.add_argument("--merge", type=Path, nargs="+", help="write the record of parts that were run before")
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--stop-after", type=int, default=10**9, help="faults to print before giving up")
    options = parser.parse_args()
    seeds = [*fixture_seeds(), *trace_seeds()]
    if options.merge:
        tally, faults, spent = merged(options.merge)
    else:
        tally, faults, spent = run(options, seeds)
    if options.part is not None:
        options.part.write_text(json.dumps([options.first, tally, faults, spent]))
    elif not options.no_record:
        with tempfile.TemporaryDirectory() as folder:
            large = measure_large(Path(folder))
        RECORD.write_text(record(tally, faults, seeds, spent, large))
    print(f"{sum(map(Counter.total, tally.values()))} inputs, {len(faults)} faults, {spent:.0f} s of processor time")
    return 1 if faults else 0


def run(options: argparse.Namespace, seeds: list[Seed]) -> tuple[dict[str, Counter[str]], list[str], float]:
    """Check the inputs asked for: what came of each kind of damage, the faults, and the processor time in seconds."""
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    faults: list[str] = []
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        checkers = {seed.name: Checker(seed.data, Path(folder), with_timeline=False) for seed in seeds}
        for number in range(options.first, options.first + options.inputs):
            seed, mutate, data, block, walk = draw(number, seeds)
            verdict = checkers[seed.name].check(data, block=block, walk=walk)
            tally[mutate.__name__][verdict.kind] += 1
            if verdict.fault is not None:
                faults.append(f"{number} {mutate.__name__} on {seed.name}: {verdict.fault}")
                print(faults[-1], flush=True)
                if len(faults) >= options.stop_after:
                    break
            if number % 5000 == 4999:
                print(f"{number + 1} inputs, {len(faults)} faults", flush=True)
            if options.show:
                print(seed.name, mutate.__name__, block, walk, verdict, data[:6000], sep="\n")
    return tally, faults, time.process_time() - began


def merged(paths: list[Path]) -> tuple[dict[str, Counter[str]], list[str], float]:
    """The parts of a run as one; raises ``SystemExit`` where they do not follow each other without a gap."""
    tally: dict[str, Counter[str]] = defaultdict(Counter)
    faults: list[str] = []
    spent, following = 0.0, 0
    for first, counts, found, seconds in sorted(json.loads(path.read_text()) for path in paths):
        if first != following:
            raise SystemExit(f"inputs {following} to {first} are missing or there twice")
        for name, kinds in counts.items():
            tally[name].update(kinds)
        following += sum(sum(kinds.values()) for kinds in counts.values())
        faults += found
        spent += seconds
    return tally, faults, spent


def record(tally: dict[str, Counter[str]], faults: list[str], seeds: list[Seed], spent: float, large: list[str]) -> str:
    """The tables of what came of every kind of damage, and of what large damaged files cost."""
    total = sum(map(Counter.total, tally.values()))
    kinds = sorted({kind for counter in tally.values() for kind in counter if kind != "fault"})
    lines = [
        "# Damaged traces",
        "",
        f"Remade by `python -m tests.benchmarks.fuzz_reader --inputs {total}`; each input follows from its number.",
        "",
        f"{total:,} inputs from {len(seeds)} clean files ({', '.join(seed.name for seed in seeds)}), "
        f"{len(tally)} kinds of damage, {spent / total * 1e3:.1f} ms of processor time each; "
        f"**{len(faults)} broke a promise**.",
        "",
        "Each input is read the fast way, event by event, and, one time in five, in blocks of a few bytes. What is "
        f"checked: only an error of commprof may come out; no reading takes {TIME_LIMIT_S:.0f} s; every way gives the "
        "same columns, counts and error; warnings of NumPy are errors; the report is strict JSON and keeps the "
        "accounting identities; a split or a call that differs from the clean file's comes with a count, or Python's "
        "own parser finds another valid document.",
        "",
        "| damage | inputs | " + " | ".join(kinds) + " | faults |",
        "| --- " * (len(kinds) + 3) + "|",
    ]
    for name in sorted(tally):
        counts = tally[name]
        cells = [str(counts.get(kind, 0)) for kind in kinds]
        lines.append(f"| {name} | {counts.total()} | {' | '.join(cells)} | {counts.get('fault', 0)} |")
    lines += ["", *(f"- {fault}" for fault in faults)]
    if large:
        lines += [
            "",
            "## Large damaged files",
            "",
            "One process reads one file of the size given: processor time, its start included, and peak memory.",
            "",
            "| file | 25 MB | 100 MB | times as long | peak at 100 MB | what came of it |",
            "| --- | --- | --- | --- | --- | --- |",
            *large,
        ]
    return "\n".join(lines) + "\n"


def measure_large(folder: Path) -> list[str]:
    """One row per kind of large file, at two sizes."""
    rows = []
    for name, make in LARGE.items():
        small, _, _ = cost(make(25_000_000), folder / "large.json")
        spent, peak, text = cost(make(100_000_000), folder / "large.json")
        rows.append(f"| {name} | {small:.1f} s | {spent:.1f} s | {spent / small:.1f} | {peak / 1e6:.0f} MB | {text} |")
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
