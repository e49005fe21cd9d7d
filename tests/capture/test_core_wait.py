"""What a thread waits for its core, against a thread that is not ready to run at all."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from multiprocessing.synchronize import Event

import pytest

from commprof.capture.core_wait import CoreWatch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux counts it")


def keep_busy(core: int, ready: Event) -> None:
    os.sched_setaffinity(0, {core})
    ready.set()
    while True:
        pass


def watched(core: int, seconds: float, asleep: bool, busy: bool) -> float:
    """For which share of its time a thread on this core had none."""
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    other = spawn.Process(target=keep_busy, args=(core, ready), daemon=True)
    if busy:
        other.start()
        assert ready.wait(60)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
        watch = CoreWatch(time.monotonic_ns)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if asleep:
                time.sleep(seconds / 10)
        seen = watch.seen()
    finally:
        os.sched_setaffinity(0, before)
        if busy:
            other.kill()
            other.join()
    if seen is None:
        pytest.skip("this kernel does not count it")
    assert seen.of_ns >= seconds * 1e9
    return seen.ns / seen.of_ns


def test_a_busy_core_is_told_from_a_pause() -> None:
    core = min(os.sched_getaffinity(0))

    shared = watched(core, 0.5, asleep=False, busy=True)
    paused = watched(core, 0.5, asleep=True, busy=False)

    # Two programs of one priority have half of the core each, whatever else runs; who sleeps needs none.
    assert shared >= 0.3
    assert paused <= 0.2


def test_a_system_that_does_not_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = CoreWatch(time.monotonic_ns)
    monkeypatch.setattr("pathlib.Path.read_text", lambda *_: "0 0 0\n")

    assert watch.seen() is None
