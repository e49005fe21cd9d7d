"""How much of exposed time is waiting for late ranks, bubble or unequal exchange, over all ranks and steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.flags import FIRST_USE, PROFILER_START
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.steps import units
from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.findings.straggler import roots
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_P2P = [OPERATIONS.index(name) for name in ("send", "recv", "send_recv")]


@dataclass(frozen=True, slots=True)
class Lost:
    """Nanoseconds over all ranks and the steps that means are taken over.

    ``waiting`` is exposed waiting (``None``: not known of any call), ``late`` what named late ranks whose lateness is
    a fault cost the others: the part of it for them (``late_waiting``), and transfers that they displaced. ``uneven``
    is waiting for ranks with more work or in unequal all-to-alls, ``bubble`` idle time and waiting for messages inside
    pipelines, ``input`` idle time in which the loop waits for its data. ``artefact`` is exposed time, without its
    host-bound part, of calls that only the start of the recording or of a communicator made long.
    """

    waiting: int | None = None
    late: int = 0
    uneven: int = 0
    bubble: int = 0
    input: int = 0
    artefact: int = 0
    late_waiting: int = 0


def lost_time(analysis: Analysis) -> Lost:
    """Add up what every rank waited and idled in the steps that the verdict is about."""
    known = bool(analysis.waiting) and any((waits.match >= 0).any() for waits in analysis.waiting)
    root = roots(analysis) if known else None
    named = analysis.stragglers
    faults = [row for row in named if row.cause != "more-work"]
    heavier = [row for row in named if row.cause == "more-work"]
    uneven = {row.match for row in analysis.imbalance}
    sums = dict.fromkeys(("waiting", "late", "uneven", "bubble", "artefact"), 0)
    idle: Counter[str] = Counter()
    for index, rank in enumerate(analysis.ranks):
        chosen = _windows(rank)
        for row in rank.idle:
            if row.step in chosen:
                idle[row.cause] += row.ns
        sums["artefact"] += _artefact(rank, chosen)
        if not known:
            continue
        pieces, wait = rank.shares.pieces, rank.causes.wait
        rows = np.flatnonzero(np.isin(pieces.window, sorted(chosen)) & (wait > 0))
        match = analysis.waiting[index].match[pieces.call[rows]]
        ns = wait[rows]
        piped = _piped(analysis, index, rank)[pieces.call[rows]]
        sums["waiting"] += int(ns.sum())
        late = np.full(len(rows), -1) if root is None else np.where(match >= 0, root[match], -1)
        members = [number for row in faults for number in row.members]
        rotating = any(row.kind == "rotating" for row in faults)
        fault = (late >= 0) if rotating else np.isin(late, members)
        other = np.isin(late, [number for row in heavier for number in row.members]) | np.isin(match, sorted(uneven))
        sums["late"] += int(ns[fault & ~other].sum())
        sums["uneven"] += int(ns[other].sum())
        sums["bubble"] += int(ns[piped & ~fault & ~other].sum())
    waiting = sums["waiting"] if known else None
    late_waiting = sums["late"]
    if root is not None and faults:
        sums["late"] = max(sums["late"], _charged(analysis, root, faults))
    bubble = sums["bubble"] + idle["bubble"]
    return Lost(waiting, sums["late"], sums["uneven"], bubble, idle["input"], sums["artefact"], late_waiting)


def _artefact(rank: RankAnalysis, chosen: set[int]) -> int:
    pieces = rank.shares.pieces
    rows = np.isin(pieces.window, sorted(chosen)) & np.isin(rank.places.flag[pieces.call], (PROFILER_START, FIRST_USE))
    return int((pieces.ns - rank.causes.host)[rows].sum())


def _charged(analysis: Analysis, root: Int64Array, faults: Sequence[Straggler]) -> int:
    """What the others lose in calls in which the lateness began with named ranks: waiting that shows, and transfers
    that show because waiting behind compute had held them up; unequal exchanges charge nobody."""
    charges, found = analysis.charges, analysis.matching
    if charges is None or found is None:
        return 0
    members = [number for row in faults for number in row.members]
    rotating = any(row.kind == "rotating" for row in faults)
    blamed = (root >= 0) if rotating else np.isin(root, members)
    blamed &= ~np.isin(np.arange(len(root)), sorted({row.match for row in analysis.imbalance}))
    rows = found.rows[blamed[found.of_row]]
    names = found.calls.step_names
    # The last column is for calls of no step.
    chosen = np.zeros((len(analysis.ranks), len(names) + 1), np.bool_)
    for index, rank in enumerate(analysis.ranks):
        kept = {rank.shares.step_names[window] for window in _windows(rank)}
        chosen[index, :-1] = [name in kept for name in names]
    mine = chosen[found.calls.rank[rows], charges.step[rows]]
    return int(charges.waited[rows[mine]].sum())


def _windows(rank: RankAnalysis) -> set[int]:
    """Steps that means are taken over, as indices of their names."""
    names = {name for device in rank.devices for unit in units(device, rank.optimizer_marks) for name in unit.names}
    return {index for index, name in enumerate(rank.shares.step_names) if name in names}


def _piped(analysis: Analysis, index: int, rank: RankAnalysis) -> NDArray[np.bool_]:
    """Which calls are messages of a pipeline."""
    groups = [group for group, role in enumerate(analysis.roles) if role.name == "pp"]
    to_global = np.array([*analysis.group_of[index], -1], np.int64)
    return np.isin(to_global[rank.calls.group], groups) & np.isin(rank.calls.operation, _P2P)
