"""Real runs with an injected fault: is the late rank named with its cause, and the fault the top finding?

    python -m tests.benchmarks.real_faults --keep runs/faults [--kind slow-rank] [--seeds 0-19] [--only capture]

Two processes on two cores of an otherwise idle machine (see ``tests.capture.jobs.faults``). Captures that are in the
folder already and were not disturbed are not made again, and what was found of a kind is kept there too, so the study
can be made in parts; the record is written once all kinds are there. Findings in the program (tensor-parallel
exposure, pipeline bubble, tail bucket) do not count as the top one. Where a change is advised, the run is made with
that change too, and ``commprof compare`` must show the gain. Writes ``reports/records/real-faults.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import statistics
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from commprof.cli.app import main as commprof
from commprof.manifest import read_manifests
from tests.capture.jobs.fault_kinds import KINDS, plan
from tests.capture.jobs.faults import is_quiet
from tests.capture.jobs.faults import main as capture

RECORD = Path(__file__).parents[2] / "reports" / "records" / "real-faults.md"
STRUCTURAL = {"tp-structural", "pipeline-bubble", "ddp-tail-bucket"}
ADVISED = ("tiny-buckets", "huge-bucket", "no-sync", "blocking-wait")
LOUD = ("low", "medium", "high")
RUNS, RUNS_WITH_TWIN = 20, 10
"""Seeds of a kind if none are given."""
MARKS = {
    "none": "no rank named in 20 of 20",
    "slow-rank": "rank and cause in 19 of 20, finding in 9 of 10",
    "slow-loader": "rank and cause in 19 of 20, finding in 9 of 10",
    "host-pause": "rank and cause in 19 of 20",
    "busy-core": "rank and cause in 17 of 20",
    "tiny-buckets": "finding in 9 of 10",
    "huge-bucket": "finding in 9 of 10",
    "no-sync": "finding in 9 of 10",
    "blocking-wait": "finding in 9 of 10",
}


@dataclass(frozen=True)
class Outcome:
    """What was found of one run. ``cost``: what the fault adds to the step, as a share of the sound one."""

    seed: int
    named: tuple[tuple[int | None, str], ...]
    """Rank and cause of every straggler."""
    late: tuple[int | None, str | None]
    top: str | None
    expected: tuple[str, ...]
    cost: float
    gain_shown: bool | None
    foreign_share: float | None = None
    """Largest part of a core that others took during the run; null in captures that did not measure it."""

    @property
    def rank_right(self) -> bool:
        return [rank for rank, _ in self.named] == ([] if self.late[0] is None else [self.late[0]])

    @property
    def cause_right(self) -> bool:
        return self.rank_right and (not self.named or self.named[0][1] == self.late[1])

    @property
    def finding_right(self) -> bool:
        return self.top in self.expected if self.expected else self.top is None


def observe(folder: Path, sound: Path | None) -> Outcome:
    """Analyse one run, and compare it with its sound twin."""
    truth = json.loads((folder / "truth.json").read_text())
    report = _json("analyze", folder)
    stragglers = report["stragglers"] or []
    loud = [f["id"] for f in report["findings"] or [] if f["severity"] in LOUD and f["id"] not in STRUCTURAL]
    step = _recorded_ns(folder)
    base = statistics.median(truth["sound_step_ns"]) if sound is None else _recorded_ns(sound)
    return Outcome(
        seed=truth["seed"],
        named=tuple((row["rank"], row["cause"]) for row in stragglers if row["kind"] != "rotating"),
        late=(truth["rank"], truth["cause"]),
        top=loud[0] if loud else None,
        expected=tuple(truth["findings"]),
        cost=step / base - 1,
        gain_shown=None if sound is None else _gain_shown(folder, sound),
        foreign_share=truth.get("foreign_share"),
    )


def _json(verb: str, *paths: Path) -> dict[str, Any]:
    """The JSON that ``commprof VERB PATHS`` writes."""
    target = paths[-1].parent / "study.json"
    target.unlink(missing_ok=True)
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        code = commprof([verb, *map(str, paths), "--json", str(target), "--no-html"])
    if not target.exists():
        raise RuntimeError(f"{verb} {paths} ended with {code}: {silent.getvalue()}")
    loaded: dict[str, Any] = json.loads(target.read_text())
    target.unlink()
    return loaded


def _recorded_ns(folder: Path) -> float:
    """Median length of the recorded steps of all ranks by the hook's own clock."""
    return statistics.median(m.profiled_step_ns or 0 for m in read_manifests(folder))


def _gain_shown(folder: Path, sound: Path) -> bool:
    """Whether the comparison says that the step got shorter, and not by noise."""
    step = next(row for row in _json("compare", folder, sound)["split"] if row["key"] == "duration")
    return bool(step["significant"] and step["change_ns"] < 0)


