"""Strategy and roles against the simulator's truth, over all programs, with and without descriptions of groups.

    python -m tests.benchmarks.synth_roles --scenarios 300

A scenario is right if every part of its strategy is (``alternatives`` of the truth count: what moves the same bytes at
the same places) and every group that is used has its role. Writes ``reports/records/synth-roles.md``.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from commprof.analysis.run import analyze
from commprof.report.group_rows import group_rows
from commprof.report.strategy_rows import strategy_row
from commprof.synth import Scenario, write_run
from commprof.synth.sampling import PROGRAM_NAMES, REGIMES, random_fault, random_scenario

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-roles.md"


@dataclass
class Tally:
    """What one scenario gave."""

    groups: int = 0
    right: int = 0
    named: bool = False
    bytes_off: float | None = None
    wrong: list[str] = field(default_factory=list)


def draw(seed: int) -> Scenario:
    """Programs in turn, every other one without descriptions, every third of the real model, every fourth faulty."""
    program = PROGRAM_NAMES[seed % len(PROGRAM_NAMES)]
    scenario = random_scenario(seed, program=program, regime=REGIMES[seed // 3 % 3], real=seed % 3 == 2)
    if seed % 4 == 3:
        scenario = replace(scenario, faults=(random_fault(scenario, seed),))
    round_ = seed // len(PROGRAM_NAMES)
    return replace(scenario, era=("2.13", "2.4")[seed // 2 % 2], described_groups=round_ % 2 == 1)


def report_of(folder: Path) -> dict[str, Any]:
    """The two parts of the report that are compared."""
    analysis = analyze(folder, jobs=1)
    return {"strategy": strategy_row(analysis), "groups": group_rows(analysis)}


def compare(report: dict[str, Any], truth: dict[str, Any]) -> Tally:
    """Strategy, roles and bytes of one run against its truth."""
    tally = Tally()
    strategy = report["strategy"]
    parts = set(strategy["name"].split("+"))
    alternatives = truth["strategy"]["alternatives"]
    wanted = [{part, *alternatives.get(part, [])} for part in truth["strategy"]["parts"]]
    tally.named = len(parts) == len(wanted) and all(parts & choice for choice in wanted)
    if not tally.named:
        tally.wrong.append(f"strategy {strategy['name']}, truth {truth['strategy']['name']}")
    _roles(report["groups"], truth["groups"], tally)
    known = sum(truth["strategy"]["bytes_per_step"].values())
    if known and strategy["measured_bytes_per_step"] is not None:
        tally.bytes_off = strategy["measured_bytes_per_step"] / known - 1
    return tally


def _roles(rows: list[dict[str, Any]], known: list[dict[str, Any]], tally: Tally) -> None:
    """A group may serve data parallelism beside its own role (experts on all ranks): then its rows say both."""
    found: dict[tuple[str, tuple[int, ...]], set[str]] = defaultdict(set)
    for row in rows:
        found[row["group"], tuple(row["ranks"] or ())].add(row["role"])
    for group in known:
        if not group["used"]:
            continue
        roles = found.get((group["name"], tuple(group["ranks"])), set())
        tally.groups += 1
        good = group["role"] in roles and roles <= {group["role"], "dp"}
        tally.right += good
        if not good:
            tally.wrong.append(f"group {group['name']} {group['ranks']}: {sorted(roles)}, truth {group['role']}")


def run(seeds: range, kept: Path | None = None) -> dict[int, tuple[Scenario, Tally]]:
    """Compare all scenarios; prints those that are wrong. ``kept`` holds what earlier, interrupted runs found."""
    done = {}
    if kept is not None and kept.exists():
        done = {row.pop("seed"): Tally(**row) for row in map(json.loads, kept.read_text().splitlines())}
    results = {}
    for seed in seeds:
        scenario = draw(seed)
        if seed in done:
            results[seed] = (scenario, done[seed])
            continue
        with tempfile.TemporaryDirectory() as folder:
            written = write_run(scenario, Path(folder) / "run", seed=seed, causes=False)
            tally = compare(report_of(written.folder), json.loads(written.truth.read_text()))
        results[seed] = (scenario, tally)
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps({"seed": seed, **asdict(tally)}) + "\n")
        if tally.wrong:
            described = "" if scenario.described_groups else " (not described)"
            print(f"{seed} {scenario.name}{described} {[f.kind for f in scenario.faults]}", flush=True)
            print("   ", *tally.wrong[:3], sep="\n    ", flush=True)
    return results


def record(results: dict[int, tuple[Scenario, Tally]]) -> str:
    """The result as Markdown."""
    rows: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    off = []
    for scenario, tally in results.values():
        row = rows[scenario.name, scenario.described_groups]
        row["runs"] += 1
        row["named"] += tally.named
        row["right"] += not tally.wrong
        row["groups"] += tally.groups
        row["roles"] += tally.right
        if tally.bytes_off is not None and not scenario.imbalance_permille:
            off.append(abs(tally.bytes_off))
    total = sum(rows.values(), Counter())
    lines = [
        "# Strategy and roles against the simulator's truth",
        "",
        f"Remade by `python -m tests.benchmarks.synth_roles --scenarios {len(results)}`.",
        "",
        f"{total['runs']} random runs over {len(PROGRAM_NAMES)} programs: strategy right in {total['named']} "
        f"({total['named'] / total['runs']:.1%}), roles of {total['roles']} of {total['groups']} used groups "
        f"({total['roles'] / max(1, total['groups']):.1%}), both in {total['right']} "
        f"({total['right'] / total['runs']:.1%}).",
        "",
        f"Bytes per rank and step, runs without unequal splits: {len(off)} compared, largest difference "
        f"{max(off, default=0):.2%}.",
        "",
        "| program | described | runs | strategy | groups | roles | all right |",
        "| --- " * 7 + "|",
    ]
    lines += [
        f"| {name} | {'yes' if described else 'no'} | {row['runs']} | {row['named']} | {row['groups']} "
        f"| {row['roles']} | {row['right']} |"
        for (name, described), row in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--kept", type=Path, help="file with the results so far, to go on after an interruption")
    options = parser.parse_args()
    results = run(range(options.first, options.first + options.scenarios), options.kept)
    text = record(results)
    if options.no_record:
        print(text)
    else:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(text, encoding="utf-8")
    wrong = sum(bool(tally.wrong) for _, tally in results.values())
    return 1 if wrong > 0.01 * len(results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
