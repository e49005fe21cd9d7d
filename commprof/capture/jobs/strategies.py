"""Which job shows which strategy, and on how many ranks; imports no torch."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from commprof.errors import UsageError

_PACKAGE = "commprof.capture.jobs"
_MOST = 16


@dataclass(frozen=True)
class Strategy:
    """One way to train in parallel.

    ``command`` is the module and the options of its job, ``ranks`` are the numbers of processes it can use,
    ``usual`` the one where nobody says.
    """

    title: str
    command: tuple[str, ...]
    ranks: tuple[int, ...] = tuple(range(2, _MOST + 1))
    usual: int = 2

    def check(self, name: str, ranks: int) -> None:
        """Raise ``UsageError`` for a number of ranks that this strategy cannot use."""
        if ranks not in self.ranks:
            numbers = ", ".join(map(str, self.ranks))
            raise UsageError(f"--ranks {ranks}: {name} runs on {numbers} processes")


def _job(module: str, *options: str) -> tuple[str, ...]:
    return ("-m", f"{_PACKAGE}.{module}", *options)


def _zero(stage: int, fsdp1: str) -> Strategy:
    """DeepSpeed where it is installed, else FSDP1, and the title says which."""
    engine = "deepspeed" if importlib.util.find_spec("deepspeed") is not None else "fsdp1"
    by = "DeepSpeed" if engine == "deepspeed" else f"FSDP1 {fsdp1}, DeepSpeed is not installed"
    return Strategy(f"ZeRO-{stage} ({by})", _job("zero", "--stage", str(stage), "--engine", engine))


def strategies() -> dict[str, Strategy]:
    """Every strategy by name, in the order of help texts.

    The model has four layers of four heads each, which limits stages and tensor-parallel ranks.
    """
    even = tuple(range(4, _MOST + 1, 2))
    return {
        "ddp": Strategy("DistributedDataParallel", _job("ddp")),
        "zero1": Strategy("ZeRO-1 (ZeroRedundancyOptimizer)", _job("zero1")),
        "zero2": _zero(2, "SHARD_GRAD_OP"),
        "zero3": _zero(3, "FULL_SHARD"),
        "fsdp": Strategy("FSDP2 (fully_shard)", _job("fsdp")),
        "hsdp": Strategy("hybrid FSDP2, 2 replicas", _job("fsdp", "--replicas", "2"), even, 4),
        "tp": Strategy("tensor parallelism", _job("tensor"), (2, 4)),
        "tp-sequence": Strategy("tensor and sequence parallelism", _job("tensor", "--sequence"), (2, 4)),
        "tp-fsdp": Strategy("tensor parallelism inside FSDP2", _job("tensor", "--data", "2"), (4, 8), 4),
        "pp": Strategy("pipeline parallelism", _job("pipeline"), (2, 3, 4)),
        "pp-gpipe": Strategy("pipeline parallelism, GPipe", _job("pipeline", "--schedule", "gpipe"), (2, 3, 4)),
        "pp-dp": Strategy("pipelines in 2 replicas under DDP", _job("pipeline", "--replicas", "2"), (4, 6, 8), 4),
        "ep": Strategy("expert parallelism", _job("experts")),
    }
