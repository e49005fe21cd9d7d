"""The hook in training frameworks, each with the real package on one CPU process; skipped where it is not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from commprof.capture.integrations.method_steps import after_each
from commprof.manifest import Manifest, read_manifests
from tests.capture.real import ROOT, names_in, trace_of

SMALL = {"skip": 1, "warmup": 1, "steps": 2}
ELEMENTS = 8 * 8 + 8


def needs(*packages: str) -> Any:
    missing = [name for name in ("torch", *packages) if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(name: str, folder: Path) -> Manifest:
    """The manifest of ``tests/capture/scripts/NAME.py``: 12 batches, two of them to each optimizer step."""
    environment = {k: v for k, v in os.environ.items() if k not in {"RANK", "LOCAL_RANK", "WORLD_SIZE"}}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    subprocess.run(
        [sys.executable, "-m", f"tests.capture.scripts.{name}", str(folder), json.dumps(SMALL)],
        cwd=ROOT,
        env=environment,
        check=True,
        timeout=200,
        capture_output=True,
    )
    (manifest,) = read_manifests(folder)
    return manifest


def check(manifest: Manifest, folder: Path) -> None:
    """Six optimizer steps, of which the third and the fourth are recorded with both of their batches."""
    assert manifest.recorded_steps == ("ProfilerStep#2", "ProfilerStep#3")
    assert not manifest.partial
    assert len(manifest.steps.duration_ns) == 6
    assert manifest.parameters is not None
    assert manifest.parameters.count == ELEMENTS
    names = names_in(trace_of(folder))
    assert names.count("aten::addmm") == 4  # the forward pass of each batch
    assert len([name for name in names if name.startswith("Optimizer.step#")]) >= 2


@needs("transformers", "accelerate")
@pytest.mark.torch
def test_hugging_face_trainer(folder: Path) -> None:
    check(run("with_transformers", folder), folder)


@needs("lightning")
@pytest.mark.torch
def test_lightning_trainer(folder: Path) -> None:
    check(run("with_lightning", folder), folder)


@needs("accelerate")
@pytest.mark.torch
def test_accelerate(folder: Path) -> None:
    check(run("with_accelerate", folder), folder)


@needs("deepspeed")
@pytest.mark.torch
def test_deepspeed_engine(folder: Path) -> None:
    check(run("with_deepspeed", folder), folder)


class Loop:
    """Accumulates two calls to each step."""

    def __init__(self) -> None:
        self.calls = 0

    def boundary(self) -> bool:
        return self.calls % 2 == 1

    def step(self, by: int = 1) -> int:
        self.calls += by
        return self.calls


def test_steps_by_a_method_and_its_boundary() -> None:
    loop, seen = Loop(), []

    with after_each(loop, "step", loop.boundary, lambda: seen.append(loop.calls)):
        results = [loop.step(), loop.step(), loop.step(by=1), loop.step()]
    loop.step()

    assert results == [1, 2, 3, 4]
    assert seen == [2, 4]
    assert "step" not in vars(loop)


def test_a_method_of_the_object_itself_is_put_back() -> None:
    loop, own = Loop(), lambda: 7
    loop.step = own  # type: ignore[method-assign, assignment]

    with after_each(loop, "step", lambda: True, lambda: None):
        assert loop.step() == 7

    assert loop.step is own


def test_what_the_method_raises_is_no_step() -> None:
    def fail() -> None:
        raise ValueError("nan")

    loop, seen = Loop(), []
    loop.step = fail  # type: ignore[method-assign, assignment]

    with (
        after_each(loop, "step", lambda: True, lambda: seen.append(1)),
        pytest.raises(ValueError, match="nan"),
    ):
        loop.step()

    assert seen == []
