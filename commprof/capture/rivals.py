"""Notices other profilers: those at work, those warming up, and those that start inside our window.

There is one Kineto session per process. A second profiler takes it over without an error; to stop or save
the first one afterwards, or to start one whose warm-up was taken from it, crashes the process. So we stay
away where another one is at work or warms up, and from our own warm-up on, the two methods through which
every Python profiler of PyTorch starts are wrapped: ours ends first, and the user's starts exactly as
without us.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch.autograd.profiler as autograd_profiler
from torch._C._autograd import _profiler_enabled

_ENTRIES = ("_prepare_trace", "_start_trace")


def another_records() -> bool:
    """Whether any profiler records now, of whatever backend."""
    # With all threads profiled only the first of the two is set, with other backends (NVTX) the second too.
    return bool(getattr(autograd_profiler, "_is_profiler_enabled", False)) or _profiler_enabled()


def another_warms_up(profilers: Iterable[Any]) -> bool:
    """Whether one of all ``profilers`` there are is prepared and not started; nothing else tells of that."""
    return any(getattr(it, "entered", False) and it.kineto_results is None for it in profilers)


class RivalWatch:
    """Calls back once before another profiler prepares or starts; ``end()`` puts everything back."""

    def __init__(self) -> None:
        self._saved: dict[str, tuple[Any, Any]] = {}

    def begin(self, own: object, on_rival: Callable[[], None]) -> None:
        """Watch all profilers but ``own``, an ``autograd.profiler.profile``."""
        for name in _ENTRIES:
            original = getattr(autograd_profiler.profile, name, None)
            if original is None:
                continue
            wrapper = self._wrapper(original, own, on_rival)
            self._saved[name] = (original, wrapper)
            setattr(autograd_profiler.profile, name, wrapper)

    def end(self) -> None:
        for name, (original, wrapper) in self._saved.items():
            # Somebody may have wrapped our wrapper; it then stays, and only passes through.
            if getattr(autograd_profiler.profile, name) is wrapper:
                setattr(autograd_profiler.profile, name, original)
        self._saved = {}

    def _wrapper(self, original: Any, own: object, on_rival: Callable[[], None]) -> Any:
        def entry(rival: Any, *args: Any, **kwargs: Any) -> Any:
            if self._saved and rival is not own:
                on_rival()
                self.end()
            return original(rival, *args, **kwargs)

        return entry
