"""Tensor parallelism, alone or inside FSDP2; ``python -m commprof.capture.jobs.tensor``."""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, plain_step, run
from commprof.capture.jobs.transformer import Shape, Transformer

SHAPE = Shape()


def build(job: Job, device: torch.device, data: int = 1, sequence: bool = False, shape: Shape = SHAPE) -> Training:
    """``data`` groups of ranks; the ranks of a group share out the heads and the inner width of each layer."""
    model = Transformer(shape).to(device)
    replica = 0
    if data > 1:
        mesh = init_device_mesh(device.type, (data, job.ranks // data), mesh_dim_names=("dp", "tp"))
        replica = mesh["dp"].get_local_rank()
        shard_layers(model, mesh["tp"], sequence)
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    else:
        shard_layers(model, init_device_mesh(device.type, (job.ranks,), mesh_dim_names=("tp",)), sequence)
    # Not all parameters are distributed tensors, which the fused kernel does not take together.
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, foreach=False)
    return Training(model, plain_step(model, optimizer, batches(shape, 1 + replica, device)))


def shard_layers(model: Transformer, mesh: DeviceMesh, sequence: bool) -> None:
    """Attention and feed-forward of each layer over the ranks of ``mesh``; two all-reduces each way.

    With ``sequence`` the activations between them are shared out too, along the sequence.
    """
    split = Shard(1) if sequence else Replicate()
    plan: dict[str, ParallelStyle] = {
        "qkv": ColwiseParallel(input_layouts=split),
        "projection": RowwiseParallel(output_layouts=split),
        "mlp.0": ColwiseParallel(input_layouts=split),
        "mlp.2": RowwiseParallel(output_layouts=split),
    }
    if sequence:
        plan |= {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel()}
        around = {
            "embeddings": PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=split),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=split, output_layouts=Replicate()),
        }
        parallelize_module(model, mesh, around)
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=int, default=1, help="tensor-parallel groups, sharded over by FSDP2")
    parser.add_argument("--sequence", action="store_true", help="share out activations along the sequence")
    run(lambda options: partial(build, data=options.data, sequence=options.sequence), parser)
