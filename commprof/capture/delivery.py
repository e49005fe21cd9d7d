"""From the profiler's local file to the capture folder: compress, move under the final name, never overwrite.

A full, read-only, slow or vanished folder must cost the training at most the time limit and one warning,
and no half-written file may ever stand under a final name.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from isal import igzip

from commprof.manifest import manifest_name, trace_name

_BLOCK = 4 << 20
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


class Delivery:
    """Runs the slow part of a capture beside the training, which waits at most ``limit_s`` seconds for it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._thread: threading.Thread | None = None

    def run(self, job: Callable[[], None]) -> bool:
        """Run ``job``; False if it, or one before it, is still running when the time is up.

        An exception of ``job`` is raised here if it comes in time, and lost otherwise.
        """
        if self._thread is not None:
            self._thread.join(self._limit_s)
            if self._thread.is_alive():
                return False
        failures: list[BaseException] = []

        def work() -> None:
            try:
                job()
            except BaseException as failure:
                failures.append(failure)

        thread = threading.Thread(target=work, name="commprof-delivery", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # No new thread can be started while the interpreter shuts down.
            job()
            return True
        self._thread = thread
        thread.join(self._limit_s)
        if failures:
            raise failures[0]
        return not thread.is_alive()


def deliver_trace(raw: Path, folder: Path, rank: int) -> int:
    """Compress the JSON file ``raw`` into ``folder`` as the trace of ``rank``; return the capture's number.

    The number is 1, or the first free one in a folder that holds captures of this rank already. Raises
    ``OSError`` as the file system gives it; then nothing is left under a final name, and ``raw`` is
    untouched.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f".{trace_name(rank)}.{uuid.uuid4().hex}.tmp"
    try:
        open_gzip: Any = igzip.open
        with raw.open("rb") as source, open_gzip(scratch, "wb") as target:
            shutil.copyfileobj(source, target, _BLOCK)
        for number in count(1):
            if taken(folder, rank, number):
                continue
            if _claim(scratch, folder / trace_name(rank, number)):
                return number
    finally:
        scratch.unlink(missing_ok=True)
    raise AssertionError("unreachable")


def taken(folder: Path, rank: int, number: int) -> bool:
    """Whether ``folder`` holds a file of capture ``number`` of ``rank``."""
    return (folder / trace_name(rank, number)).exists() or (folder / manifest_name(rank, number)).exists()


def free_number(folder: Path, rank: int) -> int:
    """The first number under which ``folder`` holds no capture of ``rank``."""
    return next(number for number in count(1) if not taken(folder, rank, number))


def is_whole(raw: Path) -> bool:
    """Whether the JSON file ends as the profiler ends it; a full disk cuts it without an error."""
    with raw.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        return file.read().rstrip().endswith(b"}")


def _claim(scratch: Path, final: Path) -> bool:
    """Give ``scratch`` the name ``final`` unless it is taken; a link fails where a rename overwrites."""
    try:
        os.link(scratch, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        os.replace(scratch, final)
    return True
