"""Whether a pause of the host goes round: one rank after the other has it, whoever of them the others wait for.

While one rank pauses, the hosts of the others run ahead of it and have work in store when their own turn comes. So of
equal pauses only some cost anything, with two ranks those of one of them, and charges alone would accuse that one.
"""

from __future__ import annotations

import numpy as np

from commprof.analysis.behaviour import HOST
from commprof.analysis.lateness import Float64Array, Lateness
from commprof.intervals import Int64Array

_STANDS_ALONE = 2.0
"""Whose turn it is pauses at least this many times as long as the next: the others work in that step."""
_ALIKE = 0.5
"""Pauses of one kind differ by less than a factor of two (the same limit as for members that are charged alike)."""
_MOST_STEPS = 2 / 3
"""Nobody has more of the turns, however few ranks share them: with two, twice the fair share would be all."""


def host_longer(lateness: Lateness) -> Float64Array:
    """What the host of each rank did in each step beyond those of its peers, seen on the device or not, nanoseconds of
    shape ``(ranks, steps)``; 0 where a rank has no peers."""
    longer = lateness.excess[:, :, HOST] + lateness.unseen[:, :, 1]
    return np.where(np.isfinite(longer), longer, 0.0)


def turns_of_hosts(longer: Float64Array) -> Int64Array | None:
    """Whose turn it is in each step, -1 where nobody's; ``None`` where no pause goes round.

    ``longer`` as from :func:`host_longer`, of the steps that count. In most steps one rank has to stand out alone, for
    about as long each time, and nobody in more than twice its fair share of steps: with few ranks, where that would
    be all of them, in no more than two of three.
    """
    ranks, steps = longer.shape
    if ranks < 2 or steps < 2:
        return None
    ordered = np.sort(longer, axis=0)
    top = ordered[-1]
    alone = (top >= _STANDS_ALONE * ordered[-2]) & (top >= _ALIKE * top.max()) & (top > 0)
    if 2 * int(alone.sum()) <= steps:
        return None
    turn = np.where(alone, longer.argmax(axis=0), -1)
    counts = np.bincount(turn[alone], minlength=ranks)
    most = max(1.0, min(2 * steps / ranks, _MOST_STEPS * int(alone.sum())))
    if counts.max() > most or int((counts > 0).sum()) < 2:
        return None
    return np.asarray(turn, np.int64)
