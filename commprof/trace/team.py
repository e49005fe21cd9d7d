"""Processes that read the same large file beside this one, each on its own; who decodes what is claimed by number.

No text goes from process to process: unpacking it again costs less than handing it over, and a process can begin
before the one that leads has imported what it needs.
"""

from __future__ import annotations

import gc
import os
import queue
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext

from commprof.errors import WorkerDied
from commprof.trace.heap import hold
from commprof.trace.leash import follow, signals_held
from commprof.trace.segments import Result, decoded_segments

_NUMBER_BYTES = 4
_NUMBERS_AT_ONCE = 128
_MOST_NUMBERS = 128
"""The numbers of segments wait in a pipe, in pieces of the 512 bytes that POSIX writes whole or not at all."""

_UNSENT = 16


class Team:
    """The processes and what they have found; with ``claim`` the one that leads takes part."""

    def __init__(self, path: str, workers: int, context: BaseContext) -> None:
        self.path = path
        self._claims, giver = context.Pipe(duplex=False)
        self.numbers = _put_numbers(giver)
        giver.close()
        self._readers: list[Connection] = []
        self._processes = []
        inherits = context.get_start_method() == "fork"
        for _ in range(workers):
            reader, writer = context.Pipe(duplex=False)
            self._readers.append(reader)
            foreign = tuple(self._readers) if inherits else ()
            process = context.Process(  # type: ignore[attr-defined]
                target=_help, args=(path, self._claims, writer, foreign), daemon=True
            )
            with signals_held():
                process.start()
            self._processes.append(process)
            writer.close()

    def claim(self) -> int | None:
        """The number of the next segment that nobody has; ``None`` if there are no numbers left."""
        return _claim(self._claims)

    def results(self, *, patient: bool) -> list[Result]:
        """What has arrived; if ``patient``, at least one result, or none if nobody will send any more.

        Raises :class:`~commprof.errors.WorkerDied`.
        """
        found: list[Result] = []
        while self._readers:
            ready = wait(self._readers, None if patient and not found else 0)
            if not ready:
                break
            for reader in ready:
                assert isinstance(reader, Connection)
                try:
                    result = reader.recv()
                except (EOFError, OSError):
                    raise WorkerDied(
                        "a worker process ended before its part was read", hint="out of memory? try --jobs 1"
                    ) from None
                if result is None:
                    self._readers.remove(reader)
                    reader.close()
                else:
                    found.append(result)
        return found

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for connection in (self._claims, *self._readers):
            connection.close()
        self._processes, self._readers = [], []


def _put_numbers(giver: Connection) -> int:
    """Write the numbers of segments into a pipe, as many as it holds; returns how many."""
    os.set_blocking(giver.fileno(), False)
    for first in range(0, _MOST_NUMBERS * _NUMBERS_AT_ONCE, _NUMBERS_AT_ONCE):
        numbers = range(first, first + _NUMBERS_AT_ONCE)
        try:
            os.write(giver.fileno(), b"".join(number.to_bytes(_NUMBER_BYTES, "little") for number in numbers))
        except BlockingIOError:
            return first
    return _MOST_NUMBERS * _NUMBERS_AT_ONCE


def _claim(claims: Connection) -> int | None:
    number = os.read(claims.fileno(), _NUMBER_BYTES)
    return int.from_bytes(number, "little") if number else None


def _help(path: str, claims: Connection, writer: Connection, foreign: Sequence[Connection]) -> None:
    """What such a process does. ``foreign`` are ends of pipes that it inherited and others read."""
    follow()
    for connection in foreign:
        connection.close()
    gc.disable()
    hold()
    outgoing: queue.Queue[Result | None] = queue.Queue(_UNSENT)
    sender = threading.Thread(target=_send, args=(outgoing, writer), daemon=True)
    sender.start()
    for result in decoded_segments(path, lambda: _claim(claims)):
        outgoing.put(result)
    outgoing.put(None)
    sender.join()


def _send(outgoing: queue.Queue[Result | None], writer: Connection) -> None:
    """Decoding does not wait for the process that leads to take what was found."""
    result: Result | None
    while True:
        result = outgoing.get()
        try:
            writer.send(result)
        except OSError:  # it is gone
            os._exit(1)
        if result is None:
            return
