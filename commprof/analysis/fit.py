"""Latency and bandwidth from measured transfers: ``t = alpha + x / beta`` (``spec``: section 7).

``x`` are the bytes on the wire (``S * f``), ``t`` nanoseconds; bytes per nanosecond are GB/s. The relative error is
minimised, with ``alpha >= 0``. Protocols change with size: where one line is off by more than 15 % two are tried, and
where that fails the measured points are joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FEWEST_SIZES = 4
SPAN = 16
WORST_ERROR = 0.15
_FARTHEST_BELOW, _FARTHEST_ABOVE = 0.5, 2.0
"""When a line is fitted, when it fits, and how far beyond the measured sizes it holds (``spec``: section 7)."""
_FEWEST_PER_PIECE = 3
"""Two points always lie on a line."""


@dataclass(frozen=True, slots=True)
class Line:
    """``alpha`` ns plus ``per_byte`` ns for each byte, for fewer than ``until`` bytes (the last: without limit)."""

    alpha: float
    per_byte: float
    until: float = float("inf")

    @property
    def gbps(self) -> float | None:
        """Bandwidth in GB/s; ``None`` where time does not grow with size."""
        return 1 / self.per_byte if self.per_byte > 0 else None

    def at(self, moved: Floats) -> Floats:
        """Nanoseconds for each number of bytes."""
        return self.alpha + self.per_byte * moved


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What was measured and what was fitted to it.

    ``moved`` and ``ns`` are the points in order of size, shape ``(sizes,)``; ``kind`` is ``line``, ``two lines`` or
    ``points`` (nothing fits, or too few sizes); ``error`` is the largest relative error at a point, ``None`` for
    ``points``.
    """

    moved: Floats
    ns: Floats
    kind: str
    lines: tuple[Line, ...]
    error: float | None

    @property
    def alpha_ns(self) -> int | None:
        """Latency: of the line for small messages."""
        return round(self.lines[0].alpha) if self.lines else None

    @property
    def beta_gbps(self) -> float | None:
        """Bandwidth: of the line for large messages."""
        return self.lines[-1].gbps if self.lines else None

    def predict(self, moved: float) -> tuple[int, bool]:
        """Nanoseconds for ``moved`` bytes, and whether that is extrapolated: far outside what was measured."""
        outside = moved < _FARTHEST_BELOW * self.moved[0] or moved > _FARTHEST_ABOVE * self.moved[-1]
        for line in self.lines:
            if moved < line.until:
                return round(line.alpha + line.per_byte * moved), bool(outside)
        if moved > self.moved[-1]:
            return round(float(self.ns[-1] * moved / max(self.moved[-1], 1.0))), bool(outside)
        joined = round(float(np.interp(moved, self.moved, self.ns)))
        # Between few points nothing tells latency from bandwidth: below the smallest only its own time is known.
        return joined, bool(outside or moved < self.moved[0])


def fit(moved: Floats, ns: Floats) -> Fit:
    """Fit points of distinct sizes, in any order; at least one, with positive times."""
    order = np.argsort(moved, kind="stable")
    moved, ns = moved[order].astype(np.float64), ns[order].astype(np.float64)
    if len(moved) < FEWEST_SIZES or moved[-1] < SPAN * moved[0]:
        return Fit(moved, ns, "points", (), None)
    line = _line(moved, ns)
    error = _worst(line.at(moved), ns)
    if error <= WORST_ERROR:
        return Fit(moved, ns, "line", (line,), error)
    pieces = _two_lines(moved, ns)
    if pieces is not None:
        error = _worst(np.where(moved < pieces[0].until, pieces[0].at(moved), pieces[1].at(moved)), ns)
        if error <= WORST_ERROR:
            return Fit(moved, ns, "two lines", pieces, error)
    return Fit(moved, ns, "points", (), None)


def _line(moved: Floats, ns: Floats) -> Line:
    """Least squares of ``(alpha + moved * per_byte) / ns - 1``; neither part is negative."""
    constant, slope = 1 / ns, moved / ns
    cc, cs, ss = float(constant @ constant), float(constant @ slope), float(slope @ slope)
    c, s = float(constant.sum()), float(slope.sum())
    determinant = cc * ss - cs * cs
    if determinant > 1e-12 * cc * ss:
        alpha, per_byte = (c * ss - s * cs) / determinant, (s * cc - c * cs) / determinant
        if alpha >= 0 and per_byte >= 0:
            return Line(alpha, per_byte)
        if per_byte < 0:
            return Line(c / cc, 0.0)
    return Line(0.0, s / ss if ss else 0.0)


def _two_lines(moved: Floats, ns: Floats) -> tuple[Line, Line] | None:
    """The cut with the smallest sum of squared relative errors; each side has at least three points."""
    best: tuple[float, Line, Line] | None = None
    for cut in range(_FEWEST_PER_PIECE, len(moved) - _FEWEST_PER_PIECE + 1):
        small, large = _line(moved[:cut], ns[:cut]), _line(moved[cut:], ns[cut:])
        errors = np.concatenate([small.at(moved[:cut]) / ns[:cut], large.at(moved[cut:]) / ns[cut:]]) - 1
        total = float(errors @ errors)
        if best is None or total < best[0]:
            until = float(np.sqrt(moved[cut - 1] * moved[cut]))
            best = (total, Line(small.alpha, small.per_byte, until), large)
    return None if best is None else best[1:]


def _worst(predicted: Floats, ns: Floats) -> float:
    return float(np.abs(predicted / ns - 1).max())
