"""Several process groups and a second thread; every rank leaves the window at the same moment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from commprof.capture import Capture
from tests.capture.real import open_group

DESCRIPTION = 'the "outer" group \\ größe\n2'


def main(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    open_group(rank, ranks)
    quoted = dist.new_group(list(range(ranks)), group_desc=DESCRIPTION)
    halves = [dist.new_group(list(range(start, ranks, 2)), group_desc=f"half {start}") for start in (0, 1)]

    def loop(capture: Capture, steps: int) -> None:
        for _ in range(steps):
            dist.all_reduce(torch.ones(1000))
            dist.all_reduce(torch.ones(7), group=quoted)
            dist.all_reduce(torch.ones(3, 5), group=halves[rank % 2])
            beside = threading.Thread(target=lambda: dist.broadcast(torch.ones(11), src=0))
            beside.start()
            beside.join()
            capture.step()

    with Capture(folder / "all", skip=1, warmup=1, steps=2) as capture:
        loop(capture, 5)
    with Capture(folder / "two", skip=1, warmup=1, steps=2, ranks=[0, 3]) as capture:
        loop(capture, 5)
    with Capture(folder / "destroyed", skip=0, warmup=0, steps=3) as capture:
        loop(capture, 2)
        dist.destroy_process_group()
    return {"description": DESCRIPTION}
