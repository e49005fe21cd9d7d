"""Whether a run would end earlier without a late rank: what makes it late has to lie on the critical path.

Others can wait for a rank while nothing depends on it: their CPUs are no further by the end of the wait, or another
rank is later still. What they would not wait for this rank they would idle or wait for somebody else. The time of a
cause on the critical path is the most that comes back without it (:mod:`commprof.analysis.critical_path`). Nor does all
of that: members of a call send while they wait for the last one, and what has reached its buffers by then its transfer
lacks (``spec``: section 6). Without the lateness the transfer may be longer by that. What comes back at most has to be
as much of the step as the charge has to be, and half of that has to be sure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.behaviour import COMM, HOST
from commprof.analysis.charges import Charges
from commprof.analysis.critical_path import CriticalPath, beyond_role, usual_of_role
from commprof.analysis.lateness import Float64Array
from commprof.analysis.model import Analysis, Note
from commprof.analysis.segments import MOST, largest, smallest
from commprof.analysis.stragglers import SHARE_OF_STEP, Straggler
from commprof.analysis.waiting import UNKNOWN
from commprof.intervals import Int64Array
from commprof.units import format_share

WHY_NOT = "the others wait for it, but the step need not end earlier without that"
_SURE = 0.5
_SENT = 0.25
"""Up to so much of what is seen of a transfer, a fifth of the whole, is reckoned to have been sent before."""


def apart(
    analysis: Analysis, stragglers: Sequence[Straggler], charges: Charges, path: CriticalPath | None
) -> tuple[list[Straggler], list[Straggler]]:
    """Late ranks without whom the run would end earlier, or of whom that cannot be told, and those who cost nothing;
    a note tells of the latter."""
    named: list[Straggler] = []
    harmless: list[Straggler] = []
    for row in stragglers:
        bounds = shares_on_path(analysis, row, charges, path)
        enough = bounds is None or (bounds[0] >= _SURE * SHARE_OF_STEP and bounds[1] >= SHARE_OF_STEP)
        (named if enough else harmless).append(row)
    for row in harmless:
        who = f"rank {row.rank}" if row.rank is not None else f"host {row.host}" if row.role is None else row.role
        analysis.notes.append(
            Note(
                "waits-cost-nothing",
                f"{who}: {WHY_NOT}. They wait {format_share(row.share)} of the step, but of the critical path of the "
                f"run less than {format_share(SHARE_OF_STEP)} is what makes {who} late, or less than half of that is "
                "sure to come back without it, so it is not among the late ranks.",
            )
        )
    return named, harmless


def shares_on_path(
    analysis: Analysis, row: Straggler, charges: Charges, path: CriticalPath | None
) -> tuple[float, float] | None:
    """What comes back of the path without what makes these ranks late, at least and at most, as shares of the steps in
    which they are; ``None`` where the path does not tell it, or where nobody does the same as they."""
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
        found = cpu_longer(analysis, charges, path, late)
    else:
        return None
    steps = len(row.steps) if row.kind == "intermittent" else path.steps
    length = path.length / path.steps * max(1, steps)
    back = float(found[late].sum())
    sure = max(back - _sent_meanwhile(analysis, charges, path, late), 0.0)
    return sure / length, back / length


def cpu_longer(analysis: Analysis, charges: Charges, path: CriticalPath, late: NDArray[np.bool_]) -> Float64Array:
    """What the CPUs of late ranks do longer than those of the others, as far as it is on the path.

    What all of their launches are slower by lies on it in proportion; the rest, a pause, may lie there whole.
    """
    longer = (charges.lateness.excess[:, :, HOST] + charges.lateness.unseen[:, :, 1]).sum(axis=1)
    busy = [0 if rank.behaviour is None else rank.behaviour.host_busy[1].max(initial=0) for rank in analysis.ranks]
    slower, all_of_it = _slower(path, late), path.pauses + path.launching + path.cpu
    at_once = np.maximum(longer - slower * np.array(busy), 0.0)
    return np.asarray(np.minimum((path.cpu + path.launching) * slower + np.minimum(all_of_it, at_once), all_of_it))


def _behind_launches(path: CriticalPath, late: NDArray[np.bool_]) -> Float64Array:
    """What the CPU of each rank is on the path for because it launches less often than those of the others: one that
    launches a kernel only once the one before it is done, as when launches block, is as slow as its device."""
    return np.asarray((path.cpu + path.launching) * _slower(path, late))


def _slower(path: CriticalPath, late: NDArray[np.bool_]) -> Float64Array:
    """By which part of its time between launches the CPU of each late rank is slower than those of the others."""
    return np.asarray(1 - usual_of_role(path.gap, path.role, late) / np.maximum(path.gap, 1.0))


def _sent_meanwhile(analysis: Analysis, charges: Charges, path: CriticalPath, late: NDArray[np.bool_]) -> float:
    """What transfers on the path lack at most because the others sent while they waited for late ranks, nanoseconds.

    Without these the first of the others would still wait for the last of those, and for what transfers and waits of
    the late ranks themselves make them late by. Who waits for a message sends nothing.
    """
    found, times, entries = analysis.matching, analysis.times, charges.late
    if found is None or times is None:
        return 0.0
    inside = path.match >= 0
    most = np.zeros(len(found))
    most[path.match[inside]] = path.transfers[inside] * _SENT
    mine = np.flatnonzero(late[entries.rank])
    part = np.zeros(len(found))
    np.maximum.at(part, entries.match[mine], 1 - (charges.lateness.local[:, COMM] + charges.lateness.passing)[mine])
    most[times.one_way] = 0.0
    others = ~late[found.calls.rank[found.rows]] & (times.wait != UNKNOWN)
    longest = largest(np.where(others, times.wait, 0), found.first)
    shortest = np.minimum(smallest(np.where(others, times.wait, MOST), found.first), longest)
    return float((np.minimum(most, longest) - np.minimum(most, longest - part * shortest)).sum())
