"""Processes that help: none outlives the one that leads, and Ctrl-C is for that one alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

GENEROUS_S = 120

POOL = """
import time
from commprof.trace.workers import open_pool
with open_pool(2) as pool:
    list(pool.map(abs, range(4)))
    print("ready", flush=True)
    time.sleep(600)
"""
TEAM = """
import multiprocessing, sys, time
from commprof.trace.team import Team
from commprof.trace.workers import _Context
team = Team(sys.argv[2], 2, _Context() if sys.argv[1] == "spawn" else multiprocessing.get_context("fork"))
print("ready", flush=True)
time.sleep(600)
"""


def begin(*arguments: str) -> subprocess.Popen[str]:
    """A process that leads others, all of which hold its standard output."""
    return subprocess.Popen(
        [sys.executable, "-c", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["pool", "spawn", "fork"])
def test_nobody_is_left_where_the_one_that_leads_dies_by_a_signal(
    kind: str, how: signal.Signals, tmp_path: Path
) -> None:
    # Given processes that wait: a pool without work, a team before a file that nobody writes,
    file = tmp_path / "trace.json"
    os.mkfifo(file)
    leader = begin(POOL) if kind == "pool" else begin(TEAM, kind, str(file))
    assert leader.stdout is not None
    assert leader.stdout.readline() == "ready\n"

    # When the one that leads is killed,
    leader.send_signal(how)

    # Then all are gone: the pipe that every one of them holds has come to its end.
    try:
        rest, _ = leader.communicate(timeout=GENEROUS_S)
    except subprocess.TimeoutExpired:
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))  # lets a team go on, and end
        raise
    assert rest == ""
    assert leader.returncode == -how


def test_control_c_while_processes_begin_is_silent(tmp_path: Path) -> None:
    # Given the command at a moment when its workers have started and have not run a line of ours,
    (tmp_path / "sitecustomize.py").write_text(
        "import os, pathlib, sys, time\n"
        "if '--multiprocessing-fork' in sys.orig_argv:\n"
        f"    (pathlib.Path({str(tmp_path)!r}) / f'begun-{{os.getpid()}}').touch()\n"
        f"    time.sleep({GENEROUS_S})\n"
    )
    fixture = Path(__file__).parents[2] / "fixtures" / "ddp-two-ranks"
    command = [sys.executable, "-m", "commprof", "analyze", str(fixture), "--no-html", "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    leader = subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    until = time.monotonic() + GENEROUS_S
    while len(list(tmp_path.glob("begun-*"))) < 2 and time.monotonic() < until:
        time.sleep(0.05)

    # When a terminal sends Ctrl-C to all of them,
    os.killpg(leader.pid, signal.SIGINT)

    # Then the exit code says so, nobody prints a traceback, and nobody is left to hold the streams.
    assert leader.communicate(timeout=GENEROUS_S) == ("", "")
    assert leader.returncode == 130
