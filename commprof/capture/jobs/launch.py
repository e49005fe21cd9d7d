"""Starts one process per rank on this machine, follows their progress, and leaves none behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from commprof.errors import WorkerDied

_MARK = "commprof-progress"
_FOLLOWS = "COMMPROF_FOLLOWS"
"""Set where standard input comes from :func:`launch`, which writes nothing to it: its end is the launcher's end."""

_RANK_PREFIX = re.compile(r"^\[rank\d+\]:\s*")
_NO_REASON = ("USDT:", "[W")  # the profiler's own marks, native warnings

Progress = Callable[[int, int], None]


def announce(done: int, total: int) -> None:
    """Tell the launcher how far the loop is; printed by rank 0."""
    print(_MARK, done, total, flush=True)


def follow_launcher() -> None:
    """End this process where the launcher is gone: its peers are as good as gone, and nobody reads what it does."""
    if os.environ.pop(_FOLLOWS, None):
        threading.Thread(target=_end_after_launcher, name="commprof-follow", daemon=True).start()


def _end_after_launcher() -> None:
    # Not through sys.stdin: Python could not end while a thread is inside its buffer.
    while os.read(0, 1):
        pass
    os._exit(1)


def launch(command: Sequence[str], ranks: int, *, progress: Progress | None = None, timeout_s: float = 300.0) -> None:
    """Run ``python COMMAND...`` once per rank, with the variables of a launcher, and wait for all.

    ``{rendezvous}`` in an argument becomes the path of a fresh file for the processes to meet in.
    ``progress(done, total)`` follows rank 0. Raises ``WorkerDied`` when a process fails or the time is
    up; the others are ended then, as they are when this process is interrupted.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commprof-job-")))
        arguments = [part.replace("{rendezvous}", str(folder / "rendezvous")) for part in command]
        logs = [stack.enter_context((folder / f"rank-{rank}.log").open("w+b")) for rank in range(ranks)]
        workers: list[subprocess.Popen[str]] = []
        stack.callback(_end_all, workers)
        workers.extend(_start(arguments, rank, ranks, logs[rank]) for rank in range(ranks))
        reader = threading.Thread(target=_follow, args=(workers[0].stdout, progress), daemon=True)
        reader.start()
        _wait(workers, logs, time.monotonic() + timeout_s)
        reader.join()


def worker_environment(rank: int, ranks: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of one rank.

    As torchrun sets it, one thread per process, gloo on the loopback interface.
    """
    environment = dict(environ)
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "OMP_NUM_THREADS": 1}
    environment.update({name: str(value) for name, value in told.items()})
    if sys.platform.startswith("linux"):
        # All ranks are on this machine; without it gloo needs a host name that resolves.
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return environment


def _start(arguments: Sequence[str], rank: int, ranks: int, log: IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**worker_environment(rank, ranks), _FOLLOWS: "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        stderr=log,
        text=True,
    )


def _follow(lines: IO[str] | None, progress: Progress | None) -> None:
    for line in lines or ():
        words = line.split()
        if progress is not None and len(words) == 3 and words[0] == _MARK:
            progress(int(words[1]), int(words[2]))


def _wait(workers: Sequence[subprocess.Popen[str]], logs: Sequence[IO[bytes]], until: float) -> None:
    while True:
        codes = [worker.poll() for worker in workers]
        for rank, code in enumerate(codes):
            if code:
                raise WorkerDied(f"rank {rank} of {len(workers)} failed: {_last_words(logs[rank], code)}")
        if None not in codes:
            return
        if time.monotonic() > until:
            running = [rank for rank, code in enumerate(codes) if code is None]
            raise WorkerDied(f"rank {running[0]} of {len(workers)} does not end: the time limit is over")
        time.sleep(0.05)


def _last_words(log: IO[bytes], code: int) -> str:
    """The last line of its standard error that says something, and how it ended."""
    log.seek(0)
    lines = [_RANK_PREFIX.sub("", line.strip()) for line in log.read().decode(errors="replace").splitlines()]
    telling = [line for line in lines if line and not line.startswith(_NO_REASON)]
    ending = f"exit status {code}" if code > 0 else f"signal {-code}"
    return f"{telling[-1]} ({ending})" if telling else ending


def _end_all(workers: Sequence[subprocess.Popen[str]]) -> None:
    for worker in workers:
        if worker.poll() is None:
            worker.kill()
    for worker in workers:
        worker.wait()
        for stream in (worker.stdin, worker.stdout):
            if stream is not None:
                stream.close()
