"""Fifty captures in a row, one all-reduce in each."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from commprof.capture import Capture
from tests.capture.real import open_group


def main(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    open_group(rank, ranks)
    total = torch.zeros(1)
    gc.freeze()  # the hook looks at the live objects in each cycle; those of torch itself need not be among them
    for cycle in range(50):
        with Capture(folder / f"cycle-{cycle:02d}", skip=0, warmup=0, steps=1) as capture:
            share = torch.ones(1)
            dist.all_reduce(share)
            capture.step()
        total += share
    dist.destroy_process_group()
    return {"total": total.item()}
