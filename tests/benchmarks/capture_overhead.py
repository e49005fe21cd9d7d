"""What the hook costs: ``python -m tests.benchmarks.capture_overhead [--record FILE] [--small]``.

Two processes train a 12-million-parameter transformer with DDP on gloo. Inside the window: four steps
recorded by the hook, four by a bare ``torch.profiler`` with the same options and, as the A/A control, four not
recorded, in turn; between two such blocks always four steps that are not recorded. Each step is paired with its
neighbours: the mean of the same step of the block before and of the block after, so that a machine that grows slower
or faster meanwhile drops out. The bare profiler is the floor of any hook that uses it. Outside the window: steps with
a waiting hook against steps without.
Ratios are medians of pairs with a 95 % bootstrap interval over blocks, since the steps of a block share their noise.
The hook's own time is taken over 10,000 calls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, _KinetoProfile

from commprof.capture import Capture
from commprof.capture.jobs.launch import launch
from commprof.capture.jobs.transformer import Shape, Transformer
from commprof.capture.torch_engine import all_threads
from commprof.manifest import read_manifests

BLOCK = 4
CALLS = 10_000
WINDOW = ("window", "window, bare profiler", "window, hook over bare profiler", "window A/A")
Pairs = list[tuple[float, float]]


class Job:
    """One training step at a time."""

    def __init__(self, width: int, length: int) -> None:
        torch.manual_seed(0)
        self.length = length
        shape = Shape(vocabulary=512, length=length, width=width, layers=6, heads=6, batch=4)
        self.model = DistributedDataParallel(Transformer(shape), bucket_cap_mb=4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    def step(self) -> float:
        """Seconds of one step."""
        begin = time.perf_counter()
        tokens = torch.randint(512, (4, self.length + 1), generator=self.generator)
        logits = self.model(tokens[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - begin


def plain(job: Job) -> list[float]:
    return [job.step() for _ in range(BLOCK)]


def recorded(job: Job, folder: Path) -> list[float]:
    with Capture(folder, model=job.model, skip=0, warmup=1, steps=BLOCK) as capture:
        job.step()
        capture.step()
        times = []
        for _ in range(BLOCK):
            times.append(job.step())
            capture.step()
    return times


def bare(job: Job) -> list[float]:
    """The profiler alone, with the options that the hook gives it."""
    profiler = _KinetoProfile(
        activities=[ProfilerActivity.CPU], record_shapes=True, experimental_config=all_threads()
    )  # fmt: skip
    profiler.prepare_trace()
    job.step()
    profiler.start_trace()
    times = plain(job)
    profiler.stop_trace()
    return times


def interleaved(job: Job, cycles: int, *kinds: Callable[[int], list[float]]) -> list[Pairs]:
    """``cycles`` blocks of each kind in turn, each between two blocks that are not recorded.

    By kind: each step with the mean of its neighbours. A step to settle comes before every block.
    """
    pairs: list[Pairs] = [[] for _ in kinds]
    job.step()
    before = plain(job)
    for cycle in range(cycles):
        for kind in range(len(kinds))[:: 1 if cycle % 2 else -1]:
            job.step()
            block = kinds[kind](cycle)
            job.step()
            after = plain(job)
            pairs[kind] += [(x, (a + b) / 2) for x, a, b in zip(block, before, after, strict=True)]
            before = after
    return pairs


def outside(job: Job, folder: Path, steps: int) -> Pairs:
    """Single steps with a hook that waits, and without one, in alternating order."""
    kinds: tuple[list[float], list[float]] = ([], [])
    with Capture(folder, model=job.model, skip=10**9) as capture:
        for index in range(steps):
            for kind in (0, 1) if index % 2 else (1, 0):
                seconds = job.step()
                if kind == 0:
                    begin = time.perf_counter()
                    capture.step()
                    seconds += time.perf_counter() - begin
                kinds[kind].append(seconds)
    return list(zip(*kinds, strict=True))


def own_time(folder: Path, slow_step: float | None) -> dict[str, float]:
    """Microseconds of ``step()`` in the wait state: mean, and the 99th of 100."""
    capture = Capture(folder, skip=10**9, slow_step=slow_step)
    capture.start()
    times = []
    for _ in range(CALLS):
        begin = time.perf_counter_ns()
        capture.step()
        times.append(time.perf_counter_ns() - begin)
    capture.stop()
    return {"mean": statistics.fmean(times) / 1000, "p99": sorted(times)[CALLS * 99 // 100] / 1000}


def work(folder: Path, cycles: int, outside_steps: int, small: bool) -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=int(os.environ["WORLD_SIZE"])
    )
    job = Job(96 if small else 384, 32 if small else 64)
    for _ in range(4):
        job.step()
    found: dict[str, Any] = {}
    hooked, alone, control = interleaved(
        job, cycles, lambda n: recorded(job, folder / f"trace-{n}"), lambda n: bare(job), lambda n: plain(job)
    )
    found["window"], found["window, bare profiler"], found["window A/A"] = hooked, alone, control
    found["window, hook over bare profiler"] = [
        (x / without, y / beside) for (x, without), (y, beside) in zip(hooked, alone, strict=True)
    ]
    other = Job(96, 32)
    for _ in range(4):
        other.step()
    found["outside"] = outside(other, folder / "outside", outside_steps)
    halves = [other.step() for _ in range(2 * outside_steps)]
    found["outside A/A"] = [(halves[2 * i + i % 2], halves[2 * i + 1 - i % 2]) for i in range(outside_steps)]
    dist.barrier()
    if rank == 0:
        found["own"] = own_time(folder / "own", None)
        found["own, slow_step"] = own_time(folder / "own-slow", 1e9)
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def interval(pairs: Pairs, block: int) -> tuple[float, float, float]:
    """Median of the paired ratios and its 95 % interval by 10,000 bootstrap samples of blocks of ``block`` pairs."""
    first, second = np.array(pairs).T
    blocks = (first / second).reshape(-1, block)
    samples = np.random.default_rng(0).integers(len(blocks), size=(10_000, len(blocks)))
    low, high = np.quantile(np.median(blocks[samples].reshape(10_000, -1), axis=1), [0.025, 0.975])
    return float(np.median(blocks)), float(low), float(high)


def report(folder: Path) -> str:
    found = json.loads((folder / "found.json").read_text())
    lines = ["| what | pairs | step without, ms | ratio | 95 % interval |", "| --- | --- | --- | --- | --- |"]
    for name in (*WINDOW, "outside", "outside A/A"):
        pairs = found[name]
        middle, low, high = interval(pairs, BLOCK if name in WINDOW else 1)
        usual = "" if "over" in name else f"{1000 * statistics.median(without for _, without in pairs):.1f}"
        lines.append(f"| {name} | {len(pairs)} | {usual} | {middle:.3f} | {low:.3f} to {high:.3f} |")
    lines += [
        "",
        "| step() outside the window, over 10,000 calls | mean, us | 99th of 100, us |",
        "| --- | --- | --- |",
    ]
    for name in ("own", "own, slow_step"):
        lines.append(f"| {name} | {found[name]['mean']:.1f} | {found[name]['p99']:.1f} |")
    manifests = [m for n in sorted(folder.glob("trace-*")) for m in read_manifests(n)]
    sizes = [(folder / f"trace-{n}" / (m.trace or "")).stat().st_size for n in (0, 1) for m in manifests[:1]]
    exports = sorted(m.export_ns / 1e6 for m in manifests if m.export_ns is not None)
    lines += [
        "",
        f"Trace: {statistics.mean(sizes) / BLOCK / 1e6:.2f} MB per step and rank, compressed. From the end of "
        f"recording to the trace in its place, {BLOCK} steps: median {statistics.median(exports):.0f} ms, "
        f"longest {exports[-1]:.0f} ms of {len(exports)}.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="write the record to this file")
    parser.add_argument("--small", action="store_true", help="a quick look: small model, few pairs")
    parser.add_argument("--cycles", type=int, default=30, help="blocks of four steps of each kind")
    parser.add_argument("--outside", type=int, default=200, help="pairs outside the window")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    cycles, pairs = (2, 10) if options.small else (options.cycles, options.outside)
    if options.worker:
        work(options.worker, cycles, pairs, options.small)
        return
    with tempfile.TemporaryDirectory() as scratch:
        arguments = ["--cycles", str(cycles), "--outside", str(pairs), *(["--small"] if options.small else [])]
        launch(["-m", "tests.benchmarks.capture_overhead", "--worker", scratch, *arguments], 2, timeout_s=1200)
        table = report(Path(scratch))
    print(table)
    if options.record:
        head = (
            "# What the hook costs\n\nRemade by `python -m tests.benchmarks.capture_overhead`. Two processes, DDP on "
            f"gloo, {os.cpu_count()} shared cores, torch {torch.__version__}, Python {sys.version.split()[0]}; inside "
            "the window a transformer of 12 million parameters. `window` compares recorded with unrecorded steps, "
            "`bare profiler` the same with `torch.profiler` alone and the same options, below which no hook that uses "
            "it can be, "
            "`outside` steps with a waiting hook (its `step()` included) with steps without one; A/A is the same "
            "comparison of two equal kinds. In the window each step is compared with the mean of the same step of the "
            "unrecorded blocks before and after it; intervals are bootstrapped over blocks of four steps.\n\n"
        )
        options.record.write_text(head + table + "\n")


if __name__ == "__main__":
    main()
