"""What calls that need not be cost on the critical path of the run: the CPU's time to launch them, and their latency.

A step ends when its path does, whatever a call hides or exposes elsewhere: a launch on the path delays everything that
the CPU does after it, and latency on the path everything that waits for the call, be it a later stage of a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.purposes import GRADIENTS, PARAMETERS
from commprof.diagnosis.findings.shorter import transfers_of
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.on_path import OnPath
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_APART = 2
"""Messages tell latency from bandwidth where the largest is so many times as large as the smallest."""

_UNDISTURBED = 0.25
"""Quantile of durations of like messages: a link that fails now and then makes the others long."""


Float64Array = NDArray[np.float64]
LatencyOf = Callable[[int], Int64Array]
"""From the place of a rank in the analysis to the latency of each of its calls, nanoseconds; 0 where it counts not."""


def needless_on_path(ground: Ground, launching: Float64Array, removable: float, latency_of: LatencyOf) -> OnPath | None:
    """What of the path goes if the part ``removable`` of some calls is not made; ``None`` where there is no path.

    ``launching`` is the part of the time for launching communication that these calls take on the CPU of each rank at
    the usual cost of one, shape ``(ranks,)``. No instant is sure to
    be theirs: it comes after what others are charged with.
    """
    path = ground.analysis.critical_path
    if path is None:
        return None
    latency, seen = np.zeros(len(path.match), np.int64), np.zeros(len(path.match), np.bool_)
    for where, waits in enumerate(ground.analysis.waiting):
        match = np.asarray(waits.match, np.int64)
        mine = np.flatnonzero((match >= 0) & np.isin(match, path.match))
        place = np.searchsorted(path.match, match[mine])
        if not seen[place].all():
            latency[place] = np.maximum(latency[place], latency_of(where)[mine])
            seen[place] = True
    return OnPath(
        {"launching": np.floor(path.launching * launching * removable).astype(np.int64)},
        ranks=len(path.role),
        sure=False,
        transfers=np.floor(np.minimum(latency, path.transfers) * removable).astype(np.int64),
    )


def latency_of_buckets(ground: Ground, rows: Mask) -> LatencyOf:
    """Of calls that come once per bucket, on every rank; ``rows`` are exposed gradient reductions of the reference
    ranks."""
    exposed = ground.exposed
    pairs = np.unique(np.stack([exposed.group[rows], exposed.operation[rows]]), axis=1).T.tolist()
    operations = sorted({OPERATIONS[operation] for _, operation in pairs})
    roles = {ground.role_of(group, OPERATIONS[operation]) for group, operation in pairs}

    def of_rank(where: int) -> Int64Array:
        rank, group_of = ground.analysis.ranks[where], ground.analysis.group_of[where]
        alike = np.isin(rank.places.purpose, (GRADIENTS, PARAMETERS))
        groups = np.unique(rank.calls.group[alike])
        same = [any(ground.role_of(group_of[one], name) in roles for name in operations) for one in groups.tolist()]
        return _latency(ground, where, alike & np.isin(rank.calls.group, groups[np.array(same, np.bool_)]))

    return of_rank


def _latency(ground: Ground, where: int, chosen: Mask) -> Int64Array:
    """What each of the chosen calls of a rank takes beyond the time of its bytes, nanoseconds; 0 for all others, and
    where sizes are too much alike to tell.

    The time of a byte is the slope between the largest messages of a kind and the largest of at most half their size: a
    joined message would be as large as these, and small ones go by other protocols.
    """
    calls = ground.analysis.ranks[where].calls
    size, lasted = calls.size_bytes, transfers_of(ground, where)
    out = np.zeros(len(size), np.int64)
    usable = chosen & (size > 0) & ~calls.fused
    for group, operation in np.unique(np.stack([calls.group[usable], calls.operation[usable]]), axis=1).T.tolist():
        mine = np.flatnonzero(usable & (calls.group == group) & (calls.operation == operation))
        large = int(size[mine].max())
        smaller = size[mine][_APART * size[mine] <= large]
        if not len(smaller):
            continue
        small = int(smaller.max())
        short, long = (float(np.median(lasted[mine[size[mine] == at]])) for at in (small, large))
        of_byte = max(0.0, (long - short) / (large - small))
        out[mine] = np.clip(_usual(size[mine], lasted[mine]) - size[mine] * of_byte, 0, None).astype(np.int64)
    return out


def _usual(size: Int64Array, lasted: Int64Array) -> Int64Array:
    """How long each message takes when nothing disturbs it: at most as long as the shorter ones of about its size."""
    about = np.frexp(size.astype(np.float64))[1]
    usual = lasted.copy()
    for power in np.unique(about).tolist():
        mine = about == power
        usual[mine] = np.minimum(lasted[mine], round(float(np.quantile(lasted[mine], _UNDISTURBED))))
    return usual
