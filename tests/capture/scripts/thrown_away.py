"""The hook is thrown away inside the window, then the process leaves by sys.exit."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from commprof.capture import Capture


def main(folder: Path, rank: int, ranks: int) -> None:
    hook = Capture(folder / "run", skip=0, warmup=1, steps=4)
    hook.start()
    for _ in range(3):
        torch.ones(8, 8).matmul(torch.ones(8, 8))
        hook.step()
    del hook
    torch.ones(3).add(1)
    print("still here", flush=True)
    sys.exit(3)
