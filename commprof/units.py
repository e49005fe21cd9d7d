"""Integers to text: the only place where a time, a size or a share becomes a string.

Inside commprof times are integer nanoseconds and sizes are bytes; people read ms, MB and percent.
"""

from __future__ import annotations

_TIME_STEPS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_SIZE_STEPS = ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"))


def _three_digits(value: float) -> str:
    """Render ``value`` with at least three significant digits and no false precision."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def _in_steps(value: int, steps: tuple[tuple[int, str], ...], unit: str) -> str:
    """The value in the largest unit in which it shows at least 1.00; 999,999 ns is 1.00 ms and not 1,000 µs.

    A negative one has a minus sign, which is as wide as a digit, and no hyphen.
    """
    sign, size = "−" if value < 0 else "", abs(value)
    for step, name in steps:
        if size >= step * 0.9995 and size >= 1000:
            return f"{sign}{_three_digits(size / step)} {name}"
    return f"{sign}{size} {unit}"


def format_ns(ns: int | None) -> str:
    """Text for a duration in nanoseconds: ``2.64 ms``; ``n/a`` for ``None``."""
    if ns is None:
        return "n/a"
    return _in_steps(ns, _TIME_STEPS, "ns")


def format_bytes(size: int | None) -> str:
    """Text for a size in bytes, decimal units (1 MB = 10^6 B): ``8.20 MB``; ``n/a`` for ``None``."""
    if size is None:
        return "n/a"
    return _in_steps(size, _SIZE_STEPS, "B")


def format_share(share: float | None) -> str:
    """Text for a ratio between 0 and 1 as a percentage with one decimal: ``30.0 %``; ``n/a`` for ``None``."""
    return "n/a" if share is None else f"{share * 100:,.1f} %"


def format_gbps(value: float | None) -> str:
    """Text for a bandwidth in 10^9 bytes per second; ``n/a`` for ``None``."""
    return "n/a" if value is None else f"{_three_digits(value)} GB/s"
