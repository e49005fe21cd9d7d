"""SIGTERM: the command cleans up as at Ctrl-C, and says so by its exit code."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from commprof.cli.app import main
from commprof.cli.ending import Terminated, terminable

RANK = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1], str(os.getpid())).touch(); time.sleep(600)"
DEMO = """
import importlib.util, sys
importlib.util.find_spec = lambda name: object()
from commprof.capture.jobs.launch import launch
from commprof.cli import app
sys.modules["commprof.cli.demo"]._train = lambda folder, job, ranks: launch(["-c", sys.argv[2], sys.argv[1]], ranks)
sys.exit(app.main(["demo", "--out", sys.argv[1] + "/capture"]))
"""


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_demo_that_is_ended_takes_its_processes_and_its_scratch_along(
    how: signal.Signals, code: int, tmp_path: Path
) -> None:
    # Given two ranks at work,
    pids, scratch = tmp_path / "pids", tmp_path / "scratch"
    pids.mkdir()
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [sys.executable, "-c", DEMO, str(pids), RANK]
    leader = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    until = time.monotonic() + 120
    while len(list(pids.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.05)

    # When the command is asked to end,
    leader.send_signal(how)
    _, errors = leader.communicate(timeout=120)

    # Then it has waited for the ranks to be gone, and left nothing.
    assert (leader.returncode, errors) == (code, "")
    ranks = [int(path.name) for path in pids.iterdir()]
    assert len(ranks) == 2
    for rank in ranks:
        with pytest.raises(ProcessLookupError):
            os.kill(rank, 0)
    assert list(scratch.iterdir()) == []


def test_the_handler_is_gone_with_the_command() -> None:
    main(["--version"])

    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_handler_of_the_caller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        with terminable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    assert seen == [signal.SIGTERM]


def test_the_second_signal_ends_the_process_as_ever() -> None:
    within: list[object] = []

    with contextlib.suppress(Terminated), terminable():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            within.append(signal.getsignal(signal.SIGTERM))

    assert within == [signal.SIG_DFL]


def test_a_command_in_another_thread_sets_no_handler() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(["--version"])))

    thread.start()
    thread.join()

    assert codes == [0]
