"""Findings against the simulator: is the injected fault named, and would its removal give back what was promised?

    python -m tests.benchmarks.synth_findings --scenarios 300 --without 100 --two 40

Every scenario is simulated with and without its fault, so that its cost is known; what costs less than 2 % of the step
is in no mark and is not analysed. A finding counts as in the program where it is structural (tensor-parallel exposure,
pipeline bubble, tail bucket), where the program is written so (gradients reduced after every micro-batch), or where
the same run without the fault has it too, at no less than half its size: a third of the scenarios are made so that the
CPU decides their step, whatever the fault. A second row counts those as well, and leaves out structural ones alone. A
fault is named by a finding above ``info`` that promises more than without it; the artefact of a recording, which costs
the run nothing, is always ``info``. Writes ``reports/records/synth-findings.md``; ``--keep FILE`` adds a part of the
scenarios to a file, ``--kept FILE...`` makes the record from such files, and ``--since SEED`` gives the figures of the
scenarios from that seed on apart.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import commprof
from commprof.diagnosis.findings.sharded import PACKING
from commprof.diagnosis.model import Diagnosis, Finding
from commprof.synth import Scenario, write_run
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.sampling import PROGRAM_NAMES, REGIMES, possible_faults, random_fault, random_scenario
from commprof.synth.truth import step_ns

RECORD = Path(__file__).parents[2] / "reports" / "records" / "synth-findings.md"
_SMALLEST = 0.02
_KINDS = {"one": "one fault", "none": "no fault", "two": "two faults"}
ACCUSING = {
    "straggler", "slow-link", "low-bandwidth", "network-intermittent", "input-bound", "tp-across-hosts",
    "blocking-wait", "ddp-no-overlap", "bucket-too-large", "compiled-backward", "reduction-alternates",
}  # fmt: skip
"""Findings that name a fault; the others may be what the program or the cost of its launches is like."""


@dataclass
class Outcome:
    """One scenario: what was injected, what it costs, and what was found (ids in the order of the report)."""

    scenario: Scenario
    seed: int
    regime: str
    step_ns: int = 0
    cost: dict[str, float] = field(default_factory=dict)
    expected: dict[str, list[str]] = field(default_factory=dict)
    found: list[Finding] = field(default_factory=list)
    judged: bool = False
    lost_ns: int = 0
    overlap_cost_ns: int = 0
    verdict: str = ""
    before: dict[str, int] = field(default_factory=dict)
    """What the findings of the same run without its faults promise, by id."""

    def gain(self, kind: str) -> int:
        """What the step loses when the fault goes, nanoseconds."""
        return round(self.cost[kind] * self.step_ns)

    def promise(self, kind: str) -> int:
        """What the findings of a fault promise to give back, beyond what each of them promises without it.

        Pauses of the CPU have a finding of their own beside that on its launches; where there is one, it is the one
        that a pause is held against, and that on launches the one for everything else.
        """
        now: Counter[str] = Counter()
        for f in self.found:
            now[name_of(f)] += f.recoverable_ns or 0
        names = set(self.expected[kind])
        if kind in ("host-pause", "gc-pause") and now["pause"]:
            names = names - {"host-bound"} | {"pause"}
        return sum(max(0, now[name] - self.before.get(name, 0)) for name in names)

    def stated(self, kind: str) -> int:
        """The same as the report prints it, with what each finding promises without the fault."""
        return sum(f.recoverable_ns or 0 for f in self.found if f.id in self.expected[kind])

    def place(self, kind: str) -> int | None:
        """Place of the first finding of a fault among those that are not in the program, from 1."""
        place = place_among(ranked(self), self.expected[kind])
        return None if place > len(self.found) else place


def overlap_cost(found: list[Finding]) -> int:
    """What lies inside compute and goes with communication: contention, and packing that hides it alone."""
    contention = [entry for f in found if f.id == "overlap-contention" for entry in f.evidence[:1]]
    packing = [entry for f in found for entry in f.evidence if entry.what == PACKING]
    return sum(round(float(entry.value or 0)) for entry in contention + packing)


def name_of(finding: Finding) -> str:
    """Id of a finding; pauses of the CPU apart from its launches."""
    return "pause" if finding.id == "host-bound" and finding.cause == "pause" else finding.id


def draw(seed: int, kind: str) -> tuple[Scenario, str]:
    """Scenario ``seed``: programs and regimes in turn, every second with the real model; ``kind``: one, none or two."""
    regime = REGIMES[seed // 3 % 3]
    scenario = random_scenario(
        seed, program=PROGRAM_NAMES[seed % len(PROGRAM_NAMES)], regime=regime, real=seed % 2 == 1, steps=6
    )
    kinds = possible_faults(scenario)
    if kind == "none":
        return scenario, regime
    first = kinds[seed // 7 % len(kinds)]
    faults = [random_fault(scenario, seed, kind=first)]
    if kind == "two":
        others = [name for name in kinds if name != first and {name, first} != {"tiny-buckets", "huge-bucket"}]
        faults.append(random_fault(scenario, seed + 1, kind=others[seed // 11 % len(others)]))
    return replace(scenario, faults=tuple(faults)), regime


def examine(scenario: Scenario, seed: int, folder: Path) -> tuple[Diagnosis, Any, dict[str, Any]]:
    """Simulate, analyse and judge."""
    written = write_run(scenario, folder, seed=seed, causes=False, calls=False)
    analysis = commprof.analyze(written.folder, jobs=1, hardware=str(_machine(scenario, folder)))
    return commprof.diagnose(analysis), analysis, json.loads(written.truth.read_text())


def _machine(scenario: Scenario, folder: Path) -> Path:
    """What a user would say of the machine: the rates of its links."""
    cluster = scenario.cluster
    path = folder.parent / f"{folder.name}-machine.json"
    rates = {
        "name": "simulated", "source": "the scenario", "link_gbps": cluster.nvlink.bytes_per_s / 1e9,
        "nic_gbps": cluster.nic.bytes_per_s / 1e9, "nics": cluster.nics_per_host, "gpus": cluster.gpus_per_host,
    }  # fmt: skip
    path.write_text(json.dumps(rates), encoding="utf-8")
    return path


def run_one(seed: int, kind: str) -> Outcome:
    """One scenario from simulation to ranked findings; what costs too little for any mark is not analysed."""
    scenario, regime = draw(seed, kind)
    out = Outcome(scenario, seed, regime)
    if kind != "none":
        out.step_ns, out.cost = costs_of(scenario, seed)
        if (max if kind == "one" else min)(out.cost.values()) < _SMALLEST:
            return out
    with tempfile.TemporaryDirectory() as folder:
        diagnosis, _, truth = examine(scenario, seed, Path(folder) / "run")
        out.judged = True
        out.found = list(diagnosis.findings)
        out.verdict = diagnosis.verdict.bottleneck
        if diagnosis.accounting is not None:
            parts = {part.name: part for part in diagnosis.accounting.parts}
            lost = diagnosis.accounting.duration_ns - parts["compute"].ns
            out.lost_ns = lost // diagnosis.accounting.steps
        out.overlap_cost_ns = overlap_cost(out.found)
        if kind == "none":
            return out
        out.expected = {fault["kind"]: fault["findings"] for fault in truth["faults"]}
        plain, _, _ = examine(scenario.without(*out.cost), seed, Path(folder) / "plain")
        for f in plain.findings:
            out.before[name_of(f)] = out.before.get(name_of(f), 0) + (f.recoverable_ns or 0)
    return out


def costs_of(scenario: Scenario, seed: int) -> tuple[int, dict[str, float]]:
    """Step time, and what part of it each fault costs, from the simulated timeline alone."""
    whole = step_ns(simulate(make_plan(scenario, seed))) or 0
    without = {f.kind: step_ns(simulate(make_plan(scenario.without(f.kind), seed))) or 0 for f in scenario.faults}
    return whole, {kind: 1 - ns / whole for kind, ns in without.items()}


def ranked(out: Outcome) -> list[str]:
    """Findings that are not in the program, in the order of the report; those that name a fault if they grew by it."""
    wanted = {name for names in out.expected.values() for name in names}
    written = {"repeated-reduction"} if out.scenario.microbatches > 1 and not out.scenario.accumulate else set()

    def counts(f: Finding) -> bool:
        before, now = out.before.get(name_of(f), 0), f.recoverable_ns or 0
        return f.id == "profiler-start" or now > before if f.id in wanted else before < now / 2 and f.id not in written

    return [f.id for f in _named(out) if counts(f)]


def ranked_with_program(out: Outcome) -> list[str]:
    """The same with everything that is not structural, be it in the run without the fault too."""
    return [f.id for f in _named(out)]


def _named(out: Outcome) -> list[Finding]:
    """Findings that say something: above ``info`` and not structural, and the artefact of a recording."""
    wanted = {name for names in out.expected.values() for name in names}
    return [
        f
        for f in out.found
        if (f.severity != "info" and not f.structural) or (f.id == "profiler-start" and f.id in wanted)
    ]


def place_among(names: list[str], wanted: list[str]) -> int:
    """Place of the first wanted name, from 1; one past the end where there is none."""
    return next((index for index, name in enumerate(names, 1) if name in wanted), 99)


def report(outcomes: dict[str, list[Outcome]]) -> str:
    """The result as Markdown."""
    judged = {kind: sum(o.judged for o in outcomes[kind]) for kind in outcomes}
    counts = ", ".join(
        f"{len(outcomes[kind])} with {what} ({judged[kind]} of them analysed)" for kind, what in _KINDS.items()
    )
    lines = ["# Findings against injected faults", "", "Remade by `python -m tests.benchmarks.synth_findings`.", ""]
    lines += [f"Scenarios: {counts}. Every second one uses the real model of collectives.", ""]
    one = [(o, k) for o in outcomes["one"] for k in o.cost]
    large = [(o, k) for o, k in one if o.cost[k] >= 0.05]
    middle = [(o, k) for o, k in one if 0.02 <= o.cost[k] < 0.05]
    lines += ["| mark | asked | measured |", "| --- | --- | --- |"]
    lines.append(_mark("fault of 5 % of the step or more is the first finding that is not in the program", "95 %",
                       [o.place(k) == 1 for o, k in large]))  # fmt: skip
    lines.append(_mark("the same, with what the run without the fault has too", "",
                       [place_among(ranked_with_program(o), o.expected[k]) == 1 for o, k in large]))  # fmt: skip
    lines.append(_mark("fault of 2 to 5 % is among the first three", "90 %",
                       [(o.place(k) or 9) <= 3 for o, k in middle]))  # fmt: skip
    lines.append(_mark("the same, with what the run without the fault has too", "",
                       [place_among(ranked_with_program(o), o.expected[k]) <= 3 for o, k in middle]))  # fmt: skip
    lines.append(_mark("no fault: no finding above info names one", "99 %",
                       [not accused(o) for o in outcomes["none"]]))  # fmt: skip
    two = [o for o in outcomes["two"] if o.cost and min(o.cost.values()) >= 0.02]
    lines.append(_mark("two faults of 2 % or more, both among the first three", "90 %",
                       [all((o.place(k) or 9) <= 3 for k in o.cost) for o in two]))  # fmt: skip
    lines.append(_mark("the same, with what the run without the faults has too", "",
                       [all(place_among(ranked_with_program(o), o.expected[k]) <= 3 for k in o.cost)
                        for o in two]))  # fmt: skip
    every = [o for group in outcomes.values() for o in group if o.judged]
    lines.append(_mark("recoverable time within exposed and idle time of the reference rank", "100 %",
                       [sum(f.recoverable_ns or 0 for f in o.found) <= o.lost_ns + len(o.found)
                        for o in every]))  # fmt: skip
    named = [(o, k) for o, k in large if o.place(k) is not None and k != "profiler-start"]
    lines += [_promise("promise against gain, median", "within 10 %", named)]
    lines += [
        _promise("the same, host-bound scenarios", "within 20 %", [(o, k) for o, k in named if o.regime == "host"])
    ]
    lines.append(_mark("promise and overlap cost an upper bound within 2 %", "95 %",
                       [o.promise(k) + o.overlap_cost_ns >= 0.98 * o.gain(k) for o, k in named]))  # fmt: skip
    lines.append(_mark("the same, with what the findings promise in the run without the fault", "",
                       [o.stated(k) + o.overlap_cost_ns >= 0.98 * o.gain(k) for o, k in named]))  # fmt: skip
    lines += ["", *_matrix(large, "Faults of 5 % or more"), "", *_matrix(middle, "Faults of 2 to 5 %"), ""]
    lines += [*_ratios(named), "", *_missed(outcomes), ""]
    wrong = [f"{o.scenario.name} ({o.seed}): {', '.join(accused(o))}" for o in outcomes["none"] if accused(o)]
    if wrong:
        lines += ["Accused without a fault: " + "; ".join(wrong) + ".", ""]
    return "\n".join(lines)


def accused(outcome: Outcome) -> list[str]:
    """Findings above info that name a fault. A group larger than a host has to cross hosts: that is no accusation."""
    crosses = outcome.scenario.tp > outcome.scenario.cluster.gpus_per_host
    return [
        f.id
        for f in outcome.found
        if f.severity != "info" and f.id in ACCUSING and not (crosses and f.id == "tp-across-hosts")
    ]


def _mark(what: str, asked: str, good: list[bool]) -> str:
    share = f"{100 * sum(good) / len(good):.1f} % ({sum(good)} of {len(good)})" if good else "none drawn"
    return f"| {what} | {asked} | {share} |"


def _promise(what: str, asked: str, pairs: list[tuple[Outcome, str]]) -> str:
    errors = [abs(o.promise(k) / o.gain(k) - 1) for o, k in pairs if o.gain(k) > 0]
    median = f"{100 * statistics.median(errors):.1f} % over {len(errors)}" if errors else "none drawn"
    return f"| {what} | {asked} | {median} |"


def _matrix(pairs: list[tuple[Outcome, str]], title: str) -> list[str]:
    """Rows: injected; columns: the first finding that is not in the program."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome, kind in pairs:
        first = next(iter(ranked(outcome)), "nothing")
        rows[kind][("**" + first + "**") if first in outcome.expected[kind] else first] += 1
    lines = [f"## {title}", "", "| injected | first finding (bold: the fault) |", "| --- | --- |"]
    lines += [
        f"| {kind} | {', '.join(f'{name} {n}' for name, n in counts.most_common())} |"
        for kind, counts in sorted(rows.items())
    ]
    return lines


