"""The same DDP training without and with the hook, in one process group."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from commprof.capture import Capture
from tests.capture.real import open_group

STEPS = 11


class Residual(nn.Module):
    """Names and sizes that the bucket map must give back."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(96, 96) for _ in range(6))
        self.scale = nn.Parameter(torch.ones(96))
        self.frozen = nn.Parameter(torch.ones(7), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.inner:
            x = x + torch.tanh(layer(x))
        return x * self.scale


def train(out: Path | None, rank: int) -> tuple[str, DistributedDataParallel]:
    torch.manual_seed(7)
    model = DistributedDataParallel(Residual(), bucket_cap_mb=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(100 + rank)
    hook: Any = nullcontext() if out is None else Capture(out, model=model)
    with hook as capture:
        for _ in range(STEPS):
            loss = model(torch.randn(5, 96, generator=generator)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if capture is not None:
                capture.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest(), model


def collectives() -> int:
    """Collectives of this process so far, by the Flight Recorder."""
    return len(json.loads(torch._C._distributed_c10d._dump_fr_trace_json()).get("entries", []))


def main(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    open_group(rank, ranks)
    counts = [collectives()]
    digests = []
    for out in (None, folder / "run"):
        digest, model = train(out, rank)
        digests.append(digest)
        counts.append(collectives())
    log = model._get_ddp_logging_data()
    names = [name for name, parameter in model.module.named_parameters() if parameter.requires_grad]
    hooks = len(getattr(model, "_comm_hooks", []))
    dist.destroy_process_group()
    return {
        "digests": digests,
        "collectives": [counts[1] - counts[0], counts[2] - counts[1]],
        "sizes": log["rebuilt_bucket_sizes"],
        "indices": log["rebuilt_per_bucket_param_indices"],
        "cap": log["bucket_cap_bytes"],
        "names": names,
        "hooks": hooks,
    }
