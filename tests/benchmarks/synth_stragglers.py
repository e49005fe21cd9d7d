"""Who is late and why, against the simulator's truth, in the real model over all programs, faults and regimes.

    python -m tests.benchmarks.synth_stragglers --scenarios 300

What a fault costs is the step with it less the step without it, in the simulator. Writes
``reports/records/synth-stragglers.md``; ``--keep FILE`` adds a part of the scenarios (``--first``, ``--scenarios``) to
a file and ``--kept FILE`` makes the record from it.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from commprof.analysis.run import analyze
from commprof.analysis.stragglers import Straggler
from commprof.synth import Scenario, write_run
from commprof.synth.clock import Clock, observe
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.sampling import PROGRAM_NAMES, REGIMES, possible_faults, random_fault, random_scenario
from commprof.synth.sweep import rank_truth

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-stragglers.md"
LATE = ("slow-gpu", "host-pause", "loader-stall", "slow-host", "gc-pause")
"""Faults that make one rank or host late; two scenarios of three have one of them, the others another one or none."""
STEPS = 5
ALONE = "nobody to compare with"
BANDS = ((0.05, 10.0, "5 % and more"), (0.02, 0.05, "2 to 5 %"), (0.01, 0.02, "1 to 2 %"), (-10.0, 0.01, "below 1 %"))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One scenario: what the fault costs, whether it was found, whether somebody was named who is not to blame.

    ``named``: a rank or set of ranks is accused; a pause that goes round is stated and names nobody."""

    name: str
    fault: str
    cost: float
    expected: bool
    right: bool
    wrong: bool
    named: bool
    detail: str


