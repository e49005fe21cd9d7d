"""NVTX ranges as ranges of the trace: Megatron and DeepSpeed mark layers and micro-batches with them alone."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.profiler import record_function


class NvtxRanges:
    """Between ``begin`` and ``end``, ``torch.cuda.nvtx.range_push`` and ``range_pop`` open and close a range each.

    What they do and raise by themselves stays as it is. A function that a program has imported by name before
    is not reached.
    """

    def __init__(self) -> None:
        self._saved: tuple[Any, Any] | None = None
        self._wrapped: tuple[Any, Any] | None = None
        self._open = threading.local()

    def begin(self) -> None:
        nvtx: Any = torch.cuda.nvtx
        self._saved = nvtx.range_push, nvtx.range_pop
        push, pop = self._saved

        def range_push(*args: Any, **kwargs: Any) -> Any:
            result = push(*args, **kwargs)
            if self._saved is not None:
                self._enter(args[0] if args else kwargs.get("msg"))
            return result

        def range_pop(*args: Any, **kwargs: Any) -> Any:
            self._leave()
            return pop(*args, **kwargs)

        self._wrapped = range_push, range_pop
        nvtx.range_push, nvtx.range_pop = self._wrapped

    def end(self) -> None:
        """Put both functions back; ranges of this thread that are still open end here."""
        if self._saved is None or self._wrapped is None:
            return
        nvtx: Any = torch.cuda.nvtx
        # Somebody may have wrapped our wrapper; it then stays, and only passes through.
        for name, ours, original in zip(("range_push", "range_pop"), self._wrapped, self._saved, strict=True):
            if getattr(nvtx, name) is ours:
                setattr(nvtx, name, original)
        self._saved = self._wrapped = None
        while getattr(self._open, "stack", None):
            self._leave()

    def _enter(self, message: Any) -> None:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        opened: Any = record_function(str(message))
        opened.__enter__()
        self._open.stack.append(opened)

    def _leave(self) -> None:
        """Close the range opened last; a range from before the recording has none of ours."""
        stack = getattr(self._open, "stack", None)
        if stack:
            stack.pop().__exit__(None, None, None)
