"""From a running program to a capture folder; the only part of commprof that imports torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commprof.capture.hook import Capture

__all__ = ["Capture"]


def __getattr__(name: str) -> Any:
    # ``commprof run`` imports this package in every Python process that the command starts.
    if name == "Capture":
        from commprof.capture.hook import Capture

        return Capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