def draw(seed: int) -> Scenario:
    """Scenario ``seed``: programs in turn, all regimes, always the real model."""
    scenario = random_scenario(
        seed, program=PROGRAM_NAMES[seed % len(PROGRAM_NAMES)], regime=REGIMES[seed // 5 % 3], real=True, steps=STEPS
    )
    rng = np.random.default_rng([seed, 8])
    possible = possible_faults(scenario)
    kinds = [kind for kind in possible if (kind in LATE) == (seed % 3 != 2)]
    if not kinds or (seed % 3 == 2 and rng.integers(2)):
        return scenario
    fault = random_fault(scenario, seed, kind=kinds[int(rng.integers(len(kinds)))])
    if fault.kind in LATE:
        # Most faults of the usual size are hidden behind something; larger ones are what is to be found.
        fault = replace(fault, size=fault.size * int(rng.choice([1, 3, 6])))
    return replace(scenario, faults=(fault,))


def judge(seed: int, scenario: Scenario) -> Outcome:
    """Simulate, analyse and compare."""
    with tempfile.TemporaryDirectory() as folder:
        written = write_run(scenario, Path(folder) / "run", seed=seed, causes=False)
        truth = json.loads(written.truth.read_text())
        analysis = analyze(str(written.folder))
    fault = scenario.faults[0] if scenario.faults else None
    cost = 0.0
    if fault is not None:
        whole, bare = _step_ns(scenario, seed), _step_ns(scenario.without(fault.kind), seed)
        cost = (whole - bare) / whole
    expected = truth["faults"][0]["straggler"] if fault else None
    accused = [late for late in analysis.stragglers if not _no_fault(late, scenario)]
    right = [late for late in accused if expected is not None and _is(late, expected, analysis.hosts)]
    wrong = [late for late in accused if late not in right]
    detail = "; ".join(f"{late.rank} {late.host} {late.kind} {late.cause} {late.share:.3f}" for late in accused)
    return Outcome(
        _kind(scenario), fault.kind if fault else "none", cost, expected is not None, bool(right), bool(wrong),
        any(late.kind != "rotating" for late in accused), f"expected {expected}; named {detail or 'nobody'}",
    )  # fmt: skip


def _step_ns(scenario: Scenario, seed: int) -> float:
    """Mean over ranks and steps but the first, in which the capture begins, and the last, which has no end."""
    timeline = simulate(make_plan(scenario, seed))
    lengths = [
        window.end - window.start
        for rank, times in enumerate(timeline.ranks)
        for window in rank_truth(timeline.plan, rank, observe(times, Clock())).steps[1:]
        if not window.open
    ]
    return sum(lengths) / len(lengths)


def _kind(scenario: Scenario) -> str:
    """Pipelines in which nobody does the same as the late ranks, but on time: in them waiting is bubble by definition.

    Those of one replica, and those in which a slow host holds all replicas of the stages that it is part of.
    """
    if scenario.pp == 1:
        return "other"
    if scenario.inner * scenario.outer == 1:
        return ALONE
    hosts = [fault.rank // scenario.cluster.gpus_per_host for fault in scenario.faults
             if fault.kind == "slow-host" and fault.rank is not None]  # fmt: skip
    mesh = scenario.mesh()
    for host in hosts:
        hit = [rank // scenario.cluster.gpus_per_host == host for rank in range(scenario.ranks)]
        stages = [{hit[rank] for rank in range(scenario.ranks) if mesh.stage(rank) == s} for s in range(scenario.pp)]
        if not any(len(stage) == 2 for stage in stages):
            return ALONE
    return "other"


def _no_fault(late: Straggler, scenario: Scenario) -> bool:
    """More work by design is no accusation: a longer stage, an expert with more tokens."""
    return late.cause == "more-work" and (scenario.pp > 1 or scenario.experts)


def _is(late: Straggler, expected: dict[str, Any], hosts: dict[int, str]) -> bool:
    if late.cause != expected["cause"]:
        return False
    if expected["kind"] == "rotating":
        return late.kind == "rotating"
    if expected["rank"] is not None:
        return bool(late.rank == expected["rank"])
    # A host with one rank is the same thing.
    where = {hosts.get(rank) for rank in late.members}
    return bool(where == {f"host{expected['host']}"})


def run(seeds: range, keep: Path | None = None) -> dict[int, Outcome]:
    """All scenarios, added to ``keep`` one by one; prints those that are not as they should be."""
    results = {}
    for seed in seeds:
        scenario = draw(seed)
        found = results[seed] = judge(seed, scenario)
        if keep is not None:
            with keep.open("ab") as stream:
                pickle.dump((seed, found), stream)
        if _failed(found):
            faults = [(fault.kind, fault.rank, fault.size) for fault in scenario.faults]
            print(f"{seed} {scenario.name} x{scenario.ranks} era {scenario.era} {faults}", flush=True)
            print(f"    cost {found.cost:.3f}: {found.detail}", flush=True)
    return results


def record(results: dict[int, Outcome]) -> str:
    """The result as Markdown."""
    total = len(results)
    wrong = sum(found.wrong for found in results.values())
    lines = [
        "# Stragglers against the simulator's truth",
        "",
        f"Remade by `python -m tests.benchmarks.synth_stragglers --first {min(results)} --scenarios {total}`.",
        "",
        f"{total} random runs of the real model over {len(PROGRAM_NAMES)} programs and three regimes, {STEPS} steps "
        "each; two of three with a fault that makes one rank, one host or one rank after the other late. Right: that "
        "one named, with that cause. Where nobody does the same as the late ranks but on time (pipelines of one "
        "replica, or with all replicas of a stage on the slow host) waiting is bubble and nobody can be named: such "
        "runs count in the last column and under wrong accusations alone. A pause that goes round is stated and names "
        "nobody; stated where there is none it is a wrong accusation.",
        "",
        "| what the fault costs of the step | runs | right | nobody named |",
        "| --- | --- | --- | --- |",
    ]
    for low, high, name in BANDS:
        mine = [found for found in results.values() if low <= found.cost < high]
        asked = [found for found in mine if found.expected and found.name == "other"]
        lines.append(
            f"| {name} | {len(asked)} | {sum(found.right for found in asked)} "
            f"| {sum(not found.named for found in mine)} of {len(mine)} |"
        )
    lines += ["", f"Wrong accusations (a rank or cause named that is not the injected one): {wrong} of {total}.", ""]
    lines += ["| fault | runs | right | wrong |", "| --- | --- | --- | --- |"]
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for found in results.values():
        rows[found.fault].update(runs=1, right=int(found.right), wrong=int(found.wrong))
    lines += [f"| {kind} | {row['runs']} | {row['right']} | {row['wrong']} |" for kind, row in sorted(rows.items())]
    missed = [(seed, found) for seed, found in sorted(results.items()) if _failed(found)]
    if missed:
        lines += ["", "Not as they should be (faults of 2 % and more that were missed, and wrong accusations):", ""]
        lines += [f"- {seed}: {found.fault}, cost {100 * found.cost:.1f} %: {found.detail}" for seed, found in missed]
    return "\n".join(lines) + "\n"


def _failed(found: Outcome) -> bool:
    missed = found.expected and not found.right and found.cost >= 0.02 and found.name == "other"
    return missed or found.wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    if options.kept is not None:
        results = {}
        with options.kept.open("rb") as stream:
            while stream.peek(1):
                seed, outcome = pickle.load(stream)
                results[seed] = outcome
    else:
        results = run(range(options.first, options.first + options.scenarios), options.keep)
    text = record(results)
    if options.no_record or options.keep:
        print(text)
    else:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
