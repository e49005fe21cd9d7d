"""What a rule hands over: the time it claims, what it rests on and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.host_delays import DELAYS
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.model import Evidence, Threshold
from commprof.diagnosis.on_path import OnPath
from commprof.intervals import Int64Array

PARTS = ("host", "wait", "rest")
"""Parts of a piece of exposed time: host-bound, waiting for a peer, and what is left."""


@dataclass(slots=True, eq=False)
class Claim:
    """Nanoseconds that a case asks for: of each part of every exposed row, of every idle row, of every step's copies.

    ``None`` asks for nothing. Whoever comes first in the order of precedence gets them.
    """

    host: Int64Array | None = None
    wait: Int64Array | None = None
    rest: Int64Array | None = None
    idle: Int64Array | None = None
    copy: Int64Array | None = None


@dataclass(slots=True, eq=False)
class Case:
    """One finding before it is known how much of its claim is left for it.

    ``recoverable`` is nanoseconds per step, shape ``(steps,)``, where less than the charge would come back; with
    ``nothing_back`` no time can be stated. The host-bound part of a charge comes back only
    with ``host_back``. ``by_event``: it is told by single calls that stand out of their kind, so that how its cost
    scatters over steps says nothing against it; it is then of severity ``low`` at least. ``measured`` is what the cause
    costs in every step, nanoseconds of shape ``(steps,)``, where that is known whatever others are charged with: that
    has to be above its noise over steps, or the charge. ``alone`` is what would come back of every step if nobody else
    were charged with it before. ``cost_ns`` is time per step inside compute (contention). ``most`` is the
    highest severity that the case may get. ``path`` is what it takes of the critical path, where that is known: then
    this is what comes back, whatever of it is charged elsewhere. ``shorter`` is by how much each match would last
    shorter without the cause, nanoseconds of shape ``(matches,)``: where the run can be replayed so, what that gains
    comes back. ``or_cause`` is another cause that the trace cannot tell from ``cause``.
    """

    id: str
    title: str
    claim: Claim
    advice: tuple[str, ...]
    evidence: tuple[Evidence, ...] = ()
    cause: str | None = None
    ranks: tuple[int, ...] = ()
    steps: tuple[str, ...] = ()
    group_id: int | None = None
    calls: int | None = None
    confidence: str = "measured"
    recoverable: Int64Array | None = None
    nothing_back: bool = False
    cost_ns: int | None = None
    structural: bool = False
    host_back: bool = False
    most: str = "high"
    by_event: bool = False
    measured: Int64Array | None = None
    alone: Int64Array | None = None
    threshold: Threshold | None = None
    order: int = field(default=0)
    path: OnPath | None = None
    shorter: Int64Array | None = None
    or_cause: str | None = None


def whole(ground: Ground, rows: Mask, *parts: str) -> Claim:
    """The given parts of the given rows; by default ``rest``, and what of ``host`` a faster CPU would not save."""
    exposed = ground.exposed
    claim = Claim(**{part: np.where(rows, getattr(exposed, part), 0) for part in parts or ("rest",)})
    if not parts:
        claim.host = np.where(rows & exposed.awaited, exposed.host, 0)
    return claim


def hideable(ground: Ground, rows: Mask) -> Claim:
    """The same with the waiting that no late rank is charged with: it goes behind compute together with its call."""
    claim = whole(ground, rows)
    claim.wait = np.where(rows, ground.exposed.wait, 0)
    return claim


def of_rest(ground: Ground, rows: Mask, share: float | NDArray[np.float64]) -> Claim:
    """A share of the rest of the given rows, rounded down; ``share`` may be one number per row."""
    part = np.floor(ground.exposed.rest * np.clip(share, 0.0, 1.0)).astype(np.int64)
    return Claim(rest=np.where(rows, part, 0))


def delayed(ground: Ground, *reasons: str) -> Int64Array:
    """The part of ``host`` of every exposed row that has one of these reasons (of ``DELAYS``)."""
    total: Int64Array = ground.exposed.delays[:, [DELAYS.index(reason) for reason in reasons]].sum(axis=1)
    return np.minimum(total, ground.exposed.host)


def idle_of(ground: Ground, *causes: str) -> Int64Array:
    """All idle time with one of these causes."""
    chosen = np.array([cause in causes for cause in ground.idle.cause], np.bool_)
    return np.where(chosen, ground.idle.ns, 0) if len(chosen) else np.empty(0, np.int64)


def ranks_of(ground: Ground, rows: Mask) -> tuple[int, ...]:
    """The reference ranks of the steps that these rows are in."""
    return tuple(sorted({ground.steps[step].rank.rank for step in np.unique(ground.exposed.step[rows]).tolist()}))


def steps_of(ground: Ground, rows: Mask) -> tuple[str, ...]:
    """The steps that these rows are in."""
    found = np.unique(ground.exposed.step[rows]).tolist()
    return tuple(name for step in found for name in ground.steps[step].unit.names)


def reference_ranks(ground: Ground) -> tuple[int, ...]:
    """The reference ranks of all steps."""
    return tuple(sorted({step.rank.rank for step in ground.steps}))


def all_steps(ground: Ground) -> tuple[str, ...]:
    """The windows of all steps."""
    return tuple(name for step in ground.steps for name in step.unit.names)
