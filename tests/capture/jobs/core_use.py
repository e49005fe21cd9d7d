"""How much of its core other processes take from a worker of these runs, and how it keeps them off; needs Linux."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

FIRST = "-15"
_IDLE, _IOWAIT = 3, 4


def go_first() -> bool:
    """Let this process and its threads go before others on its core, if we may: what must run between then waits.

    The process has to lead its session: then the kernel groups it alone (``sched_autogroup``).
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(FIRST)
        return True
    return False


class CoreUse:
    """The use of one core from its construction on, by everybody but this process and the ``companion``.

    What the core does not idle and these two do not run is foreign: other processes, interrupts, other machines of
    the same host (``steal``). Good to a hundredth of a second: the unit of ``/proc/stat``.
    """

    def __init__(self, core: int, companion: int | None = None) -> None:
        self.core, self.companion = core, companion
        self._begin = self._now()

    def foreign_share(self) -> float:
        """Foreign time since then as a share of the time that has passed, at least 0."""
        passed, idle, own = (now - then for now, then in zip(self._now(), self._begin, strict=True))
        return max(0.0, (passed - idle - own) / passed) if passed > 0 else 0.0

    def _now(self) -> tuple[float, float, float]:
        """Seconds: the clock, idle time of the core, processor time of this process and the companion."""
        return time.perf_counter(), self._idle(), time.process_time() + _ran(self.companion)

    def _idle(self) -> float:
        lines = Path("/proc/stat").read_text().splitlines()
        fields = next(line.split()[1:] for line in lines if line.startswith(f"cpu{self.core} "))
        return (int(fields[_IDLE]) + int(fields[_IOWAIT])) / os.sysconf("SC_CLK_TCK")


def _ran(process: int | None) -> float:
    """Seconds for which the main thread of a process has run."""
    return 0.0 if process is None else int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
