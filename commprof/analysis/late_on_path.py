"""Whether a run would end earlier without a late rank: what makes it late has to lie on the critical path.

Others can wait for a rank while nothing depends on it: their CPUs are no further by the end of the wait, or another
rank is later still. What they would not wait for this rank they would idle or wait for somebody else. The time of a
cause on the critical path is the most that comes back without it (:mod:`commprof.analysis.critical_path`): to be named
it has to be as much of the step as the charge has to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.behaviour import HOST
from commprof.analysis.charges import Charges
from commprof.analysis.critical_path import CriticalPath, beyond_role, usual_of_role
from commprof.analysis.lateness import Float64Array
from commprof.analysis.model import Analysis, Note
from commprof.analysis.stragglers import SHARE_OF_STEP, Straggler
from commprof.intervals import Int64Array
from commprof.units import format_share

WHY_NOT = "the others wait for it, but the step would not end earlier without that"


def apart(
    analysis: Analysis, stragglers: Sequence[Straggler], charges: Charges, path: CriticalPath | None
) -> tuple[list[Straggler], list[Straggler]]:
    """Late ranks without whom the run would end earlier, or of whom that cannot be told, and those who cost nothing;
    a note tells of the latter."""
    named: list[Straggler] = []
    harmless: list[Straggler] = []
    for row in stragglers:
        share = share_on_path(analysis, row, charges, path)
        (named if share is None or share >= SHARE_OF_STEP else harmless).append(row)
    for row in harmless:
        who = f"rank {row.rank}" if row.rank is not None else f"host {row.host}" if row.role is None else row.role
        analysis.notes.append(
            Note(
                "waits-cost-nothing",
                f"{who}: {WHY_NOT}. They wait {format_share(row.share)} of the step, but less than "
                f"{format_share(SHARE_OF_STEP)} of the critical path of the run is what makes {who} late, so it is not "
                "named.",
            )
        )
    return named, harmless


def share_on_path(analysis: Analysis, row: Straggler, charges: Charges, path: CriticalPath | None) -> float | None:
    """What makes these ranks late, as a share of the path of the steps in which they are; ``None`` where the path does
    not tell it, or where nobody does the same as they."""
    if path is None or not path.length or row.kind == "rotating":
        return None
    # A CPU that is never seen to wait for its device may do so unseen, in launches that block: no path is sure then.
    if any(rank.trail is None or not len(rank.trail.waits) for rank in analysis.ranks):
        return None
    late = np.isin([rank.rank for rank in analysis.ranks], row.members)
    if not np.isin(path.role[late], path.role[~late]).all():
        return None
    found: Float64Array | Int64Array
    if row.cause == "slow-device":
        # All of its kernels take longer: of those on the path as much goes as of all.
        part = beyond_role(path.compute, path.compute, path.role, late) / np.maximum(path.compute, 1)
        found = path.own * part + _behind_launches(path, late)
    elif row.cause == "more-work":
        # What there is more of has to be launched too.
        found = beyond_role(path.own + path.cpu + path.launching, path.compute, path.role, late)
    elif row.cause == "input":
        found = beyond_role(path.inputs, path.fetched, path.role, late)
    elif row.cause == "host":
        # All that its CPU does on the path, up to what it does longer than those of the others.
        longer = charges.lateness.excess[:, :, HOST] + charges.lateness.unseen[:, :, 1]
        found = np.minimum(path.pauses + path.launching + path.cpu, longer.sum(axis=1))
    else:
        return None
    steps = len(row.steps) if row.kind == "intermittent" else path.steps
    return float(found[late].sum()) / path.length * path.steps / max(1, steps)


def _behind_launches(path: CriticalPath, late: NDArray[np.bool_]) -> Float64Array:
    """What the CPU of each rank is on the path for because it launches less often than those of the others: one that
    launches a kernel only once the one before it is done, as when launches block, is as slow as its device."""
    slower = 1 - usual_of_role(path.gap, path.role, late) / np.maximum(path.gap, 1.0)
    return np.asarray((path.cpu + path.launching) * slower)
