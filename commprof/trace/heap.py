"""Memory that was freed, back to the system: what reading needed must not add to what the analysis needs."""

from __future__ import annotations

_MMAP_THRESHOLD = -3
_LARGE = 1 << 20


def give_back() -> None:
    """Return freed memory where the C library can (glibc keeps what lies between pieces that are in use).

    From then on arrays of a megabyte or more lie apart and go back as soon as they are freed, as at the start of a
    process: glibc moves that border up to the largest piece that was ever freed, here a block of the file.
    """
    import ctypes

    try:
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
        library.malloc_trim(0)
    except (OSError, AttributeError, TypeError):  # another C library: it has its own ways
        return
