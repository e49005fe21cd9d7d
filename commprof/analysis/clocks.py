"""The clocks of the ranks against each other, from the ends of synchronising calls (``spec``: section 6).

All members of such a call end together, whoever entered late; sources of one-directional calls end early, always in the
same direction, and are left out. Offsets are medians, alternately of the ends of a call over its ranks and of the
differences of a rank over its calls, so that single odd ends count little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import SYNCHRONISING
from commprof.analysis.codes import operation_is
from commprof.analysis.matching import COLLECTIVE, Matching
from commprof.analysis.segments import any_of, medians
from commprof.intervals import Int64Array
from commprof.trace.splits import UNEQUAL, UNKNOWN

Float64Array = NDArray[np.float64]

LEAST_UNCERTAINTY_NS = 1_000
"""No clock is claimed to be known better (``spec``: section 6)."""
_DRIFT_FROM_NS = 1_000_000_000
"""Shorter captures get no drift (``spec``: section 6)."""
_CALLS_PER_LANE = 300
"""Ends of so many calls of a group, spread over the capture, give its medians as well as all of them."""
_ROUNDS = 4
"""Alternations of the two medians. The last one leaves drifts alone, so that offsets fit the drifts found before."""
_DRIFT_CALLS = 12
"""Four ends in the first and in the last third: fewer give the drift of their noise."""


@dataclass(slots=True, eq=False)
class Clocks:
    """Per rank of the input, shape ``(ranks,)``: ``offset`` ns that its clock is ahead of that of the first rank of its
    ``component`` at ``origin``, ``drift`` (ns per ns) by which it gains on it. Ranks of different components have no
    common clock. ``uncertainty`` per rank in ns (that of its component)."""

    origin: int
    offset: Int64Array
    drift: Float64Array
    component: Int64Array
    uncertainty: Int64Array
    joined: NDArray[np.bool_]
    """Whether any call ties the rank to another one."""

    def aligned(self, instants: Int64Array, rank: Int64Array) -> Int64Array:
        """Unix instants on the clocks of ``rank`` as the clock of the component shows them."""
        since = instants - self.origin
        gained = np.floor(self.drift[rank] * (since - self.offset[rank]) + 0.5).astype(np.int64)
        return since - self.offset[rank] - gained

    @property
    def worst(self) -> int | None:
        """The largest uncertainty of any component; ``None`` where no two ranks have a common clock."""
        return int(self.uncertainty[self.joined].max()) if self.joined.any() else None


def synchronising(found: Matching) -> NDArray[np.bool_]:
    """Matches whose members end together: shape ``(matches,)``.

    All-to-alls only where equal splits are known: kernels that send tokens to experts (DeepEP's dispatch) state none.
    """
    calls, rows = found.calls, found.rows
    kind = operation_is(found.operation, *SYNCHRONISING) & (found.source == COLLECTIVE)
    unequal, fused = calls.unequal[rows], calls.fused[rows]
    return np.asarray(kind & ~any_of((unequal == UNEQUAL) | ((unequal == UNKNOWN) & ~fused), found.first))


def align_clocks(found: Matching, hosts: Sequence[str | None]) -> Clocks:
    """Offset and drift of every rank; ``hosts`` by rank in the input, ``None`` where unknown."""
    calls = found.calls
    count = len(calls.numbers)
    usable = _sample(found, synchronising(found) & ~any_of(calls.fused[found.rows], found.first))
    chosen = np.flatnonzero(usable[found.of_row])
    rows, match = found.rows[chosen], found.of_row[chosen]
    rank = calls.rank[rows]
    _, match = np.unique(match, return_inverse=True)
    origin = int(calls.start.min()) if len(calls) else 0
    end = (calls.end[rows] - origin).astype(np.float64)
    component = _components(match, rank, count)
    fit = _Fit(match, rank, end, component)
    offset, drift = fit.run()
    joined = np.bincount(rank, minlength=count) > 0
    uncertainty = _uncertainty(fit.left(offset, drift), component, rank)
    offset, drift = _by_host(offset, drift, component, uncertainty, hosts)
    return Clocks(
        origin, np.floor(offset + 0.5).astype(np.int64), drift, component, uncertainty[component], joined
    )  # fmt: skip


def _sample(found: Matching, usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """At most some hundred calls of every group, spread over the capture: more tell nothing new."""
    order = np.flatnonzero(usable)
    order = order[np.argsort(found.group[order], kind="stable")]
    group = found.group[order]
    starts = np.flatnonzero(np.append(True, group[1:] != group[:-1])) if len(group) else np.empty(0, np.int64)
    sizes = np.diff(np.append(starts, len(group)))
    place = np.arange(len(group)) - np.repeat(starts, sizes)
    stride = np.repeat(-(-sizes // _CALLS_PER_LANE), sizes)
    keep = np.zeros(len(usable), np.bool_)
    keep[order[place % stride == 0]] = True
    return keep


def _components(match: Int64Array, rank: Int64Array, count: int) -> Int64Array:
    """For each rank the lowest rank that a chain of calls connects it with."""
    label = np.arange(count)
    matches = int(match.max()) + 1 if len(match) else 0
    while True:
        lowest = np.full(matches, count)
        np.minimum.at(lowest, match, label[rank])
        after = label.copy()
        np.minimum.at(after, rank, lowest[match])
        if (after == label).all():
            return label
        label = after


class _Fit:
    """Offsets and drifts that leave the ends of every call as close together as they can be."""

    def __init__(self, match: Int64Array, rank: Int64Array, end: Float64Array, component: Int64Array) -> None:
        self.match, self.rank, self.end, self.component = match, rank, end, component
        self.matches = int(match.max()) + 1 if len(match) else 0
        self.ranks = len(component)

    def run(self) -> tuple[Float64Array, Float64Array]:
        offset, drift = self._spread_out(), np.zeros(self.ranks)
        if not len(self.end):
            return offset, drift
        span = float(self.end.max() - self.end.min())
        for turn in range(_ROUNDS):
            when = self._when(offset, drift)
            offset = offset + np.nan_to_num(medians(self._left(offset, drift, when), self.rank, self.ranks))
            if span > _DRIFT_FROM_NS and turn < _ROUNDS - 1:
                drift = drift + self._gain(self._left(offset, drift, when))
                drift -= drift[self.component]
            offset -= offset[self.component]
        return offset, drift

    def left(self, offset: Float64Array, drift: Float64Array) -> Float64Array:
        """What remains of the end of every row against the median end of its call."""
        return self._left(offset, drift, self._when(offset, drift))

    def _shown(self, offset: Float64Array, drift: Float64Array) -> Float64Array:
        return self.end - offset[self.rank] - drift[self.rank] * (self.end - offset[self.rank])

    def _when(self, offset: Float64Array, drift: Float64Array) -> Float64Array:
        return np.asarray(medians(self._shown(offset, drift), self.match, self.matches))

    def _left(self, offset: Float64Array, drift: Float64Array, when: Float64Array) -> Float64Array:
        return np.asarray(self._shown(offset, drift) - when[self.match])

    def _spread_out(self) -> Float64Array:
        """First offsets: from the first rank of each component along the calls that reach the others."""
        offset = np.full(self.ranks, np.nan)
        offset[self.component == np.arange(self.ranks)] = 0.0
        while True:
            known = ~np.isnan(offset[self.rank])
            when = medians((self.end - offset[self.rank])[known], self.match[known], self.matches)
            reached = ~known & ~np.isnan(when[self.match])
            if not reached.any():
                return np.asarray(np.nan_to_num(offset))
            found = medians((self.end - when[self.match])[reached], self.rank[reached], self.ranks)
            offset = np.where(np.isnan(offset), found, offset)

    def _gain(self, left: Float64Array) -> Float64Array:
        """Drift of each rank from the first to the last third of its calls; 0 with too few of them."""
        order = np.lexsort((self.end, self.rank))
        rank, end, left = self.rank[order], self.end[order], left[order]
        count = np.bincount(rank, minlength=self.ranks)
        place = np.arange(len(rank)) - np.repeat(np.cumsum(count) - count, count)
        third = np.repeat(count // 3, count)
        early, late = place < third, place >= np.repeat(count, count) - third
        when = [medians(end[part], rank[part], self.ranks) for part in (early, late)]
        value = [medians(left[part], rank[part], self.ranks) for part in (early, late)]
        span = when[1] - when[0]
        enough = (count >= _DRIFT_CALLS) & (np.nan_to_num(span) > _DRIFT_FROM_NS / 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(np.where(enough, (value[1] - value[0]) / span, 0.0))


def _uncertainty(left: Float64Array, component: Int64Array, rank: Int64Array) -> Int64Array:
    """Half the range from the 5th to the 95th percentile of what remains, by component (index: its first rank)."""
    out = np.full(len(component), LEAST_UNCERTAINTY_NS, np.int64)
    order = np.argsort(component[rank], kind="stable")
    owner = component[rank][order]
    for first in np.unique(owner).tolist():
        low, high = np.searchsorted(owner, [first, first + 1])
        five, ninety_five = np.percentile(left[order[low:high]], [5, 95])
        out[first] = max(LEAST_UNCERTAINTY_NS, int(np.ceil((ninety_five - five) / 2)))
    return out


def _by_host(
    offset: Float64Array, drift: Float64Array, component: Int64Array, uncertainty: Int64Array,
    hosts: Sequence[str | None],
) -> tuple[Float64Array, Float64Array]:  # fmt: skip
    """One value for the ranks of a host that agree within the uncertainty: they share the CPU clock."""
    places: dict[tuple[str, int], list[int]] = {}
    for index, host in enumerate(hosts):
        if host is not None:
            places.setdefault((host, int(component[index])), []).append(index)
    offset, drift = offset.copy(), drift.copy()
    for (_, first), members in places.items():
        middle = float(np.median(offset[members]))
        if len(members) > 1 and np.abs(offset[members] - middle).max() <= uncertainty[first]:
            offset[members], drift[members] = middle, float(np.median(drift[members]))
    return offset - offset[component], drift - drift[component]
