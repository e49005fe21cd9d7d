"""ZeroRedundancyOptimizer under DistributedDataParallel; ``python -m commprof.capture.jobs.zero1``."""

from __future__ import annotations

import argparse

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from commprof.capture.jobs.ddp import SHAPE, wrap
from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, plain_step, run
from commprof.capture.jobs.transformer import Transformer


def build(job: Job, device: torch.device) -> Training:
    """Gradients as with DDP; each rank keeps the optimizer state of a part of the parameters and broadcasts these."""
    model = wrap(Transformer(SHAPE).to(device), device)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=LEARNING_RATE)
    return Training(model, plain_step(model, optimizer, batches(SHAPE, 1 + job.rank, device)))


if __name__ == "__main__":
    run(lambda options: build, argparse.ArgumentParser(description=__doc__))
