"""Strategy, roles and bytes of real runs on gloo, one small training per strategy.

    python -m tests.benchmarks.real_strategies [--only ddp] [--keep DIR]

Each run is captured, and its calls are recorded beside the trace by a dispatch mode that knows nothing of traces. The
bytes that the analysis measures must be those of the record and those of ``tests.capture.jobs.volumes``, to the byte.
The strategy's own formula is another one (it is the textbook's): the named differences must close its gap to one
percent. Writes ``reports/records/real-strategies.md``.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from commprof.capture.jobs.launch import launch
from commprof.capture.jobs.strategies import strategies
from commprof.cli.app import main as commprof
from tests.capture.jobs import volumes

RECORD = Path(__file__).parents[2] / "reports" / "records" / "real-strategies.md"
ZERO = "commprof.capture.jobs.zero"


@dataclass(frozen=True)
class Case:
    """One run: ``parts`` of the strategy's name and ``roles`` of its groups as they should be found.

    ``by_hand``: bytes per rank and step, mean over ranks.
    """

    command: Sequence[str]
    ranks: int
    parts: frozenset[str]
    roles: frozenset[str]
    by_hand: Fraction


def cases() -> dict[str, Case]:
    """All runs, DeepSpeed's where it is installed."""
    jobs = strategies()

    def case(name: str, ranks: int, parts: str, roles: str, by_hand: Fraction) -> Case:
        return Case(jobs[name].command[1:], ranks, frozenset(parts.split()), frozenset(roles.split()), by_hand)

    def zero(stage: int, engine: str, parts: str, by_hand: Fraction) -> Case:
        command = (ZERO, "--stage", str(stage), "--engine", engine)
        return Case(command, 4, frozenset(parts.split()), frozenset({"dp"}), by_hand)

    found = {
        "DDP": case("ddp", 4, "ddp", "dp", volumes.ddp(4)),
        "ZeroRedundancyOptimizer": case("zero1", 4, "zero1", "dp", volumes.zero1(4)),
        "FSDP2": case("fsdp", 4, "fsdp", "dp", volumes.fsdp(4)),
        "HSDP 2 x 2": case("hsdp", 4, "hsdp", "shard replicate", volumes.hsdp(2, 2)),
        "FSDP1 SHARD_GRAD_OP": zero(2, "fsdp1", "fsdp", 2 * volumes.part(4) * volumes.PARAMETERS * volumes.BYTES),
        "FSDP1 FULL_SHARD": zero(3, "fsdp1", "fsdp", volumes.fsdp(4)),
        "TP": case("tp", 4, "tp", "tp", volumes.tensor(4)),
        "TP, sequence parallel": case("tp-sequence", 4, "sp", "tp", volumes.tensor_sequence(4)),
        "TP 2 x FSDP 2": case("tp-fsdp", 4, "tp fsdp", "tp dp", volumes.tensor_in_fsdp(2, 2)),
        "PP 2 x DDP 2": case("pp-dp", 4, "pp ddp", "pp dp", volumes.pipeline(2, 2)),
        "PP 4, 1F1B": case("pp", 4, "pp", "pp", volumes.pipeline(4)),
        "PP 4, GPipe": case("pp-gpipe", 4, "pp", "pp", volumes.pipeline(4)),
        "EP and DDP": case("ep", 4, "ep ddp", "ep dp", volumes.experts(4)),
    }
    if importlib.util.find_spec("deepspeed") is not None:
        found |= {
            "DeepSpeed ZeRO-1": zero(1, "deepspeed", "zero1", volumes.zero_deepspeed(4)),
            "DeepSpeed ZeRO-2": zero(2, "deepspeed", "zero2", volumes.zero_deepspeed(4)),
            "DeepSpeed ZeRO-3": zero(3, "deepspeed", "zero3", volumes.zero3_deepspeed(4)),
        }
    return found


@dataclass(frozen=True)
class Outcome:
    """What was found of one run."""

    case: Case
    strategy: str
    roles: frozenset[str]
    recorded: Fraction
    measured: int
    differences: str
    closed: bool

    @property
    def wrong(self) -> str:
        """What is not as it should be; empty if nothing."""
        checks = {
            "strategy": set(self.strategy.split("+")) == self.case.parts,
            "roles": self.roles == self.case.roles,
            "recorded bytes": self.recorded == self.case.by_hand,
            # A mean over ranks and steps is rounded.
            "measured bytes": abs(self.measured - self.recorded) <= 1,
            "differences": self.closed,
        }
        return ", ".join(name for name, right in checks.items() if not right)


