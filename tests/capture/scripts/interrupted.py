"""Ctrl-C inside the window."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch

from commprof.capture import Capture


def main(folder: Path, rank: int, ranks: int) -> None:
    with Capture(folder / "run", skip=0, warmup=1, steps=4) as hook:
        for step in range(6):
            torch.ones(8, 8).matmul(torch.ones(8, 8))
            if step == 3:
                os.kill(os.getpid(), signal.SIGINT)
            hook.step()
