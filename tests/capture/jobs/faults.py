"""Real runs with an injected fault: ``python -m tests.capture.jobs.faults --kind slow-rank --seeds 0-19 -o DIR``.

Two processes, one per core, stay alive over all runs. Each run is captured into a folder of its own, with a
``truth.json`` beside the traces. ``--sound`` runs each job without its fault too (or with the advised change).
Runs that are in DIR already and were not disturbed stay.
Kinds that need a slow network run in a network namespace of their own, which takes root.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from commprof.capture.jobs.launch import worker_environment
from tests.capture.jobs.fault_kinds import KINDS, Plan, plan

ROOT = Path(__file__).resolve().parents[3]
RATE = "2gbit"
LIMIT_S = 90
QUIET = 0.05
"""A run is made again when others took more than this part of a core during it: it then says little of its fault."""
TRIES = 3


class Pair:
    """The two processes; ``run`` captures one job in both."""

    def __init__(self, slow_network: bool) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="commprof-pair-")
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            raise RuntimeError("needs two cores, one per rank")
        self.slow_network = slow_network
        self._log = (Path(self._folder.name) / "log").open("w+b")
        self._workers = self._start(cores[:2])

    def run(self, plan: Plan, out: Path) -> float:
        """Capture ``plan`` into the new folder ``out``; raises ``RuntimeError`` when a process fails or hangs.

        Gives the largest part of a core that others took meanwhile.
        """
        if out.exists():
            shutil.rmtree(out)
        order = json.dumps({"plan": asdict(plan), "out": str(out.resolve())}) + "\n"
        for worker in self._workers:
            assert worker.stdin is not None
            worker.stdin.write(order.encode())
            worker.stdin.flush()
        answers = [self._answer(worker) for worker in self._workers]
        kind = KINDS[plan.kind]
        truth = {
            **asdict(plan),
            "cause": kind.cause if plan.injected else None,
            "rank": plan.late_rank if plan.injected and kind.cause else None,
            "findings": kind.findings if plan.injected else (),
            "slow_network": RATE if self.slow_network else None,
            "sound_step_ns": [answer["sound_step_ns"] for answer in answers],
            "foreign_share": max(answer["foreign_share"] for answer in answers),
        }
        (out / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
        return float(truth["foreign_share"])

    def run_quietly(self, plan: Plan, out: Path) -> None:
        """Capture ``plan`` as long as others disturb it, a few times at most."""
        for _ in range(1 if self.slow_network else TRIES):
            if self.run(plan, out) <= QUIET:
                return

    def close(self) -> None:
        """End both processes."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.communicate()
        self._log.close()
        self._folder.cleanup()

    def _start(self, cores: list[int]) -> list[subprocess.Popen[bytes]]:
        rendezvous = str(Path(self._folder.name) / "rendezvous")
        command = [sys.executable, "-m", "tests.capture.jobs.fault_worker"]
        return [
            subprocess.Popen(
                [*command, str(rank), str(core), rendezvous],
                env=worker_environment(rank, 2),
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                start_new_session=True,
            )
            for rank, core in enumerate(cores)
        ]

    def _answer(self, worker: subprocess.Popen[bytes]) -> dict[str, Any]:
        with selectors.DefaultSelector() as selector:
            assert worker.stdout is not None
            selector.register(worker.stdout, selectors.EVENT_READ)
            if not selector.select(LIMIT_S):
                raise RuntimeError("a worker does not answer")
            line = worker.stdout.readline()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return dict(answer)

    def _last_words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:]


@contextmanager
def pair(slow_network: bool) -> Iterator[Pair]:
    """Both processes, ended at the end."""
    both = Pair(slow_network)
    try:
        yield both
    finally:
        both.close()


def is_quiet(folder: Path) -> bool:
    """Whether a run is there and nobody disturbed it."""
    try:
        truth = json.loads((folder / "truth.json").read_text())
    except FileNotFoundError:
        return False
    # A slow network makes the kernel work on the cores, which counts as foreign: there being there must do.
    return truth["slow_network"] is not None or float(truth.get("foreign_share", 1.0)) <= QUIET


def in_slow_network() -> list[str]:
    """What to put before a command so that it runs where the loopback interface is slow."""
    shape = f"ip link set lo up && tc qdisc add dev lo root tbf rate {RATE} burst 256kb latency 400ms"
    return ["unshare", "--net", "sh", "-c", f'{shape} && exec "$@"', "sh"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=KINDS, action="append", help="may be given several times; all if not given")
    parser.add_argument("--seeds", type=_seeds, default=range(2), help="such as 0-19")
    parser.add_argument("--sound", action="store_true", help="each job without its fault too")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    kinds = options.kind or list(KINDS)
    code = 0
    for slow in (False, True):
        chosen = [kind for kind in kinds if KINDS[kind].slow_network == slow]
        if not chosen:
            continue
        if slow and not options.inside:
            more = [word for kind in chosen for word in ("--kind", kind)] + (["--sound"] if options.sound else [])
            seeds = f"{options.seeds[0]}-{options.seeds[-1]}"
            again = [sys.executable, "-m", "tests.capture.jobs.faults", *more, "--seeds", seeds, "--inside"]
            code |= subprocess.run([*in_slow_network(), *again, "-o", str(options.out)], cwd=None).returncode
            continue
        with pair(slow) as both:
            for kind in chosen:
                for seed in options.seeds:
                    for injected in (True, False) if options.sound and kind != "none" else (True,):
                        wanted = plan(kind, seed, injected)
                        if not is_quiet(options.out / wanted.name):
                            both.run_quietly(wanted, options.out / wanted.name)
    return code


def _seeds(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
