"""The ground that findings stand on: the reference rank of every step, and its exposed, idle and copying time.

The reference rank of a step is the one with the most ``exposed_comm + exposed_copy + idle`` (``spec``: section 11):
lateness of others shows there in full. Its pieces of exposed time become one table over all steps, so that a rule is a
mask over rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.buckets import FIRST_ITERATION
from commprof.analysis.host_delays import DELAYS
from commprof.analysis.model import Analysis, DeviceAnalysis, RankAnalysis
from commprof.analysis.places import CAUSES, FLAGS, NOWHERE, PHASES, PURPOSES
from commprof.analysis.shorter_calls import CallReplay, replay_calls
from commprof.analysis.slow_links import Intermittent, SlowLink, intermittent, slow_links
from commprof.analysis.steps import Unit, units
from commprof.analysis.where_model import IdleTime
from commprof.diagnosis.thresholds import DEFAULTS, Thresholds
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

Mask = NDArray[np.bool_]
UNKNOWN = -1
P2P = ("send", "recv", "send_recv")
REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """One step as its reference rank saw it; ``where`` is the place of that rank in ``analysis.ranks``."""

    unit: Unit
    where: int
    rank: RankAnalysis
    device: DeviceAnalysis

    def total(self, name: str) -> int:
        """A length of the step; 0 where it was not measured."""
        return self.unit.total(name) or 0


@dataclass(slots=True, eq=False)
class Exposed:
    """Pieces of exposed time of the reference ranks, one row each, columns of shape ``(n,)``, nanoseconds.

    ``step`` is an index into the reference steps, ``call`` a row of the calls of the rank of that step, ``group`` an
    index into the groups of the analysis (-1: unknown). ``host + wait + rest`` is the length of the row. ``last``: it
    comes after the last compute of its window. ``delays[:, k]`` is the part of ``host`` for a reason of ``DELAYS``.
    ``awaited``: compute resumed when communication ended and not when the CPU had launched it, so that its host-bound
    part would have been exposed with a faster CPU too.
    """

    step: Int64Array
    call: Int64Array
    start: Int64Array
    end: Int64Array
    host: Int64Array
    wait: Int64Array
    rest: Int64Array
    cause: NDArray[np.int8]
    operation: NDArray[np.int8]
    group: Int64Array
    phase: NDArray[np.int8]
    bucket: Int64Array
    flag: NDArray[np.int8]
    size: Int64Array
    last_rank: Int64Array
    match: Int64Array
    window: Int64Array
    purpose: NDArray[np.int8]
    module: Int64Array
    last: Mask
    delays: Int64Array
    awaited: Mask

    def __len__(self) -> int:
        return len(self.step)

    @property
    def ns(self) -> Int64Array:
        """Length of every row."""
        return self.host + self.wait + self.rest


@dataclass(slots=True, eq=False)
class Idle:
    """Idle time of the reference ranks by cause: row ``i`` are ``ns[i]`` of step ``step[i]``."""

    step: Int64Array
    cause: list[str]
    ns: Int64Array
    count: Int64Array
    op: list[str | None]


@dataclass(slots=True, eq=False)
class Ground:
    """All that rules look at."""

    analysis: Analysis
    limits: Thresholds
    steps: list[ReferenceStep]
    exposed: Exposed
    idle: Idle
    copies: Int64Array
    """Exposed copies of every reference step."""
    slow_links: list[SlowLink]
    intermittent: list[Intermittent]
    found: dict[Any, Any] = field(default_factory=dict)
    """What several rules ask for, found once; nobody changes what stands in it."""

    def once(self, key: Hashable, find: Callable[[], Any]) -> Any:
        """What ``find`` gives, found at the first time that ``key`` is asked for."""
        if key not in self.found:
            self.found[key] = find()
        return self.found[key]

    def replay(self) -> CallReplay | None:
        """The run to be replayed with shorter calls, where it can be."""
        found: CallReplay | None = self.once("replay", lambda: replay_calls(self.analysis))
        return found

    @property
    def duration(self) -> int:
        """Length of all reference steps together."""
        return sum(step.total("duration") for step in self.steps)

    @property
    def lost(self) -> int:
        """Time of all reference steps together in which nothing is computed."""
        return sum(_lost(step) for step in self.steps)

    @property
    def word(self) -> str:
        """``step``, or ``window`` where the trace marks no steps: no figure is then called per step."""
        return "window" if all(step.device.windows == "none" for step in self.steps) else "step"

    def worded(self, text: str) -> str:
        """A text about figures per step as it reads for this trace."""
        return text if self.word == "step" else text.replace(" per step", " in the window")

    def operation_is(self, *names: str) -> Mask:
        """Rows of calls of these operations."""
        return np.isin(self.exposed.operation, [OPERATIONS.index(name) for name in names])

    def cause_is(self, *names: str) -> Mask:
        """Rows whose rest has one of these causes."""
        return np.isin(self.exposed.cause, [CAUSES.index(name) for name in names])

    def phase_is(self, *names: str) -> Mask:
        """Rows of calls in these phases."""
        return np.isin(self.exposed.phase, [PHASES.index(name) for name in names])

    def flag_is(self, *names: str) -> Mask:
        """Rows of calls with one of these flags."""
        return np.isin(self.exposed.flag, [FLAGS.index(name) for name in names])

    def role_is(self, *names: str) -> Mask:
        """Rows of calls of groups with one of these roles; ``unknown`` also stands for calls of no known group."""
        mask: Mask = self.once(("role", names), lambda: self._role_is(names))
        return mask.copy()

    def _role_is(self, names: tuple[str, ...]) -> Mask:
        found = np.zeros(len(self.exposed), np.bool_)
        numbers = self.exposed.group.astype(np.int64) * len(OPERATIONS) + self.exposed.operation
        for group, operation in (divmod(number, len(OPERATIONS)) for number in np.unique(numbers).tolist()):
            if self.role_of(group, OPERATIONS[operation]) in names:
                found |= (self.exposed.group == group) & (self.exposed.operation == operation)
        return found

    def role_of(self, group: int, operation: str) -> str:
        """What one operation of one group is for."""
        roles = self.analysis.roles
        return roles[group].of(operation) if 0 <= group < len(roles) else "unknown"

    def purpose_is(self, *names: str) -> Mask:
        """Rows of calls that move these things."""
        return np.isin(self.exposed.purpose, [PURPOSES.index(name) for name in names])

    def gradients(self) -> Mask:
        """Rows of reductions that average gradients of replicas; where nothing says what a call moves, role and phase
        decide."""
        reduces = self.operation_is(*REDUCTIONS) & ~self.role_is("tp", "pp", "ep", "cp", "control")
        unknown = (self.exposed.purpose == NOWHERE) & ~self.phase_is("forward", "input", "optimizer")
        averaged: Mask = reduces & (self.purpose_is("gradients") | unknown)
        return averaged

    def calls_in(self, rows: Mask) -> int:
        """How many calls these rows belong to, per step on average, at least 1 if there is any."""
        pairs = np.unique(np.stack([self.exposed.step[rows], self.exposed.call[rows]]), axis=1).shape[1]
        return max(1, round(pairs / len(self.steps))) if pairs else 0

    def column(self, name: str, rows: Mask) -> Int64Array:
        """A column of the calls that these rows belong to, each call of each step once."""
        pairs = np.unique(np.stack([self.exposed.step[rows], self.exposed.call[rows]]), axis=1)
        parts = [
            getattr(self.steps[step].rank.calls, name)[pairs[1][pairs[0] == step]]
            for step in np.unique(pairs[0]).tolist()
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def per_step(self, rows: Int64Array | NDArray[np.intp], ns: Int64Array) -> Int64Array:
        """Sums of ``ns`` by step, shape ``(steps,)``; ``rows`` are steps."""
        total = np.zeros(len(self.steps), np.int64)
        np.add.at(total, rows, ns)
        return total

    def knows_waiting(self) -> bool:
        """Whether any exposed call was matched over ranks."""
        return bool((self.exposed.match >= 0).any())

    def one_group(self, rows: Mask) -> int | None:
        """The group of these rows, ``None`` unless it is one."""
        groups = np.unique(self.exposed.group[rows])
        return int(groups[0]) if len(groups) == 1 and groups[0] >= 0 else None


def lay_ground(analysis: Analysis, limits: Thresholds = DEFAULTS) -> Ground | None:
    """Find the reference steps and lay their tables; ``None`` where there is no step."""
    steps = reference_steps(analysis)
    if not steps or not sum(step.total("duration") for step in steps):
        return None
    exposed = _exposed(analysis, steps)
    copies = np.array([step.total("exposed_copy") for step in steps], np.int64)
    return Ground(analysis, limits, steps, exposed, _idle(steps), copies, slow_links(analysis), intermittent(analysis))


def reference_steps(analysis: Analysis) -> list[ReferenceStep]:
    """Of every step the rank and device that lost the most; ties to the lower rank.

    A step from before DDP rebuilt its buckets tells nothing about those of the run (C134): it is left out where there
    are others.
    """
    best: dict[tuple[str, ...], ReferenceStep] = {}
    for where, rank in enumerate(analysis.ranks):
        for device in rank.devices:
            for unit in units(device, rank.optimizer_marks):
                step = ReferenceStep(unit, where, rank, device)
                known = best.get(unit.names)
                if known is None or _lost(step) > _lost(known):
                    best[unit.names] = step
    early = {
        rank.shares.step_names[bucket.step]
        for rank in analysis.ranks
        for bucket in rank.buckets
        if bucket.layout == FIRST_ITERATION and bucket.step >= 0
    }
    later = [step for names, step in best.items() if early.isdisjoint(names)]
    return later or list(best.values())


def _lost(step: ReferenceStep) -> int:
    return step.total("exposed_comm") + step.total("exposed_copy") + step.total("idle")


def _exposed(analysis: Analysis, steps: Sequence[ReferenceStep]) -> Exposed:
    tables = [_rows(analysis, index, step) for index, step in enumerate(steps)]
    return Exposed(*(np.concatenate(columns) for columns in zip(*tables, strict=True)))


def _rows(analysis: Analysis, index: int, step: ReferenceStep) -> list[NDArray[np.generic]]:
    """The columns of :class:`Exposed` for one step."""
    rank = step.rank
    pieces, calls, places, causes = rank.shares.pieces, rank.calls, rank.places, rank.causes
    windows = [number for number, name in enumerate(rank.shares.step_names) if name in step.unit.names]
    rows = np.flatnonzero(np.isin(pieces.window, windows))
    rows = rows[calls.device[pieces.call[rows]] == step.device.device]
    call = pieces.call[rows]
    groups = np.array([*analysis.group_of[step.where], -1], np.int64)
    host, wait = causes.host[rows], causes.wait[rows]
    unknown = np.full(len(rows), UNKNOWN, np.int64)
    waits = analysis.waiting[step.where] if analysis.waiting else None
    return [
        np.full(len(rows), index, np.int64), call, pieces.start[rows], pieces.end[rows],
        host, wait, pieces.ns[rows] - host - wait, causes.cause[rows],
        calls.operation[call], groups[calls.group[call]],
        places.phase[call], places.bucket[call], places.flag[call], calls.size_bytes[call],
        unknown if waits is None else np.asarray(waits.last_rank, np.int64)[call],
        unknown if waits is None else np.asarray(waits.match, np.int64)[call],
        pieces.window[rows], places.purpose[call], places.module[call].astype(np.int64),
        pieces.start[rows] >= _compute_ends(step)[pieces.window[rows]], _delays(rank)[rows],
        _awaited(pieces.start[rows], pieces.end[rows], host, pieces.ns[rows]),
    ]  # fmt: skip


def _awaited(start: Int64Array, end: Int64Array, host: Int64Array, ns: Int64Array) -> Mask:
    """Whether the stretch of exposed time around a piece ends otherwise than host-bound; pieces in order of time."""
    if not len(start):
        return np.zeros(0, np.bool_)
    reached = np.maximum.accumulate(end)
    begins = np.concatenate([[True], start[1:] > reached[:-1]])
    stretch = np.cumsum(begins) - 1
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)
    decided: Mask = (host[last] < ns[last])[stretch]
    return decided


def _delays(rank: RankAnalysis) -> Int64Array:
    """Reasons of the host-bound part of every piece of a rank."""
    known = rank.delays
    return np.zeros((len(rank.shares.pieces), len(DELAYS)), np.int64) if known is None else known.exposed


def _compute_ends(step: ReferenceStep) -> Int64Array:
    """End of the last compute of every window of the rank, by index of its name."""
    known = {window.name: window.compute_end for window in step.device.steps}
    never = np.iinfo(np.int64).max
    return np.array([known.get(name) or never for name in step.rank.shares.step_names], np.int64)


def _idle(steps: Sequence[ReferenceStep]) -> Idle:
    """Idle rows of the reference steps; where their causes are not known the host-bound part is ``launch``.

    The part of ``launch`` that has a reason of ``DELAYS`` is a row of its own with that as its cause.
    """
    out: list[tuple[int, str, int, int, str | None]] = []
    for index, step in enumerate(steps):
        rows = [(row.cause, row.ns, row.count, row.op, row.step) for row in _idle_of(step)]
        if sum(row[1] for row in rows) != step.total("idle"):
            host = step.total("idle_host")
            rows = [("launch", host, 0, None, -1), ("unknown", step.total("idle") - host, 0, None, -1)]
        for cause, ns, count, op, window in rows:
            left = ns
            if cause == "launch" and step.rank.delays is not None:
                parts = step.rank.delays.idle.get((step.device.device, window), ())
                for reason, part in zip(DELAYS, parts, strict=False):
                    given = min(left, int(part))
                    out.append((index, reason, given, 0, None))
                    left -= given
            out.append((index, cause, left, count, op))
    step_of, causes, ns_of, counts, ops = (list(column) for column in zip(*out, strict=True)) if out else [[]] * 5
    return Idle(np.array(step_of, np.int64), causes, np.array(ns_of, np.int64), np.array(counts, np.int64), ops)


def _idle_of(step: ReferenceStep) -> list[IdleTime]:
    names = step.rank.shares.step_names
    windows = {number for number, name in enumerate(names) if name in step.unit.names}
    return [row for row in step.rank.idle if row.step in windows and row.device == step.device.device]
