"""NVTX ranges in the trace while recording; outside and afterwards nothing is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commprof.capture import Capture
from tests.capture.real import names_in, trace_of

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


@pytest.fixture
def device_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What reaches the device's own functions: there are none on a CPU build."""
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda msg: calls.append(f"push {msg}") or len(calls))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop") or 7)
    originals = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    yield calls
    assert (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) == originals


def loop(folder: Path, **options: bool) -> None:
    with Capture(folder, skip=0, warmup=1, steps=2, **options) as capture:
        for step in range(4):
            torch.cuda.nvtx.range_push(f"micro-batch {step}")
            with torch.cuda.nvtx.range("layer {}", step):
                torch.ones(3).add(1)
            assert torch.cuda.nvtx.range_pop() == 7
            capture.step()


def test_ranges_nest_in_the_trace_while_recording(folder: Path, device_calls: list[str]) -> None:
    loop(folder)

    marks = {e["name"]: e for e in trace_of(folder)["traceEvents"] if str(e.get("name", "")).startswith(("mic", "lay"))}
    assert sorted(marks) == ["layer 1", "layer 2", "micro-batch 1", "micro-batch 2"]
    outer, inner = marks["micro-batch 1"], marks["layer 1"]
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]
    # The device sees what it would have seen without the hook.
    assert device_calls[:4] == ["push micro-batch 0", "push layer 0", "pop", "pop"]
    assert len(device_calls) == 16


def test_the_option_leaves_them_out(folder: Path, device_calls: list[str]) -> None:
    loop(folder, nvtx=False)

    assert not [name for name in names_in(trace_of(folder)) if name.startswith(("mic", "lay"))]


def test_a_range_across_the_border_of_the_window_does_no_harm(folder: Path, device_calls: list[str]) -> None:
    torch.cuda.nvtx.range_push("before")
    with Capture(folder, skip=0, warmup=0, steps=1) as capture:
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("across")
        capture.step()
    torch.cuda.nvtx.range_pop()

    assert names_in(trace_of(folder)).count("across") == 1
    assert device_calls == ["push before", "pop", "push across", "pop"]


def test_what_nvtx_raises_comes_out_unchanged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", refuse)
    with Capture(folder, skip=0, warmup=0, steps=1) as capture:
        with pytest.raises(RuntimeError, match="not installed"):
            torch.cuda.nvtx.range_push("layer")
        capture.step()

    assert "layer" not in names_in(trace_of(folder))
