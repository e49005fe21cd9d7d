"""Lightning's Trainer with the callback."""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from commprof.capture.integrations.lightning import CaptureCallback


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main(folder: str, options: dict[str, Any]) -> None:
    loader = torch.utils.data.DataLoader([torch.ones(8) for _ in range(24)], batch_size=2)
    with tempfile.TemporaryDirectory() as scratch:
        pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            accumulate_grad_batches=2,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=scratch,
            callbacks=[CaptureCallback(folder, **options)],
        ).fit(Module(), loader)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
