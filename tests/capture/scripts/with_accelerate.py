"""A loop of Accelerate with gradient accumulation."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

from commprof.capture.integrations.accelerate import capture


def main(folder: str, options: dict[str, Any]) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Linear(8, 8)
    loader = torch.utils.data.DataLoader([torch.ones(8) for _ in range(24)], batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    with capture(accelerator, optimizer, folder, **options):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).pow(2).mean())
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
