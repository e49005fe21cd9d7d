"""How long the training thread was ready to run and had no core: what the kernel counts as its delay.

Linux counts for each thread the nanoseconds that it ran and those that it waited in the queue of a core
(``/proc/.../schedstat``, kernel documentation "Scheduler Statistics"). A pause of the program itself (sleep, input,
garbage collection) is none of the latter; a core that another program uses too is.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from commprof.manifest import CoreWait


class CoreWatch:
    """Watches the calling thread from now on; ``tick_ns`` is a monotonic clock."""

    def __init__(self, tick_ns: Callable[[], int]) -> None:
        self._tick_ns = tick_ns
        self._source = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        self._since, self._began = self._waited(), tick_ns()

    def seen(self) -> CoreWait | None:
        """What it waited since the start; ``None`` where the system does not count that."""
        now = self._waited()
        if self._since is None or now is None:
            return None
        return CoreWait(ns=max(now - self._since, 0), of_ns=max(self._tick_ns() - self._began, 0))

    def _waited(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            ran, waited, _ = map(int, self._source.read_text().split())
            # Kernels without these statistics write zeros.
            return waited if ran > 0 else None
        return None
