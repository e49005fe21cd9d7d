"""Which windows a "per step" figure is taken over, and its mean (``spec``: sections 2 and 11).

Closed windows where there are any. Where gradients are accumulated, the unit is the optimizer step: the windows up to
the one that launched the optimizer, joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from commprof.analysis.model import DeviceAnalysis, Split, Step


@dataclass(frozen=True, slots=True)
class Unit:
    """One step as figures per step see it: a window, or the windows of one optimizer step."""

    names: tuple[str, ...]
    splits: tuple[Split, ...]

    def total(self, name: str) -> int | None:
        """Sum of one length over the windows; ``None`` where one of them has none."""
        values = [getattr(split, name) for split in self.splits]
        return None if any(value is None for value in values) else sum(values)


def period_of(device: DeviceAnalysis, optimizer_marks: list[int]) -> int | None:
    """Step marks per optimizer step, ``None`` unless it is more than one and regular."""
    gaps = {after - before for before, after in pairwise(optimizer_marks)}
    if len(gaps) != 1 or device.windows == "none":
        return None
    period = gaps.pop()
    return period if period > 1 else None


def units(device: DeviceAnalysis, optimizer_marks: list[int]) -> list[Unit]:
    """The steps that means are taken over, in order."""
    period = period_of(device, optimizer_marks)
    by_mark = dict(zip(device.marks, device.steps, strict=True))
    if period is not None:
        joined = []
        for last in optimizer_marks:
            steps = [by_mark.get(mark) for mark in range(last - period + 1, last + 1)]
            if all(step is not None and not step.open for step in steps):
                joined.append(_unit([step for step in steps if step is not None]))
        if joined:
            return joined
    closed = [step for step in device.steps if not step.open] or device.steps
    return [_unit([step]) for step in closed]


def _unit(steps: list[Step]) -> Unit:
    return Unit(tuple(step.name for step in steps), tuple(step.split for step in steps))


def mean(chosen: list[Unit], name: str) -> int | None:
    """Mean of one length over units, rounded to 1 ns; ``None`` without units or where one has no value."""
    values = [unit.total(name) for unit in chosen]
    known = [value for value in values if value is not None]
    if not values or len(known) < len(values):
        return None
    return (2 * sum(known) + len(known)) // (2 * len(known))
