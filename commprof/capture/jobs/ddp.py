"""Data-parallel training of a small transformer under ``Capture``; ``python -m commprof.capture.jobs.ddp``.

Started once per rank by ``commprof.capture.jobs.launch`` with the launcher's usual variables (RANK,
WORLD_SIZE, LOCAL_RANK). The bucket cap gives about ten buckets, so that the first are reduced while the
backward pass still computes the last ones, and the loop is long enough for DDP to rebuild its buckets
before the window opens.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from commprof.capture.hook import Capture
from commprof.capture.jobs.launch import announce
from commprof.capture.jobs.transformer import Transformer, sequences

VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS, BATCH = 512, 64, 256, 6, 4, 2
BUCKET_CAP_MB = 2.0
AFTER_THE_WINDOW = 3


@dataclass(frozen=True)
class Job:
    """What one rank needs to know.

    ``rendezvous`` is a file that all ranks share and nobody has used before.
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


def train(job: Job, after_step: Callable[[int, DistributedDataParallel], None] | None = None) -> float:
    """Train for ``job.loop`` steps and return the last loss; ``after_step(index, model)`` runs after each."""
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() >= job.ranks
    device = torch.device("cuda", job.rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo", init_method=f"file://{job.rendezvous}", rank=job.rank, world_size=job.ranks
    )
    try:
        torch.manual_seed(0)
        module = Transformer(VOCABULARY, LENGTH, WIDTH, LAYERS, HEADS).to(device)
        model = DistributedDataParallel(module, bucket_cap_mb=BUCKET_CAP_MB, device_ids=[job.rank] if on_gpu else None)
        return _loop(job, model, device, after_step)
    finally:
        dist.destroy_process_group()


def _loop(
    job: Job,
    model: DistributedDataParallel,
    device: torch.device,
    after_step: Callable[[int, DistributedDataParallel], None] | None,
) -> float:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    generator = torch.Generator().manual_seed(1 + job.rank)
    loss: Any = None
    with Capture(job.out, model=model, skip=job.skip, warmup=job.warmup, steps=job.steps) as capture:
        for index in range(job.loop):
            tokens = sequences(BATCH, LENGTH, VOCABULARY, generator).to(device)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if after_step is not None:
                after_step(index, model)
            capture.step()
            if job.rank == 0:
                announce(index + 1, job.loop)
    return float(loss)


def parse(arguments: list[str] | None = None) -> Job:
    """The job from the command line and the launcher's variables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="capture folder")
    parser.add_argument("--rendezvous", type=Path, required=True, help="file for the processes to meet in")
    parser.add_argument("--steps", type=int, default=4, help="steps to record")
    options = parser.parse_args(arguments)
    return Job(
        out=options.out,
        rendezvous=options.rendezvous,
        rank=int(os.environ["RANK"]),
        ranks=int(os.environ["WORLD_SIZE"]),
        steps=options.steps,
    )


if __name__ == "__main__":
    train(parse())
