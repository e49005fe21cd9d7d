"""Fully sharded data parallelism (FSDP2), flat or hybrid; ``python -m commprof.capture.jobs.fsdp``."""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, plain_step, run
from commprof.capture.jobs.transformer import Shape, Transformer

SHAPE = Shape()


def build(job: Job, device: torch.device, replicas: int = 1, shape: Shape = SHAPE) -> Training:
    """Each layer is a unit of its own: gathered before it computes, its gradients reduced and scattered.

    With ``replicas`` the ranks fall into that many groups: parameters are sharded inside a group,
    gradients also reduced over the groups.
    """
    model = Transformer(shape).to(device)
    mesh = None
    if replicas > 1:
        names = ("dp_replicate", "dp_shard")
        mesh = init_device_mesh(device.type, (replicas, job.ranks // replicas), mesh_dim_names=names)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    return Training(model, plain_step(model, optimizer, batches(shape, 1 + job.rank, device)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=1, help="groups that hold the whole model each")
    run(lambda options: partial(build, replicas=options.replicas), parser)
