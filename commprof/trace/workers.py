"""Processes that help to read a large file; begun before numbers and analyses are imported, they are there in time."""

from __future__ import annotations

import multiprocessing
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType
from typing import TYPE_CHECKING

from commprof.trace.leash import follow, signals_held

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from commprof.trace.team import Team

PAYS_PACKED_BYTES = 6 << 20
PAYS_PLAIN_BYTES = 64 << 20
"""Below these sizes a file is read before another process has started."""

_PACKED = (b"\x1f\x8b", b"\x28\xb5", b"PK")
_begun: list[Team] = []


class _Process(SpawnProcess):
    """A process that does not run the user's script again: one without ``if __name__ == "__main__"`` would not end."""

    def start(self) -> None:
        if os.name == "posix":
            from multiprocessing import resource_tracker

            # What starts it lets signals through that are held back.
            resource_tracker.ensure_running()
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            with signals_held():
                super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


@contextmanager
def open_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that begin empty; what is sent to them has to be importable, so nothing of a script.

    An error or Ctrl-C inside ends them at once: nobody waits for what they are at.
    """
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(workers, mp_context=_Context(), initializer=follow) as pool:
        # All of them at the first task: who watches the pool may already wait when a later one is begun, and would
        # never see that one die.
        pool._safe_to_dynamically_spawn_children = False  # type: ignore[attr-defined]
        try:
            yield pool
        except BaseException:
            _end_all(pool)
            raise


def _end_all(pool: ProcessPoolExecutor) -> None:
    """Also one that was just being started when another one died: the pool would wait for it for ever."""
    for child in multiprocessing.active_children():
        if isinstance(child, _Process):
            child.kill()
    # Half a result of a killed process is in its pipe: as long as this end is open, the pool waits for the rest.
    with suppress(AttributeError, OSError):
        pool._result_queue._writer.close()  # type: ignore[attr-defined]


def workers_for(size: int, packed: bool) -> int:
    """How many other processes to read a file of that size with."""
    pays = PAYS_PACKED_BYTES if packed else PAYS_PLAIN_BYTES
    return min((os.cpu_count() or 1) - 1, 3) if size >= pays and os.name == "posix" else 0


def begin_early(paths: list[str], jobs: int | None) -> None:
    """Start the processes for one large local file; nothing happens for any other input."""
    if len(paths) != 1 or jobs == 1:
        return
    try:
        facts = os.stat(paths[0])
        if not stat.S_ISREG(facts.st_mode) or facts.st_size < PAYS_PACKED_BYTES:
            return
        with open(paths[0], "rb") as file:
            workers = workers_for(facts.st_size, file.read(2) in _PACKED)
    except OSError:  # whoever reads the input says what is wrong with it
        return
    if workers:
        _begun.append(_begin_as_copies(paths[0], workers))


def _begin_as_copies(path: str, workers: int) -> Team:
    """A team that begins with all that this process has imported, where a copy of it is safe."""
    fresh = "numpy" not in sys.modules and threading.active_count() == 1 and sys.platform == "linux"
    if fresh:
        # Threads of a numerical library would be lost in a copy, and nothing here multiplies large matrices.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from commprof.trace.team import Team

    return Team(path, workers, multiprocessing.get_context("fork") if fresh else _Context())


def team_for(path: str, workers: int) -> Team:
    """The team that reads this file: the one that was begun early, or a new one."""
    from commprof.trace.team import Team

    while _begun:
        team = _begun.pop()
        if os.path.realpath(team.path) == os.path.realpath(path):
            return team
        team.close()
    return Team(path, workers, _Context())
