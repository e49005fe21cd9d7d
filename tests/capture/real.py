"""Real processes for the capture tests: starts scripts of this folder and reads what they leave.

A script is a function ``main(folder, rank, ranks)`` of ``tests.capture.scripts.NAME`` that returns plain
data; it runs in a fresh process per rank, with a gloo process group where it opens one.
"""

from __future__ import annotations

import gzip
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from commprof.capture.jobs.launch import launch, worker_environment

ROOT = Path(__file__).resolve().parent.parent.parent


def run_ranks(script: str, folder: Path, ranks: int, timeout_s: float = 120) -> list[Any]:
    """What ``main`` returned on each rank; fails if a rank failed."""
    folder.mkdir(parents=True, exist_ok=True)
    launch(["-m", "tests.capture.real", script, str(folder), "{rendezvous}"], ranks, timeout_s=timeout_s)
    return [json.loads((folder / f"result-{rank}.json").read_text()) for rank in range(ranks)]


def run_alone(script: str, folder: Path, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    """One process whose exit status and standard error matter."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = worker_environment(0, 1)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    return subprocess.run(
        [sys.executable, "-m", "tests.capture.real", script, str(folder)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def trace_of(folder: Path, rank: int = 0, number: Callable[[str], Any] = float) -> dict[str, Any]:
    """The trace of ``rank``, read with the standard library alone; fails if it is not strict JSON.

    ``number`` makes a number of a decimal fraction: a float has no nanoseconds left at the size of these
    stamps.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    text = gzip.decompress((folder / f"rank-{rank:05d}.pt.trace.json.gz").read_bytes()).decode("utf-8")
    loaded: dict[str, Any] = json.loads(text, parse_constant=refuse, parse_float=number)
    return loaded


def names_in(trace: dict[str, Any]) -> list[str]:
    """Names of the complete events, in order of time."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    return [event["name"] for event in sorted(events, key=lambda event: event["ts"])]


def open_group(rank: int, ranks: int) -> None:
    """A gloo process group of all ranks."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{os.environ['RENDEZVOUS']}", rank=rank, world_size=ranks)


def _main(script: str, folder: str, rendezvous: str = "") -> None:
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    os.environ["RENDEZVOUS"] = rendezvous
    result = importlib.import_module(f"tests.capture.scripts.{script}").main(Path(folder), rank, ranks)
    (Path(folder) / f"result-{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    _main(*sys.argv[1:])
