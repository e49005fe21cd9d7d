"""ZeRO stages 2 and 3, with DeepSpeed or FSDP1; ``python -m commprof.capture.jobs.zero``."""

from __future__ import annotations

import argparse
import importlib
import os
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, cross_entropy, plain_step, run
from commprof.capture.jobs.transformer import Block, Shape, Transformer

SHAPE = Shape()
BUCKET_ELEMENTS = 500_000
SHARDING = {2: ShardingStrategy.SHARD_GRAD_OP, 3: ShardingStrategy.FULL_SHARD}


def build_fsdp1(job: Job, device: torch.device, stage: int) -> Training:
    """Gradients and optimizer state sharded (2), parameters too (3), with PyTorch alone."""
    model = FullyShardedDataParallel(
        Transformer(SHAPE).to(device),
        sharding_strategy=SHARDING[stage],
        auto_wrap_policy=ModuleWrapPolicy({Block}),
        device_id=device,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    return Training(model, plain_step(model, optimizer, batches(SHAPE, 1 + job.rank, device)))


def build_deepspeed(job: Job, device: torch.device, stage: int) -> Training:
    """The same by DeepSpeed's engine (stage 1 too: the optimizer state alone)."""
    deepspeed = _import_deepspeed(device)
    module = Transformer(SHAPE).to(device)
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE),
        config=_config(stage),
        dist_init_required=False,
    )
    draw = batches(SHAPE, 1 + job.rank, device)

    def step() -> Tensor:
        tokens, target = draw()
        loss = cross_entropy(engine(tokens), target)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return Training(engine, step)


def _config(stage: int) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": SHAPE.batch,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": BUCKET_ELEMENTS,
            "allgather_bucket_size": BUCKET_ELEMENTS,
            "stage3_prefetch_bucket_size": BUCKET_ELEMENTS,
            # The usual limits would keep a model of this size whole from its first use to its last.
            "stage3_max_live_parameters": 2 * BUCKET_ELEMENTS,
            "stage3_max_reuse_distance": 0,
            "stage3_param_persistence_threshold": 2_000,
        },
    }


def _import_deepspeed(device: torch.device) -> Any:
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    deepspeed: Any = importlib.import_module("deepspeed")
    backend: Any = importlib.import_module("deepspeed.comm.torch")
    if device.type == "cpu" and hasattr(backend, "build_shm_op"):
        # Compiled at first use, half a minute long, for inference alone.
        backend.build_shm_op = lambda: None
    deepspeed.init_distributed(dist_backend="nccl" if device.type == "cuda" else "gloo")
    return deepspeed


ENGINES = {"deepspeed": build_deepspeed, "fsdp1": build_fsdp1}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", type=int, choices=(1, 2, 3), required=True)
    parser.add_argument("--engine", choices=sorted(ENGINES), required=True)
    run(lambda options: partial(ENGINES[options.engine], stage=options.stage), parser)
