"""Pauses of the CPU that come before most calls of one kind: what launching them takes, and no pause now and then."""

from __future__ import annotations

import numpy as np

from commprof.analysis.model import RankAnalysis
from commprof.diagnosis.ground import Ground
from commprof.trace.operations import OPERATIONS

_MOST = 0.5
"""Part of the calls of one kind that a pause comes before: garbage is collected before the one or the other of them."""
_OFTEN = 2
"""Calls of a kind in a window: before the only one of a step anything may come."""


def launches_pause(ground: Ground) -> bool:
    """Whether most of the time for which the CPUs of the reference ranks pause comes before calls of which most have
    it."""
    ranks = {step.where: step.rank for step in ground.steps}.values()
    paused = sum(rank.trail.pauses.total() for rank in ranks if rank.trail is not None)
    return paused > 0 and sum(_before_calls(rank) for rank in ranks) > _MOST * paused


def _before_calls(rank: RankAnalysis) -> int:
    """Nanoseconds of the pauses of a rank that end with the launch of a call of such a kind."""
    calls, trail = rank.calls, rank.trail
    if trail is None or not len(calls):
        return 0
    pauses = trail.pauses
    kinds = calls.group.astype(np.int64) * len(OPERATIONS) + calls.operation
    _, kind, count = np.unique(kinds, return_inverse=True, return_counts=True)
    after = np.isin(calls.launched, pauses.ends)
    windows = sum(len(device.steps) for device in rank.devices)
    habit = (np.bincount(kind, after, len(count)) >= _MOST * count) & (count >= _OFTEN * windows)
    mine = np.isin(pauses.ends, calls.launched[after & habit[kind]])
    return int((pauses.ends - pauses.starts)[mine].sum())
