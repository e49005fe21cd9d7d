"""Training on one GPU in an NCCL group of one rank; ``python -m tests.gpu.one_gpu FOLDER`` prints what it saw as JSON.

DDP and FSDP2 each without and with the hook, and a CUDA graph with an all-reduce in it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from commprof.capture import Capture

LAYERS, WIDTH, STEPS = 4, 512, 11


def network() -> nn.Sequential:
    torch.manual_seed(3)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    return nn.Sequential(*layers).cuda()


def ddp() -> nn.Module:
    return DistributedDataParallel(network(), device_ids=[0], bucket_cap_mb=1)


def fsdp2() -> nn.Module:
    model, mesh = network(), init_device_mesh("cuda", (1,))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(build: Callable[[], nn.Module], out: Path | None) -> tuple[str, int]:
    """A digest of the parameters, and how often the loop waited for the device."""
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    waits, synchronize = 0, torch.cuda.synchronize

    def counted(*args: Any) -> None:
        nonlocal waits
        waits += 1
        synchronize(*args)

    torch.cuda.synchronize = counted
    hook: Any = nullcontext() if out is None else Capture(out, model=model)
    generator = torch.Generator().manual_seed(5)
    with hook as capture:
        for step in range(STEPS):
            batch = torch.randn(64, WIDTH, generator=generator).cuda()
            torch.cuda.nvtx.range_push(f"batch {step}")
            model(batch).pow(2).mean().backward()
            torch.cuda.nvtx.range_pop()
            optimizer.step()
            optimizer.zero_grad()
            if capture is not None:
                capture.step()
    torch.cuda.synchronize = synchronize
    digest = hashlib.sha256()
    for parameter in model.parameters():
        local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
        digest.update(local.detach().cpu().numpy().tobytes())
    return digest.hexdigest(), waits


def replay(out: Path) -> None:
    """A graph of a matrix product and an all-reduce, replayed in each step; the hook is there when it is captured."""
    static, weight = torch.ones(WIDTH, WIDTH, device="cuda"), torch.ones(WIDTH, WIDTH, device="cuda")
    dist.all_reduce(static)
    torch.cuda.synchronize()
    capture = Capture(out, skip=0, warmup=1, steps=3)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = static @ weight
        dist.all_reduce(product)
    with capture:
        for _ in range(6):
            graph.replay()
            (static @ weight).sum()
            capture.step()


def main(folder: Path) -> dict[str, Any]:
    torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group(
        "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1, device_id=torch.device("cuda", 0)
    )
    found: dict[str, Any] = {}
    for name, build in (("ddp", ddp), ("fsdp2", fsdp2)):
        without, with_hook = train(build, None), train(build, folder / name)
        found[name] = {"digests": [without[0], with_hook[0]], "waits": with_hook[1]}
    replay(folder / "graph")
    found |= {
        "device": torch.cuda.get_device_name(0),
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "elements": LAYERS * (WIDTH * WIDTH + WIDTH),
    }
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
