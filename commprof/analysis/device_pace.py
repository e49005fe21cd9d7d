"""How many times as long a device takes for the same kernels: what of its work would go if it were as fast as others.

Communication slows the kernels beside it, and those who wait for a slow device have more of it beside theirs. So in
sum its kernels look less slow than they are; those that run beside no communication on either side (the optimizer's,
the first ones of a pass) show how slow it is. Which these are depends on the program: the kinds that differ most tell,
a tenth of the compute of the device together, so that noise of a small one decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.blame import AS_MANY, kernel_totals
from commprof.analysis.critical_path import CriticalPath, beyond_role
from commprof.analysis.model import RankAnalysis
from commprof.intervals import Int64Array

_TELL = 0.1
"""Kinds that are this part of what is compared, those that differ most, tell the pace."""
_AS_MUCH = 0.5
"""Kinds that others run as often have to be this part of all compute."""
_MOST, _AGREE = 0.51, 0.5
"""Most of the compute has to be slower by this part of the pace at least: communication hides no more than that."""
_FEWEST_KINDS = 2
_MOST_OTHERS = 64


def excess_on_path(path: CriticalPath, ranks: Sequence[RankAnalysis], late: NDArray[np.bool_]) -> Int64Array:
    """What devices of late ranks take longer than those of their role, as far as it is on the path; nanoseconds of
    shape ``(ranks,)``, 0 for all others.

    Where all kinds of kernels are slower, of what is on the path as much goes as of all; of a few, all may lie there.
    """
    out = beyond_role(path.own, path.compute, path.role, late)
    for index in np.flatnonzero(late).tolist():
        others = np.flatnonzero((path.role == path.role[index]) & ~late)
        pace = device_pace(ranks[index], [ranks[other] for other in others.tolist()])
        if pace is not None:
            out[index] = round(int(path.own[index]) * (1 - 1 / pace))
    return out


def device_pace(rank: RankAnalysis, others: Sequence[RankAnalysis]) -> float | None:
    """How many times as long as the median of the others ``rank`` takes for kernels of one name and grid that it runs
    as often; at least 1. ``None`` where these are too few, or where some kinds are slower and most are not."""
    if not others or not rank.devices:
        return None
    names = [step.name for step in rank.devices[0].steps]
    mine = kernel_totals(rank, names)
    theirs = [kernel_totals(other, names) for other in others[:_MOST_OTHERS]]
    found = []
    for kind, (count, ns) in mine.items():
        known = [table[kind] for table in theirs if kind in table]
        if 2 * len(known) < len(theirs):
            continue
        usual = float(np.median([calls for calls, _ in known]))
        if abs(count - usual) <= AS_MANY * usual:
            found.append((ns / count / max(float(np.median([total / calls for calls, total in known])), 1.0), ns))
    ratio, weight = np.array(sorted(found, reverse=True)).reshape(-1, 2).T
    reached = np.cumsum(weight)
    if len(found) < _FEWEST_KINDS or reached[-1] < _AS_MUCH * sum(ns for _, ns in mine.values()):
        return None
    pace, usual = (max(float(ratio[np.searchsorted(reached, part * reached[-1])]), 1.0) for part in (_TELL, _MOST))
    return pace if usual - 1 >= _AGREE * (pace - 1) else None
