"""The same training without and with the hook, in one process group: DDP of 3 and of 2 ranks, ZeRO-1, FSDP2."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
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


def ddp(group: Any = None) -> tuple[Any, Any]:
    model = DistributedDataParallel(Residual(), bucket_cap_mb=0.05, process_group=group)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def zero1() -> tuple[Any, Any]:
    model = DistributedDataParallel(Residual(), bucket_cap_mb=0.05)
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)


def fsdp2() -> tuple[Any, Any]:
    model = Residual()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.inner:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(out: Path | None, rank: int, build: Callable[[], tuple[Any, Any]] = ddp, **options: int) -> tuple[str, Any]:
    torch.manual_seed(7)
    model, optimizer = build()
    generator = torch.Generator().manual_seed(100 + rank)
    hook: Any = nullcontext() if out is None else Capture(out, model=model, **options)
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
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        digest.update(local.detach().numpy().tobytes())
    return digest.hexdigest(), model


def with_and_without(name: str, build: Callable[[], tuple[Any, Any]], folder: Path, rank: int) -> list[str]:
    """Digests of the rank's parameters without and with the hook, which records almost every step."""
    return [train(out, rank, build, skip=0, warmup=1, steps=9)[0] for out in (None, folder / name)]


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
    pair = dist.new_group([0, 1])
    others = {
        "ddp of 2": with_and_without("pair", lambda: ddp(pair), folder, rank) if rank < 2 else [],
        "zero1": with_and_without("zero1", zero1, folder, rank),
        "fsdp2": with_and_without("fsdp2", fsdp2, folder, rank),
    }
    dist.destroy_process_group()
    return {
        "others": others,
        "digests": digests,
        "collectives": [counts[1] - counts[0], counts[2] - counts[1]],
        "sizes": log["rebuilt_bucket_sizes"],
        "indices": log["rebuilt_per_bucket_param_indices"],
        "cap": log["bucket_cap_bytes"],
        "names": names,
        "hooks": hooks,
    }