def row(kind: str, outcomes: list[Outcome]) -> str:
    """One kind's line of the table."""
    runs = len(outcomes)
    costs = [outcome.cost for outcome in outcomes]
    wrong = Counter(
        f"rank {'right' if rank == outcome.late[0] else 'wrong'}, {cause}"
        for outcome in outcomes
        if not outcome.cause_right
        for rank, cause in outcome.named or ((None, "nobody"),)
    )
    others = Counter(str(outcome.top) for outcome in outcomes if not outcome.finding_right)
    foreign = [outcome.foreign_share for outcome in outcomes if outcome.foreign_share is not None]
    shown = [outcome.gain_shown for outcome in outcomes if outcome.gain_shown is not None]
    cells = [
        kind,
        f"{min(costs):+.0%} {statistics.median(costs):+.0%} {max(costs):+.0%}",
        f"{sum(o.rank_right for o in outcomes)} of {runs}",
        f"{sum(o.cause_right for o in outcomes)} of {runs}",
        f"{sum(o.finding_right for o in outcomes)} of {runs}",
        f"{sum(shown)} of {len(shown)}" if shown else "-",
        f"{max(foreign):.0%} ({len(foreign)})" if foreign else "-",
        MARKS[kind],
        ", ".join(f"{what} ({n})" for what, n in wrong.most_common()) or "-",
        ", ".join(f"{what} ({n})" for what, n in others.most_common()) or "-",
    ]
    return f"| {' | '.join(cells)} |"


def write(outcomes: dict[str, list[Outcome]]) -> str:
    """The record."""
    return "\n".join(
        [
            "# Record: real runs with an injected fault",
            "",
            f"Made by `python -m tests.benchmarks.real_faults`, Python {platform.python_version()}, {os.cpu_count()} "
            "cores; two ranks with one thread each on gloo, one per core. Kinds with buckets, accumulation and "
            "blocking waits run over a loopback interface limited to 2 Gbit/s.",
            "",
            "*Cost*: lowest, median and highest share of a sound step that the fault adds. *Rank*: exactly the late "
            "rank is named (nobody, where none is late). *Cause*: and its cause is right. *Finding*: the first finding "
            "of at least low severity that is not in the program is the fault. *Gain*: the comparison with the run "
            "that follows the advice says that the step is shorter, beyond noise. *Foreign*: the largest part of a "
            "core that other programs took during a run, and in how many runs that was measured.",
            "",
            "| fault | cost | rank | cause | finding | gain | foreign | mark | wrong names | other top findings |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            *(row(kind, found) for kind, found in outcomes.items()),
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, help="folder for captures; those in it stay")
    parser.add_argument("--kind", action="append", choices=KINDS, help="all if not given")
    parser.add_argument("--seeds", help=f"such as 0-19; {RUNS} runs if not given, {RUNS_WITH_TWIN} of those with twins")
    parser.add_argument("--only", choices=["capture", "analyse"], help="one of the two parts")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        seeds = _seeds(options.seeds, kind)
        if options.only != "analyse":
            _capture(options.keep, kind, seeds)
        if options.only != "capture":
            found = [_observe(options.keep, kind, seed) for seed in seeds]
            _kept(options.keep, kind).write_text(json.dumps([asdict(outcome) for outcome in found], indent=1) + "\n")
            print(row(kind, found), flush=True)
    if all(_kept(options.keep, kind).exists() for kind in KINDS):
        RECORD.write_text(write({kind: _load(_kept(options.keep, kind)) for kind in KINDS}))


def _seeds(given: str | None, kind: str) -> range:
    if given is None:
        return range(RUNS_WITH_TWIN if kind in ADVISED else RUNS)
    first, _, last = given.partition("-")
    return range(int(first), int(last or first) + 1)


def _capture(keep: Path, kind: str, seeds: range) -> None:
    """Make the runs that are not there, or that others disturbed."""
    wanted = [
        seed
        for seed in seeds
        if not all(is_quiet(keep / plan(kind, seed, injected).name) for injected in (True, kind not in ADVISED))
    ]
    sound = ["--sound"] if kind in ADVISED else []
    if wanted:
        capture(["--kind", kind, "--seeds", f"{wanted[0]}-{wanted[-1]}", *sound, "-o", str(keep)])


def _observe(keep: Path, kind: str, seed: int) -> Outcome:
    twin = keep / plan(kind, seed, False).name if kind in ADVISED else None
    return observe(keep / plan(kind, seed).name, twin)


def _kept(keep: Path, kind: str) -> Path:
    """What was found of a kind."""
    return keep / f"found-{kind}.json"


def _load(path: Path) -> list[Outcome]:
    return [
        Outcome(**{**entry, "named": tuple(map(tuple, entry["named"])), "late": tuple(entry["late"])})
        for entry in json.loads(path.read_text())
    ]


if __name__ == "__main__":
    main()
