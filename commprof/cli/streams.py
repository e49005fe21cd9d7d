"""Standard output and error whose reader may go away: that costs no file and no exit code.

``commprof check ... | head`` still writes its reports and says whether the limits hold.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import IO


def print_out(text: str) -> None:
    """Write to standard output as it is, as far as anybody reads it."""
    _print(text, sys.stdout)


def print_error(text: str) -> None:
    """One line on standard error, as far as anybody reads it."""
    _print(text + "\n", sys.stderr)


def discard(stream: IO[str]) -> None:
    """What the stream still holds, and all that follows, goes nowhere: it must not fail again when Python ends."""
    # A stream of a test or a notebook has no file behind it.
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _print(text: str, stream: IO[str]) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)
