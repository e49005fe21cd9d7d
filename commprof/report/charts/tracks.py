"""Bars on a common axis of time inside table rows: places in percent of the row, so that they fit any width."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from commprof.report.charts.wording import Json
from commprof.units import format_ns

_STEPS = (1, 2, 5)
_LAST_TICK = 92.0
MOST_STRETCHES = 120
_PIECES = 200


@dataclass(frozen=True, slots=True)
class Axis:
    """Time from ``first`` to ``last`` ns as 0 to 100."""

    first: int
    last: int

    def at(self, ns: int) -> float:
        """Place of an instant, held inside the axis."""
        return min(max((ns - self.first) / max(self.last - self.first, 1) * 100, 0.0), 100.0)

    def bar(self, start: int, end: int, kind: str) -> Json:
        """A bar of colour role ``kind``."""
        left = self.at(start)
        return {"kind": kind, "left": left, "width": max(self.at(end) - left, 0.0)}

    def ticks(self, zero: int) -> list[Json]:
        """Round times after ``zero`` with their places: about five."""
        span = self.last - self.first
        if span <= 0:
            return []
        power = 10 ** (len(str(span)) - 1)
        every = next(step for scale in (power // 10, power) for factor in _STEPS
                     if (step := max(factor * scale, 1)) * 5 >= span)  # fmt: skip
        start = zero + -(-(self.first - zero) // every) * every
        # A text at the very end would be cut.
        return [
            {"left": self.at(t), "text": tick_text(t - zero)}
            for t in range(start, self.last + 1, every) if self.at(t) < _LAST_TICK
        ]  # fmt: skip


def tick_text(ns: int) -> str:
    """``5 ms`` rather than ``5.00 ms``: the times of an axis are round."""
    number, _, unit = format_ns(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}" if ns else "0"


def step_entry(view: Json, rank: int | None, step: str | None) -> Json | None:
    """The entry of the timeline that shows this rank and step."""
    return next((e for e in view.get("timeline") or [] if e["rank"] == rank and e["step"] == step), None)


def parts_of(bars: Axis, start: int, end: int, entry: Json | None) -> list[Json]:
    """A call as bars: exposed where the rank computes nothing, hidden elsewhere; of one middle colour if unknown."""
    if entry is None:
        return [bars.bar(start, end, "hidden")]
    out, at = [], start
    for low, high in entry["exposed"]:
        low, high = max(low, at), min(high, end)
        if low < high:
            if at < low:
                out.append(bars.bar(at, low, "hidden"))
            out.append(bars.bar(low, high, "exposed"))
            at = high
    if at < end:
        out.append(bars.bar(at, end, "hidden"))
    return out if len(out) <= MOST_STRETCHES else _coarse(bars, start, end, entry["exposed"])


def _coarse(bars: Axis, start: int, end: int, exposed: list[list[int]]) -> list[Json]:
    """The same in equal pieces, each in the colour of most of its time; neighbours of one colour are joined."""
    pieces = np.linspace(start, end, _PIECES + 1)
    low, high = np.array(exposed, np.float64).T
    # Exposed time before an instant: whole stretches that end before it, and the part of the one that holds it.
    sums = np.concatenate([[0.0], np.cumsum(high - low)])
    index = np.searchsorted(low, pieces, side="right")
    last = np.maximum(index - 1, 0)
    before = sums[index] - np.where(index > 0, np.maximum(high[last] - pieces, 0.0), 0.0)
    most = np.diff(before) * 2 >= np.diff(pieces)
    cuts = [0, *(np.flatnonzero(most[1:] != most[:-1]) + 1).tolist(), _PIECES]
    return [bars.bar(round(pieces[a]), round(pieces[b]), "exposed" if most[a] else "hidden") for a, b in pairwise(cuts)]


def compute_of(bars: Axis, entry: Json | None) -> list[Json]:
    """Compute of a rank as bars, where it is neither idle, nor exposed, nor copying; coarse beyond what can be seen."""
    if entry is None:
        return []
    gaps = sorted((start, end) for key in ("exposed", "exposed_copy", "idle") for start, end in entry.get(key) or [])
    least = (bars.last - bars.first) // 600
    out, at = [], max(entry["start_ns"], bars.first)
    for start, end in [*gaps, (entry["end_ns"], entry["end_ns"])]:
        start, end = min(start, bars.last), min(end, bars.last)
        if end - start < least and start < bars.last:
            continue
        if start > at:
            out.append(bars.bar(at, start, "compute"))
        at = max(at, end)
    return out[:MOST_STRETCHES]
