"""From a running program to a capture folder; the only part of commprof that imports torch."""

from commprof.capture.hook import Capture

__all__ = ["Capture"]
