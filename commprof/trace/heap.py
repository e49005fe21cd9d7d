"""Memory that was freed: kept for the next block while a large file is read, then back to the system.

A page that the system gives costs as much as decoding what fits into it, so reading uses the same ones over and over;
but what reading needed must not add to what the analysis needs. Only glibc can be told; other C libraries have their
own ways.
"""

from __future__ import annotations

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_HELD = 32 << 20
"""The largest piece that glibc can be asked to keep."""

_LARGE = 1 << 20
_AT_THE_TOP = 8 << 20


def hold() -> None:
    """Keep freed memory, up to some blocks of a file, until :func:`give_back`."""
    _tell(trim=2 * _HELD, mmap=_HELD)


def give_back() -> None:
    """Return freed memory (glibc keeps what lies between pieces that are in use).

    From then on arrays of a megabyte or more lie apart and go back as soon as they are freed, as at the start of a
    process: glibc moves that border up to the largest piece that was ever freed, here a block of the file.
    """
    _tell(trim=_AT_THE_TOP, mmap=_LARGE)
    release()


def release() -> None:
    """Return what is free now, and go on as before."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):
        return


def _tell(trim: int, mmap: int) -> None:
    import ctypes

    try:
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, trim)
        library.mallopt(_MMAP_THRESHOLD, mmap)
    except (OSError, AttributeError, TypeError):
        return
