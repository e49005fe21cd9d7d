"""Expert parallelism with uneven routing, data parallelism around it; ``python -m commprof.capture.jobs.experts``."""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.nn import functional
from torch.nn.parallel import DistributedDataParallel

from commprof.capture.jobs.ddp import wrap
from commprof.capture.jobs.job import LEARNING_RATE, Job, Training, batches, plain_step, run
from commprof.capture.jobs.transformer import Shape, Transformer, feed_forward

SHAPE = Shape(batch=4)
UNEVENNESS = 2.0

all_to_all_single: Any = functional.all_to_all_single  # differentiable
leave_out: Any = DistributedDataParallel._set_params_and_buffers_to_ignore_for_model


class Experts(nn.Module):
    """A feed-forward layer with one expert per rank of ``group``: each token goes to its expert's rank and back.

    The router's first choice alone counts. Its bias starts uneven, so the first expert gets more tokens than the
    last, as real routers do without a balancing loss.
    """

    def __init__(self, width: int, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        ranks = dist.get_world_size(group)
        self.router = nn.Linear(width, ranks)
        self.router.bias.data = torch.linspace(UNEVENNESS, 0, ranks)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(100 + dist.get_rank(group))
            self.expert = feed_forward(width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weight, choice = self.router(tokens).softmax(dim=-1).max(dim=-1)
        order = choice.argsort(stable=True)
        sent = torch.bincount(choice, minlength=self.router.out_features)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=self.group)
        there, here = sent.tolist(), received.tolist()
        arrived = self._exchange(tokens[order], there, here)
        returned = self._exchange(self.expert(arrived), here, there)
        results = torch.empty_like(tokens).index_copy(0, order, returned)
        return (results * weight[:, None]).view_as(x)

    def _exchange(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        arrived = rows.new_empty((sum(received), rows.shape[1]))
        result: Tensor = all_to_all_single(arrived, rows, received, sent, group=self.group)
        return result


def build(job: Job, device: torch.device) -> Training:
    """All but the experts is replicated over all ranks, and its gradients averaged."""
    group = init_device_mesh(device.type, (job.ranks,), mesh_dim_names=("ep",)).get_group()
    module = Transformer(SHAPE, lambda width: Experts(width, group)).to(device)
    own = [name for name, _ in module.named_parameters() if ".expert." in name]
    leave_out(module, own)
    model = wrap(module, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    return Training(model, plain_step(model, optimizer, batches(SHAPE, 1 + job.rank, device)))


if __name__ == "__main__":
    run(lambda options: build, argparse.ArgumentParser(description=__doc__))
