"""No file may grow beyond 20 kB: what a full disk does to the profiler's own writer."""

from __future__ import annotations

import resource
import signal
from pathlib import Path
from typing import Any

import torch

from commprof.capture import Capture


def main(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    weight = torch.ones(8, 8)
    with Capture(folder / "run", skip=0, warmup=1, steps=4) as hook:
        for _ in range(6):
            for _ in range(50):
                weight = torch.tanh(weight.matmul(weight))
            hook.step()
    return {"sum": weight.sum().item()}
