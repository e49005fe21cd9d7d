"""Notices the step that takes much longer than its neighbours, at the price of a sorted list of 100 numbers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from commprof.errors import UsageError
from commprof.manifest import SlowStep

MOST_RECORDINGS = 3
MOST_KEPT = 100
_MEMORY = 100  # steps that the running median looks back on
_SETTLE = 2  # first steps: memory, caches and DDP's buckets settle in them
_ENOUGH = 5  # steps before a median is trusted


class SlowSteps:
    """Compares each step with the median of up to 100 before it; ``factor`` times that is slow."""

    def __init__(self, factor: float) -> None:
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 1 < factor < float("inf"):
            raise UsageError(f"Capture: slow_step={factor!r} is not a factor above 1")
        self._factor = factor
        self._order: deque[int] = deque()
        self._sorted: list[int] = []
        self._seen = 0

    def observe(self, step: int, duration_ns: int) -> SlowStep | None:
        """Take in the length of ``step``; the step itself if it was slow."""
        self._seen += 1
        if self._seen <= _SETTLE:
            return None
        median = self._sorted[len(self._sorted) // 2] if len(self._sorted) >= _ENOUGH else None
        insort(self._sorted, duration_ns)
        self._order.append(duration_ns)
        if len(self._order) > _MEMORY:
            del self._sorted[bisect_left(self._sorted, self._order.popleft())]
        if median is None or duration_ns < self._factor * median:
            return None
        return SlowStep(step=step, duration_ns=duration_ns, median_ns=median)
