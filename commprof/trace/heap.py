"""Memory that was freed, back to the system: what reading needed must not add to what the analysis needs."""

from __future__ import annotations


def give_back() -> None:
    """Return freed memory where the C library can (glibc keeps what lies between pieces that are in use)."""
    import ctypes

    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError, TypeError):  # another C library: it has its own ways
        return
