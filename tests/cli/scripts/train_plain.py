"""A training script that knows nothing of commprof: DDP where a launcher started it, one process else."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

steps = int(sys.argv[1])
torch.manual_seed(0)
model: nn.Module = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _step in range(steps):
    for _ in range(2):  # two micro-batches per optimizer step
        model(torch.randn(8, 32)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.is_initialized():
    dist.destroy_process_group()
print("trained", flush=True)
sys.exit(5)
