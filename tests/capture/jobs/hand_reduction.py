"""Gradients averaged by hand during the backward pass, a few megabytes at a time, as code without DDP has it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

BUCKET_BYTES = 1 << 20


class HandReduction:
    """Reduces gradients as they come; ``blocking`` waits for each reduction before the backward pass goes on.

    Otherwise ``finish`` waits for all, after it.
    """

    def __init__(self, module: nn.Module, blocking: bool) -> None:
        self.blocking = blocking
        self.waiting: list[Tensor] = []
        self.flying: list[tuple[Any, Tensor, list[Tensor]]] = []
        self.left = self.parameters = sum(1 for _ in module.parameters())
        for parameter in module.parameters():
            dist.broadcast(parameter.data, src=0)
            parameter.register_post_accumulate_grad_hook(self._ready)

    def finish(self) -> None:
        for flight in self.flying:
            self._land(*flight)
        self.flying.clear()
        self.left = self.parameters

    def _ready(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.waiting.append(parameter.grad)
        self.left -= 1
        if self.left and sum(g.numel() * g.element_size() for g in self.waiting) < BUCKET_BYTES:
            return
        gradients, self.waiting = self.waiting, []
        flat = torch.cat([gradient.flatten() for gradient in gradients]) / dist.get_world_size()
        work = dist.all_reduce(flat, async_op=True)
        if self.blocking:
            self._land(work, flat, gradients)
        else:
            self.flying.append((work, flat, gradients))

    def _land(self, work: Any, flat: Tensor, gradients: list[Tensor]) -> None:
        work.wait()
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))
