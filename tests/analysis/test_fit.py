"""Latency and bandwidth from transfers: lines recovered, breaks found, nothing predicted beyond what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commprof.analysis.fit import Fit, fit

MB = 1_000_000


def fitted(points: list[tuple[float, float]]) -> Fit:
    """Fit to (bytes, ns) pairs."""
    moved, ns = zip(*points, strict=True)
    return fit(np.array(moved, np.float64), np.array(ns, np.float64))


def on_line(alpha_ns: float, gbps: float, sizes: list[float]) -> list[tuple[float, float]]:
    return [(size, alpha_ns + size / gbps) for size in sizes]


def test_an_exact_line_is_found_whatever_the_order_of_the_points() -> None:
    points = on_line(10_000, 100.0, [64 * MB, MB, 256 * MB, 4 * MB])

    found = fitted(points)

    assert found.kind == "line"
    assert found.alpha_ns == 10_000
    assert found.beta_gbps == pytest.approx(100.0)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.predict(5 * MB) == (60_000, False)


@pytest.mark.parametrize(
    ("size", "extrapolated"),
    [(0.49 * MB, True), (0.5 * MB, False), (512 * MB, False), (513 * MB, True)],
)
def test_beyond_half_and_twice_the_measured_sizes_a_prediction_is_extrapolated(size: float, extrapolated: bool) -> None:
    found = fitted(on_line(10_000, 100.0, [MB, 4 * MB, 64 * MB, 256 * MB]))

    assert found.predict(size) == (round(10_000 + size / 100), extrapolated)


def test_latency_is_never_negative() -> None:
    # t = x - 0.1 ms at 1 GB/s: a free fit would start below zero.
    points = [(size * MB, size * MB - 100_000) for size in (1, 2, 8, 32)]

    found = fitted(points)

    assert found.lines[0].alpha == 0.0
    # Only the slope is left; sum(x/t) / sum((x/t)^2) by hand.
    slopes = [size / (size - 0.1) for size in (1, 2, 8, 32)]
    assert found.lines[0].per_byte == pytest.approx(sum(slopes) / sum(s * s for s in slopes))


@pytest.mark.parametrize(
    "sizes", [[MB, 4 * MB, 64 * MB], [MB, 2 * MB, 4 * MB, 15 * MB]], ids=["three sizes", "less than a factor of 16"]
)
def test_too_little_for_a_fit_leaves_the_points(sizes: list[float]) -> None:
    found = fitted(on_line(10_000, 100.0, sizes))

    assert found.kind == "points"
    assert (found.alpha_ns, found.beta_gbps, found.error) == (None, None, None)
    middle = (sizes[0] + sizes[1]) / 2
    assert found.predict(middle) == (round(10_000 + middle / 100), False)


def test_a_change_of_protocol_gives_two_lines() -> None:
    small = on_line(10_000, 10.0, [1_000, 10_000, 100_000, 400_000])
    large = on_line(60_000, 100.0, [4 * MB, 16 * MB, 64 * MB, 256 * MB])

    found = fitted(small + large)

    assert found.kind == "two lines"
    assert found.alpha_ns == 10_000
    assert found.beta_gbps == pytest.approx(100.0)
    assert found.predict(200_000) == (30_000, False)
    assert found.predict(100 * MB) == (1_060_000, False)


def test_points_on_no_line_are_joined() -> None:
    ns = [10_000.0, 90_000.0, 20_000.0, 400_000.0, 30_000.0, 900_000.0]
    sizes = [MB * 4.0**k for k in range(6)]

    found = fitted(list(zip(sizes, ns, strict=True)))

    assert found.kind == "points"
    assert found.predict(4 * MB) == (90_000, False)
    assert found.predict(2.5 * MB) == (50_000, False)  # halfway from 1 MB to 4 MB
    assert found.predict(0.75 * MB) == (10_000, True)
    assert found.predict(4096 * MB) == (3_600_000, True)  # at the rate of the largest, 1024 MB in 0.9 ms


@settings(max_examples=60, deadline=None)
@given(
    alpha=st.integers(0, 100_000),
    gbps=st.floats(0.5, 900.0),
    sizes=st.lists(st.integers(1_000, 10**9), min_size=2, max_size=8, unique=True),
)
def test_lines_are_recovered(alpha: int, gbps: float, sizes: list[int]) -> None:
    wide = [500, *sizes, 2_000_000_000, 1_000_000_000]

    found = fitted(on_line(alpha + 1, gbps, sorted(set(wide))))

    assert found.kind == "line"
    for size in wide:
        assert found.predict(size)[0] == pytest.approx(alpha + 1 + size / gbps, rel=1e-6, abs=1)
