"""How much of exposed time is waiting for late ranks, bubble or unequal exchange, over all ranks and steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.steps import units
from commprof.diagnosis.findings.straggler import roots
from commprof.trace.operations import OPERATIONS

_P2P = [OPERATIONS.index(name) for name in ("send", "recv", "send_recv")]


@dataclass(frozen=True, slots=True)
class Lost:
    """Nanoseconds over all ranks and the steps that means are taken over.

    ``waiting`` is exposed waiting (``None``: not known of any call), ``late`` the part for named late ranks whose
    lateness is a fault, ``uneven`` that for ranks with more work or in unequal all-to-alls, ``bubble`` idle time and
    waiting for messages inside pipelines, ``input`` idle time in which the loop waits for its data.
    """

    waiting: int | None = None
    late: int = 0
    uneven: int = 0
    bubble: int = 0
    input: int = 0


def lost_time(analysis: Analysis) -> Lost:
    """Add up what every rank waited and idled in the steps that the verdict is about."""
    known = bool(analysis.waiting) and any((waits.match >= 0).any() for waits in analysis.waiting)
    root = roots(analysis) if known else None
    named = analysis.stragglers
    faults = [row for row in named if row.cause != "more-work"]
    heavier = [row for row in named if row.cause == "more-work"]
    uneven = {row.match for row in analysis.imbalance}
    sums = dict.fromkeys(("waiting", "late", "uneven", "bubble"), 0)
    idle: Counter[str] = Counter()
    for index, rank in enumerate(analysis.ranks):
        chosen = _windows(rank)
        for row in rank.idle:
            if row.step in chosen:
                idle[row.cause] += row.ns
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
    return Lost(waiting, sums["late"], sums["uneven"], sums["bubble"] + idle["bubble"], idle["input"])


def _windows(rank: RankAnalysis) -> set[int]:
    """Steps that means are taken over, as indices of their names."""
    names = {name for device in rank.devices for unit in units(device, rank.optimizer_marks) for name in unit.names}
    return {index for index, name in enumerate(rank.shares.step_names) if name in names}


def _piped(analysis: Analysis, index: int, rank: RankAnalysis) -> NDArray[np.bool_]:
    """Which calls are messages of a pipeline."""
    groups = [group for group, role in enumerate(analysis.roles) if role.name == "pp"]
    to_global = np.array([*analysis.group_of[index], -1], np.int64)
    return np.isin(to_global[rank.calls.group], groups) & np.isin(rank.calls.operation, _P2P)
