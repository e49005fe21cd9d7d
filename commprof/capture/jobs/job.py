"""What all jobs share: the process group, the data, and the loop under ``Capture``.

A strategy is one function ``build(job, device)``: it makes the model and says what one step is. Started once
per rank by ``commprof.capture.jobs.launch`` with the launcher's usual variables (RANK, WORLD_SIZE, LOCAL_RANK).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as f

from commprof.capture.hook import Capture
from commprof.capture.jobs.launch import announce, follow_launcher
from commprof.capture.jobs.transformer import Shape, sequences

LEARNING_RATE = 1e-3
AFTER_THE_WINDOW = 3


@dataclass(frozen=True)
class Job:
    """What one rank needs to know.

    ``rendezvous`` is a file that all ranks share and nobody has used before. The loop is long enough for
    DDP to rebuild its buckets, and for caches to settle, before the window opens.
    """

    out: Path
    rendezvous: Path
    rank: int
    ranks: int
    steps: int = 4
    skip: int = 4
    warmup: int = 1

    @property
    def loop(self) -> int:
        return self.skip + self.warmup + self.steps + AFTER_THE_WINDOW


@dataclass(frozen=True)
class Training:
    """A model, and ``step``: one step of training on it, which returns the loss where this rank knows it."""

    model: nn.Module
    step: Callable[[], Tensor | None]


Build = Callable[[Job, torch.device], Training]
AfterStep = Callable[[int, Any], None]


def train(job: Job, build: Build, after_step: AfterStep | None = None) -> float | None:
    """Train for ``job.loop`` steps and return the last loss; ``after_step(index, model)`` runs after each."""
    with process_group(job) as device:
        torch.manual_seed(0)
        training = build(job, device)
        loss: Tensor | None = None
        with Capture(job.out, model=training.model, skip=job.skip, warmup=job.warmup, steps=job.steps) as capture:
            for index in range(job.loop):
                loss = training.step()
                if after_step is not None:
                    after_step(index, training.model)
                capture.step()
                if job.rank == 0:
                    announce(index + 1, job.loop)
        return None if loss is None else float(loss)


@contextmanager
def process_group(job: Job) -> Iterator[torch.device]:
    """The default process group, and this rank's device: NCCL where each rank has a GPU, else gloo."""
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= job.ranks
    device = torch.device("cuda", job.rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{job.rendezvous}", rank=job.rank, world_size=job.ranks
    )
    try:
        yield device
    finally:
        dist.destroy_process_group()


def batches(shape: Shape, seed: int, device: torch.device) -> Callable[[], tuple[Tensor, Tensor]]:
    """A function that draws the next batch: tokens and the tokens that follow them, (batch, length) each."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> tuple[Tensor, Tensor]:
        tokens = sequences(shape.batch, shape.length, shape.vocabulary, generator).to(device)
        return tokens[:, :-1], tokens[:, 1:]

    return draw


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean loss of logits (batch, length, vocabulary) over tokens (batch, length)."""
    return f.cross_entropy(logits.flatten(0, 1), target.flatten())


def plain_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, draw: Callable[[], tuple[Tensor, Tensor]]
) -> Callable[[], Tensor]:
    """Forward, backward, optimizer, as most training loops have it."""

    def step() -> Tensor:
        tokens, target = draw()
        loss: Any = cross_entropy(model(tokens), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        detached: Tensor = loss.detach()
        return detached

    return step


def run(build: Callable[[argparse.Namespace], Build], parser: argparse.ArgumentParser) -> None:
    """Train as the command line and the launcher's variables say; ``build`` may read options of its own."""
    follow_launcher()
    parser.add_argument("--out", type=Path, required=True, help="capture folder")
    parser.add_argument("--rendezvous", type=Path, required=True, help="file for the processes to meet in")
    parser.add_argument("--steps", type=int, default=4, help="steps to record")
    options = parser.parse_args()
    job = Job(
        out=options.out,
        rendezvous=options.rendezvous,
        rank=int(os.environ["RANK"]),
        ranks=int(os.environ["WORLD_SIZE"]),
        steps=options.steps,
    )
    train(job, build(options))
