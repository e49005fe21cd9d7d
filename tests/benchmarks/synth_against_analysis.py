"""Analysis against truth on random simulated runs over all programs, faults and both models.

    python -m tests.benchmarks.synth_against_analysis --scenarios 300

Split, exposed time and labels of every call have to be exact; wait and transfer exact in the ideal model wherever the
report states them, and within the simulated spread of ends plus the clock uncertainty in the real one. No link may be
called slow that is not. Writes ``reports/records/synth-against-analysis.md``; ``--keep FILE`` adds a part of the
scenarios to a file (those that are in it are not made again) and ``--kept FILE`` makes the record from it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import pickle
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from commprof.cli.app import main as commprof
from commprof.synth import Scenario, write_run
from commprof.synth.sampling import HOST_SHARE, PROGRAM_NAMES, REGIMES, random_fault, random_scenario
from commprof.synth.sweep import SPLIT_KEYS
from tests.benchmarks.link_statements import FAULTS as LINK_FAULTS
from tests.benchmarks.link_statements import Statement, machine, statements

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-against-analysis.md"
WINDOW_KEYS = ("name", "open", "start_ns", "end_ns", "duration_ns", "exposed_blocking_ns", *SPLIT_KEYS)
CALL_KEYS = ("op", "size_bytes", "step", "duration_ns", "exposed_ns", "sole_ns", "touched_ns")
ERAS = ("2.13", "2.4", "2.13", "2.1")


@dataclass
class Tally:
    """What was compared in one scenario, and what differed."""

    windows: int = 0
    calls: int = 0
    waits: int = 0
    waits_within: int = 0
    host_share: float = 0.0
    differences: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    @property
    def false(self) -> list[Statement]:
        """Links that are called slow and are not."""
        return [statement for statement in self.statements if not statement.true]


Results = dict[int, tuple[Scenario, Tally]]


def draw(seed: int) -> Scenario:
    """Scenario ``seed``: programs in turn, every second with a fault, every third with the real model.

    Regimes (host-bound, mixed, GPU-bound) take turns after every third, so that each meets both models.
    """
    scenario = random_scenario(
        seed, program=PROGRAM_NAMES[seed % len(PROGRAM_NAMES)], regime=REGIMES[seed // 3 % 3], real=seed % 3 == 2
    )
    if seed % 2:
        scenario = replace(scenario, faults=(random_fault(scenario, seed),))
    return replace(scenario, era=ERAS[seed // 2 % 4])


def report_of(folder: Path, hardware: Path | None = None) -> dict[str, Any]:
    """The JSON report of ``commprof analyze`` on ``folder``, with the peaks of ``hardware`` if that is given."""
    out = folder.parent / "report.json"
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        peaks = [] if hardware is None else ["--hardware", str(hardware)]
        code = commprof(["analyze", str(folder), "--json", str(out), "--no-html", *peaks])
    if not out.exists():
        raise RuntimeError(f"exit {code}: {silent.getvalue()}")
    return json.loads(out.read_text())


def compare(report: dict[str, Any], truth: dict[str, Any]) -> Tally:
    """Compare every window and every call."""
    tally = Tally(host_share=_host_share(truth["ranks"][0]["steps"]))
    known = {rank["rank"]: rank for rank in truth["ranks"]}
    calls = defaultdict(list)
    for call in report["collectives"]:
        calls[call["rank"]].append(call)
    for rank in report["ranks"]:
        mine = known[rank["rank"]]
        whole = {**rank["whole"], "name": "whole", "open": False}
        _windows(rank["rank"], [whole, *rank["steps"]], [mine["whole"], *mine["steps"]], tally)
        _calls(rank["rank"], calls[rank["rank"]], mine["calls"], report, truth, tally)
    if set(known) != {rank["rank"] for rank in report["ranks"]}:
        tally.differences.append("ranks differ")
    return tally


def _host_share(steps: list[dict[str, Any]]) -> float:
    """Share of the closed steps in which the host had enqueued nothing that could compute."""
    closed = [step for step in steps if not step["open"]]
    host = sum(step["exposed_host_ns"] + step["idle_host_ns"] for step in closed)
    return host / max(1, sum(step["duration_ns"] for step in closed))


def _windows(rank: int, found: list[dict[str, Any]], known: list[dict[str, Any]], tally: Tally) -> None:
    if len(found) != len(known):
        tally.differences.append(f"rank {rank}: {len(found)} windows, {len(known)} in truth")
    for a, b in zip(found, known, strict=False):
        tally.windows += 1
        for key in WINDOW_KEYS:
            if a[key] != b[key]:
                tally.differences.append(f"rank {rank} {b['name']}: {key} {a[key]}, truth {b[key]}")


def _calls(
    rank: int, found: list[dict[str, Any]], known: dict[str, list[Any]], report: dict[str, Any],
    truth: dict[str, Any], tally: Tally,
) -> None:  # fmt: skip
    rows = {(call["start_ns"], call["stream"]): call for call in found}
    if len(found) != len(known["op"]) or len(rows) != len(found):
        tally.differences.append(f"rank {rank}: {len(found)} calls, {len(known['op'])} in truth")
    for i, start in enumerate(known["start_ns"]):
        tally.calls += 1
        call = rows.get((start, known["stream"][i]))
        if call is None:
            tally.differences.append(f"rank {rank}: call {i} is missing")
            continue
        for key in CALL_KEYS:
            if call[key] != known[key][i]:
                tally.differences.append(
                    f"rank {rank} call {i} {known['op'][i]}: {key} {call[key]}, truth {known[key][i]}"
                )
        by_step = {step: ns for step, ns in known["exposed_by_step"][i].items() if ns}
        if {step: ns for step, ns in call["exposed_by_step"].items() if ns} != by_step:
            tally.differences.append(
                f"rank {rank} call {i}: exposed_by_step {call['exposed_by_step']}, truth {by_step}"
            )
        _wait(rank, i, call, known, report, truth, tally)


def _wait(
    rank: int, i: int, call: dict[str, Any], known: dict[str, list[Any]], report: dict[str, Any],
    truth: dict[str, Any], tally: Tally,
) -> None:  # fmt: skip
    """Wait and transfer, where the report states them and all members are known."""
    matching = report["matching"]
    if matching is None or call["wait_ns"] is None or call["bound"] or matching["group_assumed"]:
        return
    allowed = 0
    if truth["model"] == "real":
        allowed = known["end_skew_ns"][i] + (matching["clock_uncertainty_ns"] or 0)
    off = abs(call["wait_ns"] - known["wait_ns"][i])
    if call["transfer_ns"] is not None and known["transfer_ns"][i] is not None:
        off = max(off, abs(call["transfer_ns"] - known["transfer_ns"][i]))
    tally.waits += 1
    tally.waits_within += off <= allowed
    if truth["model"] == "ideal" and off:
        tally.differences.append(
            f"rank {rank} call {i} {known['op'][i]}: wait {call['wait_ns']} transfer {call['transfer_ns']}, "
            f"truth {known['wait_ns'][i]} {known['transfer_ns'][i]}"
        )


def run(seeds: Iterable[int], keep: Path | None = None) -> Results:
    """Compare all scenarios; prints those that differ, and adds each to ``keep``."""
    results = {}
    for seed in seeds:
        scenario = draw(seed)
        with tempfile.TemporaryDirectory() as folder:
            written = write_run(scenario, Path(folder) / "run", seed=seed, causes=False)
            report = report_of(written.folder, machine(scenario, Path(folder) / "machine.json"))
            tally = compare(report, json.loads(written.truth.read_text()))
        tally.statements = statements(report, scenario, seed)
        results[seed] = (scenario, tally)
        if keep is not None:
            with keep.open("ab") as stream:
                pickle.dump((seed, scenario, tally), stream)
        if tally.differences or tally.false:
            print(f"{seed} {scenario.name} era {scenario.era} {[f.kind for f in scenario.faults]}", flush=True)
            print("   ", *tally.differences[:3], *tally.false, sep="\n    ", flush=True)
    return results


def kept(path: Path) -> Results:
    """What earlier runs added to ``path``; the last one of each seed counts."""
    results = {}
    with path.open("rb") as stream:
        while stream.peek(1):
            seed, scenario, tally = pickle.load(stream)
            results[seed] = (scenario, tally)
    return dict(sorted(results.items()))


def record(results: Results) -> str:
    """The result as Markdown."""
    rows: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    faults: Counter[str] = Counter()
    regimes: Counter[str] = Counter()
    for scenario, tally in results.values():
        row = rows[scenario.name, "real" if scenario.real else "ideal"]
        row["runs"] += 1
        row["exact"] += not tally.differences
        for key in ("windows", "calls", "waits", "waits_within"):
            row[key] += getattr(tally, key)
        faults.update(fault.kind for fault in scenario.faults)
        if scenario.real and not scenario.faults:
            regimes.update(name for name, (low, high) in HOST_SHARE.items() if low <= tally.host_share < high)
    total = sum(rows.values(), Counter())
    lines = [
        "# Analysis against the simulator's truth",
        "",
        f"Remade by `python -m tests.benchmarks.synth_against_analysis --scenarios {len(results)}`.",
        "",
        f"{total['runs']} random runs, {total['exact']} of them without any difference: {total['windows']} windows "
        f"(split, host-bound part, borders) and {total['calls']} calls (operation, size, step, duration, exposed, "
        "exposed by step, sole, touched), every number to the nanosecond. Times in the traces of the oldest era are "
        "whole microseconds, and its sizes come from shapes.",
        "",
    ]
    if total["waits"]:
        lines += [
            f"Wait and transfer: {total['waits']} calls with both, {total['waits_within']} as they should be (exact in "
            "the ideal model, within the spread of ends plus the clock uncertainty in the real one).",
            "",
        ]
    else:
        lines += ["Wait and transfer are not compared: the report does not state them yet.", ""]
    lines += _links(results)
    shares = [f"{low:.0%} to {high:.0%} of the step: {regimes[name]}" for name, (low, high) in HOST_SHARE.items()]
    lines += ["Runs of the real model without a fault by the host-bound part of rank 0: " + "; ".join(shares) + ".", ""]
    lines += ["Runs by fault: " + ", ".join(f"{kind} {n}" for kind, n in sorted(faults.items())) + ".", ""]
    lines += ["| program | model | runs | exact | windows | calls | waits | within |", "| --- " * 8 + "|"]
    lines += [
        f"| {name} | {model} | {row['runs']} | {row['exact']} | {row['windows']} | {row['calls']} "
        f"| {row['waits']} | {row['waits_within']} |"
        for (name, model), row in sorted(rows.items())
    ]
    return "\n".join(lines) + "\n"


def _links(results: Results) -> list[str]:
    """Which links are called slow, how many of these are not, and in which runs."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for _, tally in results.values():
        for statement in tally.statements:
            said[statement.what]["true" if statement.true else "false"] += 1
    faulty = [tally for scenario, tally in results.values() if {f.kind for f in scenario.faults} & {*LINK_FAULTS}]
    named = sum(any(statement.true for statement in tally.statements) for tally in faulty)
    wrong = [(seed, scenario, tally.false) for seed, (scenario, tally) in results.items() if tally.false]
    lines = [
        "Links called slow (findings of any severity, and ranks said to be late by their transfers), by whether a link "
        "that the accused ranks use has a fault, or their group really crosses hosts:",
        "",
        "| statement | true | false |",
        "| --- | --- | --- |",
        *(f"| {what} | {row['true']} | {row['false']} |" for what, row in sorted(said.items())),
        "",
        f"Runs in which a link is called slow that is not: {len(wrong)} of {len(results)}. Of {len(faulty)} runs with "
        f"a slow or flapping link, which may carry little or cost nothing, {named} say so.",
        "",
    ]
    for seed, scenario, false in wrong:
        faults = ", ".join(fault.kind for fault in scenario.faults) or "no fault"
        lines.append(f"- {seed} {scenario.name} ({faults}): " + "; ".join(map(str, false)))
    return [*lines, ""] if wrong else lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    if options.kept is not None:
        results = kept(options.kept)
    else:
        made = set(kept(options.keep)) if options.keep is not None and options.keep.exists() else set()
        wanted = range(options.first, options.first + options.scenarios)
        results = run([seed for seed in wanted if seed not in made], options.keep)
    if options.no_record or options.keep is not None:
        print(record(results))
    else:
        RECORD.parent.mkdir(parents=True, exist_ok=True)
        RECORD.write_text(record(results), encoding="utf-8")
    return 1 if any(tally.differences or tally.false for _, tally in results.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
