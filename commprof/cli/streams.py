"""Standard output and error whose reader may go away, or that lack characters: that costs no file and no exit code.

``commprof check ... | head`` still writes its reports and says whether the limits hold.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import unicodedata
from collections.abc import Iterator
from typing import IO

_STAND_INS = {"µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "×": "x", "→": "->", "≥": ">=", "≤": "<=", "≈": "~"}
_HANDLER = "commprof.stand_in"


@contextlib.contextmanager
def any_text() -> Iterator[None]:
    """Inside, a character that the encoding of a standard stream lacks becomes one that reads alike, or ``?``."""
    changed: list[tuple[io.TextIOWrapper, str]] = []
    for stream in (sys.stdout, sys.stderr):
        # What is no text file cannot be told, and what does not stop at a character needs no help.
        if isinstance(stream, io.TextIOWrapper) and not stream.closed and _stops(stream):
            changed.append((stream, stream.errors or "strict"))
            _tell(stream, _HANDLER)
    try:
        yield
    finally:
        for stream, before in changed:
            _tell(stream, before)


def _stops(stream: io.TextIOWrapper) -> bool:
    """Whether it raises at a character, or escapes it; names of files stay as they are where that is possible."""
    escapes = (
        stream.errors in ("surrogateescape", "backslashreplace") and codecs.lookup(stream.encoding).name != "utf-8"
    )
    return escapes or stream.errors == "strict"


def _tell(stream: io.TextIOWrapper, errors: str) -> None:
    # It writes what it holds first, which may fail as any writing may, and is closed where a test has closed it.
    with contextlib.suppress(OSError, ValueError):
        stream.reconfigure(errors=errors)


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_alike, error.object[error.start : error.end])), error.end


def _alike(character: str) -> str:
    if character in _STAND_INS:
        return _STAND_INS[character]
    if "\u2500" <= character <= "\u257f":  # lines of tables
        return "|" if character in "│┃║" else "-" if character in "─━═╌┄" else "+"
    # An accent is less than the letter.
    plain = "".join(c for c in unicodedata.normalize("NFKD", character) if c.isascii() and c.isprintable())
    return plain or "?"


codecs.register_error(_HANDLER, _stand_in)


def print_out(text: str) -> None:
    """Write to standard output as it is, as far as anybody reads it."""
    _print(text, sys.stdout)


def print_json(text: bytes) -> None:
    """Write JSON to standard output: UTF-8 whatever its encoding is, as the standard wants it (RFC 8259)."""
    stream = getattr(sys.stdout, "buffer", None)
    if stream is None:
        print_out(text.decode())
        return
    try:
        sys.stdout.flush()
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(sys.stdout)


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
