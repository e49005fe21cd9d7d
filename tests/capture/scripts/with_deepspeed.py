"""DeepSpeed's engine, ZeRO off: its communication library needs no build then."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

import deepspeed
import torch
from torch import nn

from commprof.capture.integrations.deepspeed import capture


def main(folder: str, options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1")
        torch.distributed.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=0, world_size=1)
        model = nn.Linear(8, 8)
        config = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=config
        )
        with capture(engine, folder, **options):
            for _ in range(12):
                engine.backward(engine(torch.ones(2, 8)).pow(2).mean())
                engine.step()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
