"""These tests need a GPU: they skip without one, and fail where COMMPROF_REQUIRE_GPU=1 says that there must be one."""

from __future__ import annotations

import importlib.util
import os

import pytest


def _missing() -> str | None:
    """Why the tests cannot run here; ``None`` if they can."""
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch
    import torch.distributed as dist

    if not torch.cuda.is_available():
        return "no GPU"
    return None if dist.is_nccl_available() else "this build of torch has no NCCL"


@pytest.fixture(scope="session", autouse=True)
def _gpu() -> None:
    missing = _missing()
    if missing is None:
        return
    if os.environ.get("COMMPROF_REQUIRE_GPU") == "1":
        pytest.fail(f"COMMPROF_REQUIRE_GPU=1, but {missing}")
    pytest.skip(missing)
