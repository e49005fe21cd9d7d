"""DistributedDataParallel; ``python -m commprof.capture.jobs.ddp``.

The bucket cap gives about seven buckets, so that the first are reduced while the backward pass still computes
the last ones.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, plain_step, run
from commprof.capture.jobs.transformer import Shape, Transformer

SHAPE = Shape()
BUCKET_CAP_MB = 2.0


def wrap(
    module: torch.nn.Module, device: torch.device, group: dist.ProcessGroup | None = None
) -> DistributedDataParallel:
    """``module``, replicated over the ranks of ``group``, or all."""
    on_gpu = [device] if device.type == "cuda" else None
    return DistributedDataParallel(module, bucket_cap_mb=BUCKET_CAP_MB, device_ids=on_gpu, process_group=group)


def build(job: Job, device: torch.device) -> Training:
    """Every rank holds the whole model; gradients are averaged, bucket by bucket, during the backward pass."""
    model = wrap(Transformer(SHAPE).to(device), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    return Training(model, plain_step(model, optimizer, batches(SHAPE, 1 + job.rank, device)))


if __name__ == "__main__":
    run(lambda options: build, argparse.ArgumentParser(description=__doc__))
