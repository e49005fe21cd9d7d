"""Hugging Face's Trainer with the callback."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

from commprof.capture.integrations.transformers import CaptureCallback


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.layer(x).pow(2).mean()}


def main(folder: str, options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            scratch,
            per_device_train_batch_size=2,
            gradient_accumulation_steps=2,
            num_train_epochs=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
        )
        data = [{"x": torch.ones(8)} for _ in range(24)]
        Trainer(Model(), arguments, train_dataset=data, callbacks=[CaptureCallback(folder, **options)]).train()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
