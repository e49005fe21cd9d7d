"""SIGTERM, with which a scheduler, ``timeout`` or ``kill`` ends a command: as Ctrl-C, it leaves nothing behind."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 143
"""As a shell gives the death by SIGTERM."""


class Terminated(BaseException):
    """Raised in the main thread where SIGTERM arrives; no error, so nothing that handles errors takes it for one."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turn the first SIGTERM into :class:`Terminated`; the second one ends the process as ever.

    Somebody else's handler stays, and only the main thread may set one.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise Terminated
