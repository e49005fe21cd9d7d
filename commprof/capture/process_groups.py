"""Which rank this is and who is in which process group, as ``torch.distributed`` or the launcher says it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import torch
import torch.distributed as dist

from commprof.capture.engine import Whereabouts
from commprof.capture.surroundings import local_rank, whole_number
from commprof.manifest import ProcessGroup


def whereabouts() -> Whereabouts:
    """From the process group where there is one, else from the launcher's variables, else rank 0 of 1."""
    local = local_rank()
    if dist.is_available() and dist.is_initialized():
        return Whereabouts(
            rank=dist.get_rank(),
            source="process group",
            world_size=dist.get_world_size(),
            local_rank=local,
            backend=str(dist.get_backend()),
            groups=_groups(),
            timeout_ns=_timeout_ns(),
        )
    rank = whole_number(os.environ, "RANK")
    if rank is None:
        return Whereabouts(rank=0, source="default", world_size=1, local_rank=local)
    world_size = max(whole_number(os.environ, "WORLD_SIZE") or 0, rank + 1)
    return Whereabouts(rank=rank, source="environment RANK", world_size=world_size, local_rank=local)


def _groups() -> tuple[ProcessGroup, ...]:
    """The groups that this rank is in, with their members as global ranks."""
    with contextlib.suppress(Exception):
        return tuple(_group(config) for config in dist.distributed_c10d._get_all_pg_configs())
    return ()


def _group(config: dict[str, Any]) -> ProcessGroup:
    return ProcessGroup(
        name=str(config["pg_name"]),
        description=config.get("pg_desc"),
        backend=config.get("backend_config"),
        ranks=tuple(int(rank) for rank in config["ranks"]),
    )


def _timeout_ns() -> int | None:
    """After how long the other ranks of the default group give up on this one."""
    with contextlib.suppress(Exception):
        group = dist.distributed_c10d._get_default_group()
        device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
        timeout = group._get_backend(device).options._timeout
        return round(timeout.total_seconds() * 1e9)
    return None
