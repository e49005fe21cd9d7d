"""Notices another profiler that starts inside our window, before it does.

There is one Kineto session per process. A second profiler takes it over without an error, and to stop or
save the first one afterwards kills its successor or crashes. So while we record, the two methods through
which every Python profiler of PyTorch starts are wrapped: ours ends first, and the user's starts exactly
as without us.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.autograd.profiler as autograd_profiler

_ENTRIES = ("_prepare_trace", "_start_trace")


class RivalWatch:
    """Calls back once before another profiler prepares or starts; ``end()`` puts everything back."""

    def __init__(self) -> None:
        self._saved: dict[str, tuple[Any, Any]] = {}

    def begin(self, on_rival: Callable[[], None]) -> None:
        for name in _ENTRIES:
            original = getattr(autograd_profiler.profile, name, None)
            if original is None:
                continue
            wrapper = self._wrapper(original, on_rival)
            self._saved[name] = (original, wrapper)
            setattr(autograd_profiler.profile, name, wrapper)

    def end(self) -> None:
        for name, (original, wrapper) in self._saved.items():
            # Somebody may have wrapped our wrapper; it then stays, and only passes through.
            if getattr(autograd_profiler.profile, name) is wrapper:
                setattr(autograd_profiler.profile, name, original)
        self._saved = {}

    def _wrapper(self, original: Any, on_rival: Callable[[], None]) -> Any:
        def entry(rival: Any, *args: Any, **kwargs: Any) -> Any:
            if self._saved:
                on_rival()
                self.end()
            return original(rival, *args, **kwargs)

        return entry
