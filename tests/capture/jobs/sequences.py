"""Operation sequences of large jobs, without times: ``python -m tests.capture.jobs.sequences`` makes them again.

One process plays one rank of many on PyTorch's fake backend: tensors and calls are real, nothing is sent. Each file
in the folder of the same name holds one step of one rank: groups with their members, and calls in order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "sequences"


@dataclass(frozen=True)
class Sequence:
    """One job as one rank sees it.

    ``strategy``: the parts of its name; ``roles``: of its groups, by description.
    """

    ranks: int
    rank: int
    strategy: frozenset[str]
    roles: dict[str, str]
    build: Callable[[], Callable[..., Any]]


def _tensor(data: int = 1, sequence: bool = False, **shape: int) -> Callable[[], Callable[..., Any]]:
    def build() -> Callable[..., Any]:
        from commprof.capture.jobs import tensor
        from commprof.capture.jobs.transformer import Shape

        return partial(tensor.build, data=data, sequence=sequence, shape=Shape(**shape))

    return build


def _fsdp(replicas: int = 1, **shape: int) -> Callable[[], Callable[..., Any]]:
    def build() -> Callable[..., Any]:
        from commprof.capture.jobs import fsdp
        from commprof.capture.jobs.transformer import Shape

        return partial(fsdp.build, replicas=replicas, shape=Shape(**shape))

    return build


def _three(tensor: int, stages: int) -> Callable[[], Callable[..., Any]]:
    def build() -> Callable[..., Any]:
        from tests.capture.jobs import three_dimensions

        return partial(three_dimensions.build, tensor=tensor, stages=stages)

    return build


# Calls alone do not tell FSDP from ZeRO-3; its ranges would.
FSDP, HSDP, TP, SP = (frozenset({name}) for name in ("zero3", "hsdp", "tp", "sp"))
HYBRID = {"mesh_dp_replicate": "replicate", "mesh_dp_shard": "shard"}
INSIDE = {"mesh_tp": "tp", "mesh_dp": "dp"}
THREE = {"mesh_tp": "tp", "mesh_pp": "pp", "mesh_dp": "dp"}

SEQUENCES = {
    "fsdp-2": Sequence(2, 0, FSDP, {"default_pg": "dp"}, _fsdp()),
    "hsdp-2x2": Sequence(4, 2, HSDP, HYBRID, _fsdp(2)),
    "tp-2": Sequence(2, 1, TP, {"default_pg": "tp"}, _tensor()),
    "tp-sequence-2": Sequence(2, 1, SP, {"default_pg": "tp"}, _tensor(sequence=True)),
    "tp2-fsdp2": Sequence(4, 1, TP | FSDP, INSIDE, _tensor(2)),
    "fsdp-64": Sequence(64, 5, FSDP, {"default_pg": "dp"}, _fsdp(layers=2)),
    "hsdp8x16": Sequence(128, 37, HSDP, HYBRID, _fsdp(8, layers=2)),
    "tp8-fsdp64": Sequence(512, 137, TP | FSDP, INSIDE, _tensor(64, layers=2, heads=8)),
    "tp8-sequence-fsdp64": Sequence(512, 137, SP | FSDP, INSIDE, _tensor(64, True, layers=2, heads=8)),
    "tp8-pp4-dp32": Sequence(1024, 300, TP | {"pp", "ddp"}, THREE, _three(8, 4)),
    "tp4-pp2-dp8": Sequence(64, 21, TP | {"pp", "ddp"}, THREE, _three(4, 2)),
}


def load(name: str) -> dict[str, Any]:
    """The recorded sequence: ``rank, ranks, torch, groups, calls``."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def record(name: str) -> dict[str, Any]:
    """Play the rank for two steps and keep the calls of the second, the first of the steady state."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from commprof.capture.jobs.job import Job
    from tests.capture.jobs.recorder import Recorder

    wanted = SEQUENCES[name]
    dist.init_process_group("fake", store=FakeStore(), rank=wanted.rank, world_size=wanted.ranks)
    try:
        torch.manual_seed(0)
        job = Job(Path(), Path(), wanted.rank, wanted.ranks)
        training = wanted.build()(job, torch.device("cpu"))
        training.step()
        with Recorder() as recorder:
            training.step()
    finally:
        dist.destroy_process_group()
    groups = [{"name": g.name, "description": g.description, "ranks": g.ranks} for g in recorder.groups.values()]
    calls = [
        {key: value for key, value in vars(call).items() if key != "step" and value not in (None, ())}
        for call in recorder.calls
    ]
    facts = {"rank": wanted.rank, "ranks": wanted.ranks, "torch": torch.__version__.partition("+")[0]}
    return facts | {"groups": groups, "calls": calls}


def _lines(sequence: dict[str, Any]) -> str:
    """JSON with one line per group and call."""
    fields = [f'"{key}": {json.dumps(value)}' for key, value in sequence.items() if not isinstance(value, list)]
    for key in ("groups", "calls"):
        rows = ",\n  ".join(json.dumps(row) for row in sequence[key])
        fields.append(f'"{key}": [\n  {rows}\n ]')
    return "{\n " + ",\n ".join(fields) + "\n}\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or SEQUENCES:
        (FOLDER / f"{chosen}.json").write_text(_lines(record(chosen)))
