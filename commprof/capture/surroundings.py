"""What the operating system says about this process: host, cores, environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "RCCL_", "GLOO_")
_NAMES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_DISTRIBUTED_DEBUG",
)
# torchrun, Slurm, Open MPI, Intel MPI, MPICH
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK")


def communication_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables that change communication or its timing; read, never set."""
    return {k: v for k, v in sorted(environ.items()) if k.startswith(_PREFIXES) or k in _NAMES}


def usable_cores() -> int | None:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def cpu_affinity() -> str | None:
    """The cores that this process may run on, as ``0-7,16``; ``None`` where the system does not say."""
    return in_ranges(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def in_ranges(numbers: Iterable[int]) -> str:
    """Whole numbers with runs joined: ``0-7,16``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def boot_id() -> str | None:
    """Names this boot of this kernel: equal for all containers and namespaces that share its clock."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() or None
    return None


def local_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """The number of this process among those of its host, as the launcher says it."""
    found = (whole_number(environ, name) for name in _LOCAL_RANKS)
    return next((number for number in found if number is not None), None)


def whole_number(environ: Mapping[str, str], name: str) -> int | None:
    """The value of variable ``name``; ``None`` if it is not set or no whole number of at least 0."""
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
