"""SIGTERM inside the window: what was recorded is written, then the process ends by the signal as it would have.

Launchers end the ranks of a failed job so, and the last seconds before are what one wants to see. A Python
handler alone would be worse than none: it runs only when the main thread gets back to Python, and a rank
that is stuck in a collective would no longer die. So the interpreter's wake-up descriptor tells a thread,
which writes the trace and ends the process when the main thread does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable
from types import FrameType

_GRACE_S = 1.0
_live: weakref.WeakSet[Termination] = weakref.WeakSet()


class Termination:
    """Calls ``finish`` once when the process is told to end; a handler of the program's own is left alone.

    ``limit_s`` bounds the work of the thread when the main thread is stuck.
    """

    def __init__(self, finish: Callable[[], None], limit_s: float) -> None:
        self._finish = finish
        self._limit_s = limit_s
        self._wake: socket.socket | None = None
        self._taken = threading.Lock()
        self._handled = threading.Event()
        self._over = threading.Event()
        self._closing = False
        self._pending = False

    def begin(self) -> None:
        """Listen, if this is the main thread and the program itself does not."""
        if threading.current_thread() is not threading.main_thread() or self._wake is not None:
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        before = signal.set_wakeup_fd(-1)
        if before != -1:
            signal.set_wakeup_fd(before)
            return
        ours, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._closing, self._pending = False, False
        self._handled.clear()
        self._over.clear()
        threading.Thread(target=self._watch, args=(ours,), name="commprof-term", daemon=True).start()
        self.listen(True)
        _live.add(self)

    def listen(self, wanted: bool) -> None:
        """Set or reset the handler and the wake-up descriptor, unless somebody else has set theirs meanwhile."""
        if threading.current_thread() is not threading.main_thread() or self._wake is None:
            return
        theirs, ours = signal.getsignal(signal.SIGTERM), self._on_signal
        if theirs == (signal.SIG_DFL if wanted else ours):
            signal.signal(signal.SIGTERM, ours if wanted else signal.SIG_DFL)
        other = signal.set_wakeup_fd(-1)
        mine = self._wake.fileno()
        if wanted and other == -1:
            signal.set_wakeup_fd(mine, warn_on_full_buffer=False)
        elif other not in (mine, -1):
            signal.set_wakeup_fd(other)

    def closing(self) -> None:
        """The recording ends by itself now: a signal has to wait until its file is written."""
        self._closing = True

    def end(self) -> None:
        """Stop listening; a signal that had to wait ends the process here."""
        if self._wake is None or threading.current_thread() is not threading.main_thread():
            return
        self._release()
        if self._pending:
            os.kill(os.getpid(), signal.SIGTERM)

    def _release(self) -> None:
        self.listen(False)
        _live.discard(self)
        wake, self._wake = self._wake, None
        if wake is not None:
            self._over.set()
            wake.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._handled.set()
        if self._closing:
            self._pending = True
        elif self._taken.acquire(blocking=False):
            self._work()
            self._release()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def _watch(self, ours: socket.socket) -> None:
        """Until the listening ends: the main thread has the first word, but not the last."""
        while signal.SIGTERM not in (numbers := ours.recv(64)):
            if not numbers:
                ours.close()
                return
        if self._handled.wait(_GRACE_S) or self._closing or not self._taken.acquire(blocking=False):
            stuck = not self._over.wait(self._limit_s + _GRACE_S)
        else:
            worker = threading.Thread(target=self._work, daemon=True)
            worker.start()
            worker.join(self._limit_s)
            stuck = True
        if stuck:
            _die()

    def _work(self) -> None:
        with contextlib.suppress(Exception):
            self._finish()


def _die() -> None:
    """End by SIGTERM from a thread that is not the main one, where Python cannot reset a handler."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    os.kill(os.getpid(), signal.SIGTERM)


def _before_fork() -> None:
    """A forked child (a worker of a data loader) is no rank: it must die as without us, from its first moment on."""
    for it in list(_live):
        it.listen(False)


def _after_fork() -> None:
    for it in list(_live):
        it.listen(True)


def _in_child() -> None:
    for it in list(_live):
        it.listen(False)
        _live.discard(it)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
