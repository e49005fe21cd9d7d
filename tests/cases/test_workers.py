"""C026: a worker that dies ends the run with one line. Any number of them: ``test_many_files``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import commprof
from tests.builders.kineto import Trace

PATIENCE_S = 60


def write_ranks(folder: Path, world: int) -> Path:
    for rank in range(world):
        trace = Trace(rank=rank, world_size=world)
        trace.step(1, 0, 1000)
        trace.gemm(0, 500 + 10 * rank)
        trace.all_reduce(400, 900 + rank)
        trace.write(folder / f"rank{rank}.json.gz")
    return folder


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that run Python code of ours."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def test_c026_a_worker_that_dies_ends_the_run_with_one_line(tmp_path: Path) -> None:
    # Given workers that never get to their files: they sleep where Python starts.
    folder = write_ranks(tmp_path / "in", 3)
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys, time\nif '--multiprocessing-fork' in sys.orig_argv:\n    time.sleep({PATIENCE_S})\n"
    )
    command = [sys.executable, "-m", "commprof", "analyze", str(folder), "--jobs", "2", "--no-html"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + PATIENCE_S
    while not (workers := children_of(run.pid)) and time.monotonic() < give_up:
        time.sleep(0.05)

    # When a worker is killed from outside,
    os.kill(workers[0], signal.SIGKILL)
    _, errors = run.communicate(timeout=PATIENCE_S)

    # Then the run ends, says so in one line, and nothing hangs.
    assert run.returncode == 4
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1
    assert "worker process ended" in lines[0]


_STOPS_WHILE_READING = """
import os, sys, threading, time

def stop(frame, event, arg):
    # The first call that has given it bytes of its file has just returned.
    if event == "c_return" and getattr(arg, "__name__", "") in ("read", "readinto", "read1"):
        if frame.f_code.co_filename.startswith({package!r}):
            with open({mark!r} + ".new", "w") as mark:
                mark.write(str(os.getpid()))
            os.rename({mark!r} + ".new", {mark!r})
            time.sleep({patience})

def watch(event, arguments):
    if event == "open" and str(arguments[0]).endswith("rank1.json.gz") and not threading.current_thread().daemon:
        sys.setprofile(stop)

if "--multiprocessing-fork" in sys.orig_argv:
    sys.addaudithook(watch)
"""


def test_c026_a_worker_that_dies_while_it_reads_ends_the_run_with_one_line(tmp_path: Path) -> None:
    # Given a worker that stops as soon as it has read the first bytes of one rank, and says so.
    folder, mark = write_ranks(tmp_path / "in", 3), tmp_path / "reading"
    package = str(Path(commprof.__file__).parent)
    (tmp_path / "sitecustomize.py").write_text(
        _STOPS_WHILE_READING.format(package=package, mark=str(mark), patience=PATIENCE_S)
    )
    command = [sys.executable, "-m", "commprof", "analyze", str(folder), "--jobs", "2", "--no-html"]
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    run = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    give_up = time.monotonic() + PATIENCE_S
    while not mark.exists() and time.monotonic() < give_up and run.poll() is None:
        time.sleep(0.05)
    worker = int(mark.read_text())
    assert worker in children_of(run.pid)

    # When it is killed there,
    os.kill(worker, signal.SIGKILL)
    _, errors = run.communicate(timeout=PATIENCE_S)

    # Then the run ends without the other ranks, and says so in one line.
    assert run.returncode == 4
    lines = [line for line in errors.splitlines() if line.strip()]
    assert len(lines) == 1
    assert "worker process ended" in lines[0]