def observe(case: Case, folder: Path) -> Outcome:
    """Run, unless the capture is there already, analyse, compare."""
    if not all(Path(f"{folder}.calls-{rank}.json").exists() for rank in range(case.ranks)):
        shutil.rmtree(folder, ignore_errors=True)  # an earlier attempt may have been ended before its record
        command = ["-m", "tests.capture.jobs.recorded", *case.command]
        launch([*command, "--out", str(folder), "--rendezvous", "{rendezvous}"], case.ranks, timeout_s=300)
    silent, target = io.StringIO(), Path(f"{folder}.json")
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
        code = commprof(["analyze", str(folder), "--json", str(target), "--no-html"])
    if code:
        raise RuntimeError(f"analyze ended with {code}: {silent.getvalue()}")
    report = json.loads(target.read_text())
    strategy = report["strategy"]
    parts = strategy["parts"]
    return Outcome(
        case=case,
        strategy=strategy["name"],
        roles=frozenset(row["role"] for row in report["groups"]),
        recorded=_recorded(folder, case.ranks),
        measured=strategy["measured_bytes_per_step"],
        differences="; ".join(f"{d['what']} {d['bytes']:+,}" for part in parts for d in part["differences"]),
        closed=all(map(_closed, parts)),
    )


def _recorded(folder: Path, ranks: int) -> Fraction:
    """Mean over ranks of the bytes of the last step."""
    total = Fraction(0)
    for rank in range(ranks):
        record = json.loads(Path(f"{folder}.calls-{rank}.json").read_text())
        last = record["calls"][-1]["step"]
        total += volumes.sent([call for call in record["calls"] if call["step"] == last], record["groups"])
    return total / ranks


def _closed(part: dict[str, Any]) -> bool:
    if part["expected_bytes"] is None:
        return False
    named = sum(difference["bytes"] for difference in part["differences"])
    return abs(part["expected_bytes"] + named - part["measured_bytes"]) <= 0.01 * part["measured_bytes"]


def write(outcomes: dict[str, Outcome]) -> str:
    """The record."""
    right = sum(not outcome.wrong for outcome in outcomes.values())
    rows = [
        f"| {name} | {o.case.ranks} | {o.strategy} | {', '.join(sorted(o.roles))} "
        f"| {_bytes(o.case.by_hand)} | {_bytes(o.recorded)} | {o.measured:,} | {o.differences or '-'} "
        f"| {o.wrong or 'nothing'} |"
        for name, o in outcomes.items()
    ]
    return "\n".join(
        [
            "# Record: strategy, roles and bytes of real runs",
            "",
            f"Made by `python -m tests.benchmarks.real_strategies`, Python {platform.python_version()}, torch "
            f"{_torch_version()}, gloo, {os.cpu_count()} cores. {right} of {len(outcomes)} runs right in everything.",
            "",
            "Bytes are `S * f` per rank and step (mean over ranks). *By hand*: from the sizes of the model. "
            "*Recorded*: from the arguments of every call of the same run, seen by the dispatcher. "
            "*Measured*: from the traces. "
            "*Differences*: what the report names between the strategy's textbook formula and what was measured.",
            "",
            "| run | ranks | strategy | roles | by hand | recorded | measured | differences | wrong |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _bytes(value: Fraction) -> str:
    return f"{float(value):,.0f}"


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch").partition("+")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="runs to make; all if not given, and only then a record")
    parser.add_argument("--keep", type=Path, help="folder for the captures; those in it are not made again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        base = options.keep or Path(scratch)
        base.mkdir(parents=True, exist_ok=True)
        outcomes = {}
        for name, case in cases().items():
            if options.only and name not in options.only:
                continue
            outcomes[name] = observe(case, base / name.lower().replace(" ", "-").replace(",", ""))
            print(name, outcomes[name].strategy, outcomes[name].wrong or "right", flush=True)
    text = write(outcomes)
    if options.only:
        print(text)
    else:
        RECORD.write_text(text)


if __name__ == "__main__":
    main()
