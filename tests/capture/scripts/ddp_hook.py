"""The demo's DDP job with a communication hook that keeps its own record of every bucket, apart from the profiler."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from commprof.capture.jobs import ddp
from commprof.capture.jobs.job import Job, Training, train

Row = dict[str, Any]


def main(folder: Path, rank: int, ranks: int) -> list[Row]:
    """Rows of every bucket of every step: its parameters, bytes, and when it was ready, launched and done (Unix ns)."""
    rows: list[Row] = []
    step = 0
    ready: dict[int, int] = {}

    def build(job: Job, device: torch.device) -> Training:
        training = ddp.build(job, device)
        model: Any = training.model
        assert isinstance(model, DistributedDataParallel)
        names = {}
        for name, parameter in model.module.named_parameters():
            names[id(parameter)] = name
            parameter.register_post_accumulate_grad_hook(lambda p: ready.__setitem__(id(p), time.time_ns()))

        def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP reads annotations and knows no strings
            row: Row = {
                "step": step,
                "index": bucket.index(),
                "size_bytes": bucket.buffer().numel() * bucket.buffer().element_size(),
                "parameters": [names[id(p)] for p in bucket.parameters()],
                "ready": None,
                "members": [id(p) for p in bucket.parameters()],
            }
            rows.append(row)
            bucket.buffer().div_(ranks)
            row["launched"] = time.time_ns()
            work = dist.all_reduce(bucket.buffer(), async_op=True)

            def done(future: Any) -> torch.Tensor:
                row["done"] = time.time_ns()
                result: torch.Tensor = future.value()[0]
                return result

            return work.get_future().then(done)

        model.register_comm_hook(None, hook)
        return training

    def after(index: int, model: Any) -> None:
        nonlocal step
        for row in rows:
            if row["step"] == step:
                # The hook of a parameter runs when its gradient is accumulated, before or after that of its bucket.
                row["ready"] = max(ready[member] for member in row.pop("members"))
        ready.clear()
        step = index + 1

    job = Job(folder / "run", Path(os.environ["RENDEZVOUS"]), rank, ranks, steps=int(os.environ.get("STEPS", "4")))
    train(job, build, after_step=after)
    return rows
