"""Numbers as people read them."""

from __future__ import annotations

import pytest

from commprof.units import format_bytes, format_ns, format_share


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (-1, "−1 ns"),
        (-999, "−999 ns"),
        (-1_000, "−1.00 µs"),
        (-1_754_000, "−1.75 ms"),
        (-3_600_000_000_000, "−3,600 s"),
        (999_999, "1.00 ms"),
    ],
)
def test_a_negative_time_has_a_minus_sign(ns: int, text: str) -> None:
    assert format_ns(ns) == text


def test_a_size_that_shrank_too() -> None:
    assert format_bytes(-2_500_000) == "−2.50 MB"


def test_a_change_of_many_times_has_its_thousands_apart() -> None:
    assert [format_share(share) for share in (0.3, 24.732, None)] == ["30.0 %", "2,473.2 %", "n/a"]
