"""Pipeline parallelism, one stage per rank, alone or in replicas; ``python -m commprof.capture.jobs.pipeline``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from commprof.capture.jobs.ddp import wrap
from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, cross_entropy, run
from commprof.capture.jobs.transformer import Shape, Transformer

MICROBATCHES = 4
SHAPE = Shape(batch=2 * MICROBATCHES)
SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Stage(nn.Module):
    """The part of the model that stage ``index`` of ``stages`` computes: its layers, and the ends at the ends."""

    def __init__(self, model: Transformer, index: int, stages: int) -> None:
        super().__init__()
        layers = len(model.layers)
        self.embeddings = model.embeddings if index == 0 else None
        self.layers = model.layers[layers * index // stages : layers * (index + 1) // stages]
        self.tail = nn.Sequential(model.norm, model.head) if index == stages - 1 else None

    def forward(self, x: Tensor) -> Tensor:
        if self.embeddings is not None:
            x = self.embeddings(x)
        for layer in self.layers:
            x = layer(x)
        return x if self.tail is None else self.tail(x)


def build(job: Job, device: torch.device, schedule: str = "1f1b", replicas: int = 1) -> Training:
    """Activations go to the next stage, their gradients back, one microbatch after the other.

    Each of the ``replicas`` is a pipeline of its own with a batch of its own; the gradients of a stage are averaged
    over them, after its last microbatch.
    """
    stages = job.ranks // replicas
    mesh = init_device_mesh(device.type, (stages, replicas), mesh_dim_names=("pp", "dp"))
    index, replica = mesh.get_coordinate() or (0, 0)
    module: nn.Module = Stage(Transformer(SHAPE), index, stages).to(device)
    if replicas > 1:
        module = wrap(module, device, mesh["dp"].get_group())
    stage = PipelineStage(module, index, stages, device, group=mesh["pp"].get_group())
    plan = SCHEDULES[schedule](stage, n_microbatches=MICROBATCHES, loss_fn=cross_entropy)
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, fused=True)
    # The first stage needs the tokens and the last one the target of the same batch.
    draw = batches(SHAPE, 1 + replica, device)
    return Training(module, partial(_step, index == 0, index == stages - 1, plan.step, optimizer, draw))


def _step(
    first: bool,
    last: bool,
    run_schedule: Callable[..., Tensor | None],
    optimizer: torch.optim.Optimizer,
    draw: Callable[[], tuple[Tensor, Tensor]],
) -> Tensor | None:
    tokens, target = draw()
    losses: list[Tensor] = []
    optimizer.zero_grad()
    run_schedule(*([tokens] if first else []), **({"target": target, "losses": losses} if last else {}))
    optimizer.step()
    return torch.stack(losses).mean().detach() if losses else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b", help="order of the microbatches")
    parser.add_argument("--replicas", type=int, default=1, help="pipelines that hold the whole model each")
    run(lambda options: partial(build, schedule=options.schedule, replicas=options.replicas), parser)
