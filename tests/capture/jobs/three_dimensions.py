"""Tensor, pipeline and data parallelism at once, as Megatron composes them, on one played rank.

Tensor-parallel layers by PyTorch; sends, receives and the gradients' all-reduces are written out, since the fake
backend delivers nothing that a pipeline schedule could read and no future that DDP could wait for.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, cross_entropy
from commprof.capture.jobs.pipeline import Stage
from commprof.capture.jobs.tensor import shard_layers
from commprof.capture.jobs.transformer import Shape, Transformer

MICROBATCHES = 8
SHAPE = Shape(layers=8, heads=8, width=128, length=64)


def build(job: Job, device: torch.device, tensor: int, stages: int) -> Training:
    """Ranks in the order that Megatron gives them: neighbours share tensors, the farthest are stages."""
    shape = (stages, job.ranks // tensor // stages, tensor)
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("pp", "dp", "tp"))
    whole = Transformer(SHAPE).to(device)
    shard_layers(whole, mesh["tp"], sequence=False)
    index = mesh["pp"].get_local_rank()
    stage = Stage(whole, index, stages)
    optimizer = torch.optim.AdamW(stage.parameters(), lr=LEARNING_RATE, foreach=False)
    draw = batches(SHAPE, 1, device)
    groups = mesh["pp"].get_group(), mesh["dp"].get_group()

    def step() -> None:
        optimizer.zero_grad()
        _one_forward_one_backward(stage, index, stages, groups[0], draw)
        for gradient in _gradients(stage):
            dist.all_reduce(gradient, group=groups[1])
        optimizer.step()

    return Training(stage, step)


def _one_forward_one_backward(stage: Stage, index: int, stages: int, group: Any, draw: Any) -> None:
    """The 1F1B schedule of one stage: some forward passes, then pairs, then the backward passes left."""
    ahead = min(stages - 1 - index, MICROBATCHES)
    passes: list[tuple[Tensor, Tensor]] = []

    def forward() -> None:
        tokens, target = draw()
        entry = tokens
        if index > 0:
            entry = torch.zeros(SHAPE.batch, SHAPE.length, SHAPE.width, requires_grad=True)
            dist.recv(entry.detach(), group=group, group_src=index - 1)
        out = stage(entry)
        if index < stages - 1:
            dist.send(out.detach(), group=group, group_dst=index + 1)
        else:
            out = cross_entropy(out, target)
        passes.append((entry, out))

    def backward() -> None:
        entry, out = passes.pop(0)
        gradient = None
        if index < stages - 1:
            gradient = torch.zeros_like(out)
            dist.recv(gradient, group=group, group_src=index + 1)
        out.backward(gradient)
        if index > 0:
            assert entry.grad is not None
            dist.send(entry.grad, group=group, group_dst=index - 1)

    for _ in range(ahead):
        forward()
    for _ in range(MICROBATCHES - ahead):
        forward()
        backward()
    for _ in range(ahead):
        backward()


def _gradients(stage: Stage) -> list[Tensor]:
    """Local gradients, as they lie together in the buckets of Megatron's own data parallelism."""
    local = [p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in stage.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in local])
    return list(flat.chunk(4))
