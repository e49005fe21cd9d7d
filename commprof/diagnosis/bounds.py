"""What the step would take at least if something were gone (``spec``: section 11); each one is a bound."""

from __future__ import annotations

from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Bounds, Finding


def bounds(ground: Ground, findings: list[Finding]) -> Bounds:
    """Means over the reference steps: all communication hidden, no rank waiting, the first finding gone."""
    count = len(ground.steps)
    step = (2 * ground.duration + count) // (2 * count)
    first = next((f.recoverable_ns for f in findings if f.severity != "info" and f.recoverable_ns is not None), None)
    return Bounds(
        step_ns=step,
        all_hidden_ns=_without(ground, step, _blocking(ground)),
        no_waiting_ns=_without(ground, step, int(ground.exposed.wait.sum())) if ground.knows_waiting() else None,
        without_top_finding_ns=None if first is None else max(0, step - first),
    )


def _blocking(ground: Ground) -> int:
    """Exposed time that communication can be blamed for; all of it where nothing is linked to a launch."""
    known = [step.unit.total("exposed_blocking") for step in ground.steps]
    return sum(
        step.total("exposed_comm") if value is None else value for step, value in zip(ground.steps, known, strict=True)
    )


def _without(ground: Ground, step: int, ns: int) -> int:
    return max(0, step - ns // len(ground.steps))
