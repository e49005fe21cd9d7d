"""One of the two processes that run the faulty jobs: torch is imported once, jobs come as lines of JSON.

Started by :mod:`tests.capture.jobs.faults`; pinned to the core it is told, one thread.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from commprof.capture import Capture
from commprof.capture.jobs.job import LEARNING_RATE, cross_entropy
from commprof.capture.jobs.transformer import Shape, Transformer, sequences
from tests.capture.jobs.core_use import CoreUse, go_first
from tests.capture.jobs.fault_kinds import Plan
from tests.capture.jobs.hand_reduction import HandReduction

BEFORE, SKIP, WARMUP, STEPS, AFTER = 4, 3, 1, 6, 2
MICROBATCHES = 3
CAPS_MB = {"tiny-buckets": 0.001, "huge-bucket": 1000.0}
SOUND_CAP_MB = 1.0


class Batches(Dataset[Tensor]):
    """Token sequences, drawn as they are asked for; ``delay`` is called for each."""

    def __init__(self, plan: Plan, rank: int, delay: Callable[[], None]) -> None:
        self.plan, self.delay = plan, delay
        self.generator = torch.Generator().manual_seed(1000 * plan.seed + rank)

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> Tensor:
        self.delay()
        return sequences(self.plan.batch, Shape.length, Shape.vocabulary, self.generator)


class Run:
    """One job on this rank."""

    def __init__(self, plan: Plan, rank: int) -> None:
        torch.manual_seed(plan.seed)
        self.plan = plan
        self.late = plan.injected and rank == plan.late_rank
        self.active = False  # not before the sound step has been measured
        self.extra_s = 0.0
        module = Transformer(Shape(layers=plan.layers, width=plan.width, batch=plan.batch))
        module.layers[plan.layers // 2].register_forward_pre_hook(lambda *_: self._at("slow-rank", self._matrices))
        self.by_hand = HandReduction(module, plan.injected) if plan.kind == "blocking-wait" else None
        cap = CAPS_MB.get(plan.kind, SOUND_CAP_MB) if plan.injected else SOUND_CAP_MB
        self.model = module if self.by_hand else DistributedDataParallel(module, bucket_cap_mb=cap)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, fused=True)
        batches = Batches(plan, rank, lambda: self._at("slow-loader", self._load))
        self.loader = iter(DataLoader(batches, batch_size=None))

    def step(self) -> None:
        """One optimizer step."""
        count = MICROBATCHES if self.plan.kind == "no-sync" else 1
        self.optimizer.zero_grad()
        for index in range(count):
            tokens = next(self.loader)
            last = index == count - 1
            with self._reduced(last):
                self._pause("before forward")
                loss = cross_entropy(self.model(tokens[:, :-1]), tokens[:, 1:])
                self._pause("before backward")
                loss.backward()
        if self.by_hand:
            self.by_hand.finish()
        self._pause("before optimizer")
        self.optimizer.step()

    def measure(self) -> int:
        """Length of a sound step, ns; from then on the fault is there."""
        times = []
        for _ in range(BEFORE):
            begin = time.perf_counter_ns()
            self.step()
            times.append(time.perf_counter_ns() - begin)
        sound = round(statistics.median(times[-2:]))
        self.extra_s = self.plan.share * sound / 1e9
        self.active = True
        return sound

    def _reduced(self, last: bool) -> Any:
        forgotten = self.plan.injected and self.plan.kind == "no-sync"
        if last or forgotten or not isinstance(self.model, DistributedDataParallel):
            return contextlib.nullcontext()
        return self.model.no_sync()

    def _at(self, kind: str, waste: Callable[[], None]) -> None:
        if self.late and self.active and self.plan.kind == kind:
            waste()

    def _pause(self, place: str) -> None:
        if place == self.plan.place:
            self._at("host-pause", self._sleep if self.plan.manner == "sleep" else self._collect)

    def _sleep(self) -> None:
        time.sleep(self.extra_s)

    def _load(self) -> None:
        self._sleep() if self.plan.manner == "sleep" else self._repeat(_decode)

    def _collect(self) -> None:
        self._repeat(_collect_garbage)

    def _matrices(self) -> None:
        with torch.no_grad():
            self._repeat(_multiply)

    def _repeat(self, work: Callable[[], None]) -> None:
        for _ in range(max(1, round(self.extra_s / _cost_s(work)))):
            work()


@cache
def _cost_s(work: Callable[[], None]) -> float:
    """What one call costs where nobody disturbs it; the same number of calls is then made in every step."""
    costs = []
    for _ in range(20):
        begin = time.perf_counter()
        work()
        costs.append(time.perf_counter() - begin)
    return min(costs)


_MATRIX = torch.randn(192, 192)


def _multiply() -> None:
    torch.mm(_MATRIX, _MATRIX)


def _decode() -> None:
    sum(byte * 3 % 251 for byte in range(20_000))


def _collect_garbage() -> None:
    rings: list[Any] = []
    for _ in range(5_000):
        ring: list[Any] = []
        ring.append(ring)
        rings.append(ring)
    del rings
    gc.collect()


@contextlib.contextmanager
def busy_core(wanted: bool) -> Iterator[int | None]:
    """Another process that wants this process's core all the time; gives its id."""
    if not wanted:
        yield None
        return
    foreign = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])  # pinned as this process is
    try:
        yield foreign.pid
    finally:
        foreign.kill()
        foreign.wait()


def run(plan: Plan, rank: int, core: int, out: Path) -> dict[str, Any]:
    """Train under ``Capture``; what was measured before the fault began, and what others took of the core then."""
    job = Run(plan, rank)
    sound = job.measure()
    gc.freeze()  # a collection costs what the garbage costs then, not what torch is made of
    model = job.model
    foreign = 0.0
    with (
        busy_core(job.late and plan.kind == "busy-core") as burner,
        Capture(out, model=model, skip=SKIP, warmup=WARMUP, steps=STEPS) as capture,
    ):
        use = CoreUse(core, burner)
        for index in range(SKIP + WARMUP + STEPS + AFTER):
            job.step()
            if index == SKIP + WARMUP + STEPS - 1:
                foreign = use.foreign_share()
            capture.step()
    return {"sound_step_ns": sound, "foreign_share": foreign}


def main() -> None:
    rank, core, rendezvous = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    os.sched_setaffinity(0, {core})
    go_first()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for work in (_multiply, _decode, _collect_garbage):
        _cost_s(work)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = run(Plan(**order["plan"]), rank, core, Path(order["out"]))
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        gc.unfreeze()
        gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
