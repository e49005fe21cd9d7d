"""Processes of ours that do not outlive the one that leads, and leave Ctrl-C to it.

``multiprocessing`` ends daemons where a process ends by itself. One that dies by a signal ends nobody, and those that
wait for work would wait for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait

_MASKS = hasattr(signal, "pthread_sigmask")
_HELD = {signal.SIGINT, signal.SIGTERM}


@contextmanager
def signals_held() -> Iterator[None]:
    """Start processes in here: they begin with both signals held back, until :func:`follow` has said what they mean.

    Who leads gets theirs at the end.
    """
    if not _MASKS:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow() -> None:
    """What such a process does first; from then on it ends when the one that leads is gone, however that went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if _MASKS:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
    leader = multiprocessing.parent_process()
    if leader is not None:
        threading.Thread(target=_end_after, args=(leader.sentinel,), name="commprof-leash", daemon=True).start()


def _end_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