def _ratios(pairs: list[tuple[Outcome, str]]) -> list[str]:
    """Rows: injected; promise over gain, and how often promise and overlap cost together fall short of the gain."""
    ratios: dict[str, list[float]] = defaultdict(list)
    short: Counter[str] = Counter()
    for outcome, kind in pairs:
        if outcome.gain(kind) > 0:
            ratios[kind].append(outcome.promise(kind) / outcome.gain(kind))
            short[kind] += outcome.promise(kind) + outcome.overlap_cost_ns < 0.98 * outcome.gain(kind)
    lines = ["## Promise over gain, faults of 5 % or more that were found", ""]
    lines += ["| injected | median | smallest | largest | no upper bound |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| {kind} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} | "
        f"{short[kind]} of {len(values)} |"
        for kind, values in sorted(ratios.items())
    ]
    return lines


def _missed(outcomes: dict[str, list[Outcome]]) -> list[str]:
    """The scenarios that count against the first marks, with what was found instead."""
    lines = ["## Not found where it should be", ""]
    for count in ("one", "two"):
        for out in outcomes[count]:
            limit = 1 if count == "one" and max(out.cost.values()) >= 0.05 else 3
            missed = [kind for kind in out.cost if out.judged and (out.place(kind) or 9) > limit]
            if missed:
                costs = ", ".join(f"{kind} ({100 * cost:.1f} %)" for kind, cost in out.cost.items())
                lines.append(
                    f"- seed {out.seed}, {out.scenario.name}, {out.regime}: {costs}; missed {', '.join(missed)}; "
                    f"found {', '.join(ranked(out)[:3]) or 'nothing'}"
                )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, number in (("scenarios", 300), ("without", 100), ("two", 40)):
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--no-record", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--kept", type=Path, nargs="+")
    parser.add_argument("--since", type=int, default=0)
    options = parser.parse_args()
    outcomes: dict[str, list[Outcome]] = {"one": [], "none": [], "two": []}
    if options.kept is not None:
        for path in options.kept:
            with path.open("rb") as stream:
                while stream.peek(1):
                    kind, outcome = pickle.load(stream)
                    if outcome.seed >= options.since:
                        outcomes[kind].append(outcome)
    else:
        for kind, count in (("one", options.scenarios), ("none", options.without), ("two", options.two)):
            for seed in range(options.first, options.first + count):
                outcome = run_one(seed, kind)
                outcomes[kind].append(outcome)
                _tell(outcome, kind)
                if options.keep is not None:
                    with options.keep.open("ab") as stream:
                        pickle.dump((kind, outcome), stream)
    text = report(outcomes)
    if options.no_record or options.keep or options.since:
        print(text)
    else:
        RECORD.write_text(text, encoding="utf-8")
    return 0


def _tell(outcome: Outcome, kind: str) -> None:
    """A line for every scenario that did not come out as it should."""
    if not outcome.judged:
        return
    if kind == "none":
        bad = bool(accused(outcome))
    else:
        large = [k for k, cost in outcome.cost.items() if cost >= _SMALLEST]
        bad = any(outcome.place(k) != 1 or abs(outcome.promise(k) / outcome.gain(k) - 1) > 0.2 for k in large)
    if not bad:
        return
    costs = ", ".join(
        f"{k} {100 * c:.1f} % (promise {outcome.promise(k) / max(1, outcome.gain(k)):.2f})"
        for k, c in outcome.cost.items()
    )
    found = ", ".join(f"{f.id} {100 * (f.share_of_step or 0):.1f}" for f in outcome.found[:5])
    name = f"{kind} {outcome.seed} {outcome.scenario.name} {outcome.regime}"
    print(f"{name}: {costs} | {found} | {ranked(outcome)}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
