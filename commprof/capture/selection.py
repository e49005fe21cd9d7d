"""Which ranks record, and into which folder: checks that a person should hear about before the first step."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commprof.capture.engine import Whereabouts
from commprof.errors import UsageError
from commprof.manifest import ProcessGroup

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*://")
# Names under which frameworks make groups over replicas: DeviceMesh ("mesh_dp"), Megatron, DeepSpeed, HSDP.
_DATA_PARALLEL = re.compile(r"(?:^|[^a-z])(?:dp|ddp|fsdp|hsdp|data|replicate|replica|rep|shard)(?:$|[^a-z])", re.I)
_KINDS = ("all", "replica", "one-per-host")

Ranks = str | Iterable[int]


@dataclass(frozen=True)
class RankChoice:
    """Which ranks record: a kind of choice, or the ranks of a list. Each rank decides by itself, without a message."""

    kind: str
    listed: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return ", ".join(map(str, sorted(self.listed))) if self.listed else self.kind

    def takes(self, where: Whereabouts) -> bool:
        """Whether this rank records."""
        if self.listed:
            return where.rank in self.listed
        if self.kind == "one-per-host":
            return where.local_rank in (0, None)
        return self.kind == "all" or _in_replica(where)

    def doubt(self, where: Whereabouts) -> str | None:
        """Why more or fewer ranks record than were asked for, if they do."""
        absent = sorted(rank for rank in self.listed if rank >= where.world_size)
        if absent:
            none = "no rank records" if len(absent) == len(self.listed) else f"no rank {', '.join(map(str, absent))}"
            there = f"ranks 0 to {where.world_size - 1}" if where.world_size > 1 else "rank 0 alone"
            return f"ranks=[{self}]: {none}, the job has {there}"
        if self.kind == "one-per-host" and where.local_rank is None and where.world_size > 1:
            return 'ranks="one-per-host": no launcher variable (LOCAL_RANK) tells the ranks of a host apart, all record'
        if self.kind == "replica" and not _data_parallel(where) and any(_partial(g, where) for g in _named(where)):
            return 'ranks="replica": no process group is named as data-parallel, all ranks record'
        return None

    def speaks(self, where: Whereabouts) -> bool:
        """Whether this rank tells the user where the capture is: the first of those that record."""
        return where.rank == min((rank for rank in self.listed if rank < where.world_size), default=0)


def _in_replica(where: Whereabouts) -> bool:
    """Whether the rank belongs to the first data-parallel replica, or is in one group with rank 0.

    The place in a data-parallel group is the number of the replica. Where no group is named as
    data-parallel, the whole job is one such group and all ranks belong to it. Groups of all ranks beside
    smaller ones (control, the mean of a loss) are not made complete: that would take all ranks.
    """
    replicas = [group for group in _data_parallel(where) if _partial(group, where)]
    if not replicas:
        return True
    beside = [group for group in _named(where) if _partial(group, where)]
    return any(0 in group.ranks for group in beside) or all(min(group.ranks) == where.rank for group in replicas)


def _named(where: Whereabouts) -> list[ProcessGroup]:
    return [group for group in where.groups if group.description != "default_pg" and len(group.ranks) > 1]


def _partial(group: ProcessGroup, where: Whereabouts) -> bool:
    return len(group.ranks) < where.world_size


def _data_parallel(where: Whereabouts) -> list[ProcessGroup]:
    return [group for group in _named(where) if _DATA_PARALLEL.search(group.description or "")]


def parse_ranks(ranks: Ranks) -> RankChoice:
    """The choice of ranks; raises ``UsageError`` for what is none."""
    expected = f"{', '.join(map(repr, _KINDS))} or a list of ranks"
    if isinstance(ranks, str):
        if ranks in _KINDS:
            return RankChoice(ranks)
        raise UsageError(f"Capture: ranks={ranks!r} is none of {expected}")
    try:
        chosen = frozenset(ranks)
    except TypeError:
        raise UsageError(f"Capture: ranks={ranks!r} is none of {expected}") from None
    if not chosen or any(isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 for rank in chosen):
        raise UsageError(f"Capture: ranks={ranks!r} is not a list of ranks, the first being 0")
    return RankChoice("list", chosen)


def check_model(model: Any) -> None:
    """Raises ``UsageError`` for a ``model`` that is neither ``None`` nor a module nor a list or dict of modules."""
    parts = list(model.values()) if isinstance(model, dict) else model if isinstance(model, (list, tuple)) else [model]
    # Without torch.nn in memory nothing can be a module.
    module = getattr(sys.modules.get("torch.nn"), "Module", ())
    wrong = [part for part in parts if part is not None and not isinstance(part, module)]
    if wrong or not parts:
        what = f"a {type(wrong[0]).__name__}" if wrong else "empty"
        raise UsageError(f"Capture: model is {what}, not a torch.nn.Module or a list or dict of them")


def parse_folder(out: str | os.PathLike[str]) -> Path:
    """The capture folder as a local path.

    Raises ``UsageError`` for a URL: taken as a path it would make a folder named ``s3:`` beside the script.
    """
    text = os.fspath(out)
    if not isinstance(text, str) or not text:
        raise UsageError(f"Capture: out={out!r} is not a folder")
    if _URL.match(text):
        raise UsageError(
            f"Capture: out={text!r} is a URL, captures are written to local folders",
            hint="write to a local folder and copy it afterwards",
        )
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"Capture: out={text!r} is a file, not a folder")
    return path
