"""Which steps of the loop are recorded, and how long every step took."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from commprof.errors import UsageError
from commprof.manifest import StepTimes

DEFAULT_MAX_STEPS = 20
_MOST_STEPS_KEPT = 65_536  # two int64 per step: at most 1 MB in the training process


@dataclass(frozen=True)
class Window:
    """Steps ``first`` to ``last`` (both recorded) of a loop whose first step is 0.

    The profiler is made ready at the start of step ``ready``; the ``warmup`` steps from there are not
    recorded.
    """

    skip: int
    warmup: int
    steps: int

    def __post_init__(self) -> None:
        for name, least in (("skip", 0), ("warmup", 0), ("steps", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"Capture: {name}={value!r} is not a whole number of at least {least}")

    @property
    def ready(self) -> int:
        return self.skip

    @property
    def first(self) -> int:
        return self.skip + self.warmup

    @property
    def last(self) -> int:
        return self.first + self.steps - 1

    @property
    def needed(self) -> int:
        """Steps that the loop must have for the whole window to be recorded."""
        return self.last + 1

    def __str__(self) -> str:
        return f"skip={self.skip}, warmup={self.warmup}, steps={self.steps}"


class StepLog:
    """Start and length of every step, 16 bytes each; steps beyond the first 65,536 are not kept.

    ``unix_ns`` gives the starts, ``tick_ns`` (monotonic) the lengths: a clock that is set back must not
    give a negative step. The first step is number ``first``.
    """

    def __init__(self, unix_ns: Callable[[], int], tick_ns: Callable[[], int], first: int = 0) -> None:
        self._first = first
        self._unix_ns = unix_ns
        self._tick_ns = tick_ns
        self._starts = array("q")
        self._durations = array("q")
        self._open: tuple[int, int] | None = None

    def begin(self) -> None:
        self._open = (self._unix_ns(), self._tick_ns())

    def end(self) -> int | None:
        """The length of the step that ends here; ``None`` where none was open."""
        if self._open is None:
            return None
        start, tick = self._open
        self._open = None
        duration = self._tick_ns() - tick
        if len(self._starts) < _MOST_STEPS_KEPT:
            self._starts.append(start)
            self._durations.append(duration)
        return duration

    def times(self) -> StepTimes:
        return StepTimes(first=self._first, start_ns=tuple(self._starts), duration_ns=tuple(self._durations))
