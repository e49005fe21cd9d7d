"""Processes that help to read a large file; begun before numbers and analyses are imported, they are there in time."""

from __future__ import annotations

import os
import stat
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType

PAYS_PACKED_BYTES = 6 << 20
PAYS_PLAIN_BYTES = 64 << 20
"""Below these sizes a file is read before another process has started."""

_PACKED = (b"\x1f\x8b", b"\x28\xb5", b"PK")
_begun: list[ProcessPoolExecutor] = []


class _Process(SpawnProcess):
    """A process that does not run the user's script again: one without ``if __name__ == "__main__"`` would not end."""

    def start(self) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process = _Process


def open_pool(workers: int) -> ProcessPoolExecutor:
    """A pool of processes that begin empty; what is sent to them has to be importable, so nothing of a script."""
    return ProcessPoolExecutor(workers, mp_context=_Context())


def workers_for(size: int, packed: bool) -> int:
    """How many other processes to read a file of that size with."""
    pays = PAYS_PACKED_BYTES if packed else PAYS_PLAIN_BYTES
    return min((os.cpu_count() or 1) - 1, 3) if size >= pays else 0


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
        pool = open_pool(workers)
        summon(pool, workers)
        _begun.append(pool)


def take_begun() -> ProcessPoolExecutor | None:
    """The processes that were begun early, once."""
    return _begun.pop() if _begun else None


def summon(pool: ProcessPoolExecutor, workers: int) -> None:
    """Let the processes of a pool start before there is work for them."""
    for _ in range(workers):
        pool.submit(_arrive)


def _arrive() -> None:
    """What a process is given first: to import what it works with."""
    import commprof.trace.ahead  # noqa: F401
