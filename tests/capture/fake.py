"""A profiler and a clock that do as they are told: the hook's logic without torch."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from commprof.capture.engine import RunFacts, Whereabouts
from commprof.manifest import ClockSample

EPOCH = 1_700_000_000_000_000_000


class FakeEngine:
    """Keeps the names of the calls in ``calls``; what ``fail`` names raises that error when it is called."""

    def __init__(self, where: Whereabouts | None = None, fail: dict[str, BaseException] | None = None) -> None:
        self.where = where or Whereabouts(rank=0, source="default", world_size=1)
        self.fail = fail or {}
        self.calls: list[str] = []
        self.now = 0
        self.waited: bool | None = None
        self.busy = False
        self.content = b'{"traceEvents": []}\n'
        self.on_rival: Callable[[], None] | None = None
        self.samples: dict[str, tuple[ClockSample, ...]] = {}
        self.closed = 0

    def unix_ns(self) -> int:
        return EPOCH + self.now

    def tick_ns(self) -> int:
        return self.now

    def whereabouts(self) -> Whereabouts:
        self._called("whereabouts")
        return self.where

    def facts(self, model: Any, start_ns: int, stop_ns: int) -> RunFacts:
        self._called("facts")
        return RunFacts(torch_version="0.0-fake")

    def clock_samples(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        if f"clocks {moment}" in self.fail:
            raise self.fail[f"clocks {moment}"]
        return self.samples.get(moment, ())

    def occupied(self) -> bool:
        return self.busy

    def prepare(self, on_rival: Callable[[], None]) -> None:
        self.on_rival = on_rival
        self._called("prepare")

    def start(self) -> None:
        self._called("start")

    def open_step(self, name: str) -> None:
        self._called(f"open {name}")

    def close_step(self) -> None:
        self._called("close")

    def stop(self, *, wait_for_device: bool) -> None:
        self.waited = wait_for_device
        self._called("stop")

    def export(self, path: Path) -> None:
        path.write_bytes(self.content)
        self._called("export")

    def close(self) -> None:
        self.closed += 1

    def opened(self) -> list[str]:
        """The step ranges in the trace, in order."""
        return [call.removeprefix("open ") for call in self.calls if call.startswith("open ")]

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fail:
            raise self.fail[name]


def files_of(folder: Path) -> list[str]:
    """Names of all files in the folder, hidden ones too; empty where there is no folder."""
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def manifest_of(folder: Path, rank: int = 0) -> dict[str, Any]:
    """The manifest as plain JSON, without the product's own reader."""
    loaded: dict[str, Any] = json.loads((folder / f"rank-{rank:05d}.manifest.json").read_text())
    return loaded


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the hook has warned of, in order."""
    return [r.getMessage() for r in caplog.records if r.name == "commprof" and r.levelno == logging.WARNING]
