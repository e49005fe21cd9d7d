"""What the step would take at least if something were gone (``spec``: section 11); each one is a bound.

All start at the step of the rank that loses the most, on which findings are measured too (the mean of these steps,
where it is another rank in each): what is taken off shows there in full, or on the critical path of the run.
"""

from __future__ import annotations

from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Bounds, Finding


def bounds(ground: Ground, findings: list[Finding]) -> Bounds:
    """All communication hidden, no rank waiting, the first finding gone; no finding promises more than its bound."""
    step = (2 * ground.duration + len(ground.steps)) // (2 * len(ground.steps))
    first = next((f.recoverable_ns for f in findings if f.severity != "info" and f.recoverable_ns is not None), None)
    return Bounds(
        step_ns=step,
        all_hidden_ns=max(0, step - _hidden(ground)),
        no_waiting_ns=max(0, step - _waited(ground, findings)) if ground.knows_waiting() else None,
        without_top_finding_ns=None if first is None else max(0, step - first),
    )


def _hidden(ground: Ground) -> int:
    """Exposed time that communication can be blamed for (all of it where nothing is linked to a launch), as far as
    there is as much communication on the critical path."""
    known = [step.unit.total("exposed_blocking") for step in ground.steps]
    blocking = sum(
        step.total("exposed_comm") if value is None else value for step, value in zip(ground.steps, known, strict=True)
    )
    blocking = -(-blocking // len(ground.steps))
    path = ground.analysis.critical_path
    return blocking if path is None else min(blocking, -(-int(path.transfers.sum()) // path.steps))


def _waited(ground: Ground, findings: list[Finding]) -> int:
    """Exposed waiting, or what late ranks are said to cost: what runs later for them may not be waiting itself."""
    waited = -(-int(ground.exposed.wait.sum()) // len(ground.steps))
    return max(waited, sum(f.recoverable_ns or 0 for f in findings if f.id == "straggler"))
