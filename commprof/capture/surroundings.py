"""What the operating system says about this process: host, cores, environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PREFIXES = ("NCCL_", "TORCH_NCCL_", "TORCH_FR_", "RCCL_", "GLOO_")
_NAMES = (
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "OMP_NUM_THREADS",
    "TORCH_DISTRIBUTED_DEBUG",
)


def communication_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment variables that change communication or its timing; read, never set."""
    return {k: v for k, v in sorted(environ.items()) if k.startswith(_PREFIXES) or k in _NAMES}


def usable_cores() -> int | None:
    """Number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def whole_number(environ: Mapping[str, str], name: str) -> int | None:
    """The value of variable ``name``; ``None`` if it is not set or no whole number of at least 0."""
    text = environ.get(name, "").strip()
    return int(text) if text.isascii() and text.isdigit() else None
