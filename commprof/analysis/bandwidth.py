"""Bandwidth of calls and of process groups (``spec``: section 7).

``algbw = S / transfer`` and ``busbw = algbw * f`` as in nccl-tests; one byte per nanosecond is one GB/s. Where the
transfer is not known, because ranks are missing, ``S * f / duration`` is a lower bound: the duration includes waiting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.fit import Fit, Floats, fit
from commprof.analysis.hardware import Ceiling, ceiling
from commprof.analysis.hardware_table import Hardware
from commprof.analysis.hosts import ranks_per_host
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.places import FLAGS
from commprof.intervals import Int64Array
from commprof.trace.model import Calls
from commprof.trace.operations import OPERATIONS, bus_factor

ENOUGH_CLEAN = 5
"""Group medians and fits use clean calls alone where there are at least so many."""

FEWEST_CLEAN = 2
"""One call alone may be odd; from so many clean ones on they speak for themselves, beside whatever is contended."""

_HARDLY = 1.25
"""Rates are alike up to this: healthy transfers of one size scatter by a tenth to a fifth."""

_ALL_TO_ALL = OPERATIONS.index("all_to_all")
_ODD = [FLAGS.index("profiler-start"), FLAGS.index("first-use")]


class Waits(Protocol):
    """What is known of waiting for the calls of one rank, arrays of shape ``(calls,)``; -1 is unknown."""

    match: Int64Array
    wait: Int64Array
    transfer: Int64Array
    members_missing: Int64Array
    bound: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CallRates:
    """GB/s of every call of a rank, shape ``(calls,)``, NaN where it cannot be stated."""

    algbw: Floats
    busbw: Floats
    at_least: Floats


@dataclass(frozen=True, slots=True, eq=False)
class GroupBandwidth:
    """One operation of one process group.

    ``median`` and ``best`` are bus bandwidths in GB/s over ``calls`` calls: over the ``clean`` ones if there are at
    least five, else over all of them, and then ``contended`` is set. With ``bound`` no transfer is known and ``fit``
    holds the shortest durations per size, so that predictions are upper bounds of the time.
    """

    group: int
    operation: str
    members: int
    factor: float
    median: float | None
    best: float | None
    calls: int
    clean: int
    contended: bool
    bound: bool
    fit: Fit
    ceiling: Ceiling | None = None
    few_clean: Fit | None = None
    """The clean calls where they are not enough for ``fit``."""

    def predict(self, size_bytes: float) -> tuple[int, bool]:
        """Nanoseconds that a message of ``size_bytes`` takes, and whether that is extrapolated."""
        return self.fit.predict(size_bytes * self.factor)

    @property
    def undisturbed(self) -> bool:
        """Whether every call that the figures rest on is clean, be they five or fewer."""
        return not self.bound and (not self.contended or 0 < self.clean == self.calls)

    @property
    def claimable(self) -> Fit | None:
        """What the network can be held to: clean calls alone, be they few."""
        if self.undisturbed:
            return self.fit
        return self.few_clean if self.clean >= FEWEST_CLEAN else None

    @property
    def best_is_clean(self) -> bool:
        """Whether a call that ran alone was hardly slower than the best of all: so the best one had the link alone as
        well, and the clean one is not odd, were it the only one."""
        few = self.few_clean
        if few is None or not self.best:
            return False
        return bool((np.asarray(few.moved) / np.asarray(few.ns)).max() * _HARDLY >= self.best)

    @property
    def efficiency(self) -> float | None:
        """Median against the lower end of the ceiling; above 1 where a better algorithm or in-switch reduction runs."""
        return self.median / self.ceiling.low if self.ceiling and self.median is not None else None


def call_rates(rank: RankAnalysis, groups: Sequence[int], analysis: Analysis, waits: Waits | None) -> CallRates:
    """Bandwidth of every call of a rank; ``groups`` maps its groups to those of the run."""
    calls = rank.calls
    nothing = np.full(len(calls), np.nan)
    if not len(calls):
        return CallRates(nothing, nothing, nothing)
    size = calls.size_bytes.astype(np.float64)
    factor = factors(calls.operation, _members(calls, groups, analysis))
    usable = (calls.size_bytes > 0) & ~np.isnan(factor) & ~calls.fused
    algbw, whole = nothing, np.zeros(len(calls), np.bool_)
    if waits is not None:
        whole = (waits.members_missing == 0) & ~waits.bound
        known = usable & whole & (waits.transfer > 0)
        algbw = np.where(known, size / np.maximum(waits.transfer, 1), np.nan)
    # Without split sizes an all-to-all may be unequal, and then it has no bandwidth.
    lower = usable & ~whole & (calls.duration > 0) & ((calls.operation != _ALL_TO_ALL) | (calls.unequal == 0))
    at_least = np.where(lower, size * factor / np.maximum(calls.duration, 1), np.nan)
    return CallRates(algbw, algbw * factor, at_least)


def factors(operation: NDArray[np.integer], members: Int64Array) -> Floats:
    """``f`` of each call, NaN where it is not defined."""
    wide = np.int64(1) << 32
    keys, inverse = np.unique(operation.astype(np.int64) * wide + np.maximum(members, 0), return_inverse=True)
    values = [bus_factor(OPERATIONS[key // wide], key % wide) for key in keys.tolist()]
    return np.array([np.nan if value is None else value for value in values], np.float64)[inverse]


def _members(calls: Calls, groups: Sequence[int], analysis: Analysis) -> Int64Array:
    """Size of the group of each call, -1 unknown."""
    sizes = np.array([*(analysis.groups[group].size or -1 for group in groups), -1], np.int64)
    return np.where(calls.group_size > 0, calls.group_size, sizes[calls.group])


@dataclass(slots=True, eq=False)
class _Points:
    """Calls of all ranks that can say something about bandwidth: columns of one row each."""

    group: Int64Array
    operation: Int64Array
    members: Int64Array
    size: Int64Array
    ns: Int64Array
    clean: NDArray[np.bool_]


def find_bandwidth(
    analysis: Analysis, waiting: Sequence[Waits], hosts: Mapping[int, str], hardware: Hardware | None
) -> dict[tuple[int, str], GroupBandwidth]:
    """Bandwidth per (group, operation), over all ranks; one entry per match, not per rank.

    ``waiting`` is empty where only one rank is in the input; then, and for groups without a complete match, the entry
    is a bound from durations.
    """
    transfers, durations = _points(analysis, waiting)
    found = _per_group(transfers, bound=False)
    for key, entry in _per_group(durations, bound=True).items():
        found.setdefault(key, entry)
    out = {}
    for (group, operation), entry in found.items():
        ranks = analysis.groups[group].ranks
        per_host = ranks_per_host(ranks, hosts) if ranks else None
        top = ceiling(hardware, operation, entry.members, per_host)
        out[group, operation] = replace(entry, ceiling=top)
    return out


def _points(analysis: Analysis, waiting: Sequence[Waits]) -> tuple[_Points, _Points]:
    """One row per complete match with a transfer, and one per call of any rank with its duration."""
    columns: dict[str, list[NDArray[np.generic]]] = {name: [] for name in _COLUMNS}
    for index, (rank, groups) in enumerate(zip(analysis.ranks, analysis.group_of, strict=True)):
        calls = rank.calls
        waits = waiting[index] if waiting else None
        to_global = np.array([*groups, -1], np.int64)
        unknown = np.full(len(calls), -1, np.int64)
        values = {
            "group": to_global[calls.group],
            "operation": calls.operation.astype(np.int64),
            "members": _members(calls, groups, analysis),
            "size": calls.size_bytes,
            "duration": calls.duration,
            # Neither compute nor another communication beside it: then the call was alone for all of its time.
            "alone": rank.shares.sole == calls.duration,
            "usable": (calls.size_bytes > 0) & ~calls.fused & ~np.isin(rank.places.flag, _ODD)
            & (to_global[calls.group] >= 0) & (calls.unequal <= 0),
            "match": unknown if waits is None else waits.match,
            "transfer": unknown if waits is None else np.where(
                (waits.members_missing == 0) & ~waits.bound, waits.transfer, -1
            ),
            "wait": unknown if waits is None else waits.wait,
        }  # fmt: skip
        for name, value in values.items():
            columns[name].append(value)
    table = {name: np.concatenate(parts) if parts else np.empty(0, np.int64) for name, parts in columns.items()}
    return _matched(table), _lasting(table)


_COLUMNS = ("group", "operation", "members", "size", "duration", "alone", "usable", "match", "transfer", "wait")


def _matched(table: dict[str, NDArray[np.generic]]) -> _Points:
    """One row per match: its transfer, and whether it was clean on every member."""
    match = table["match"].astype(np.int64)
    rows = np.flatnonzero(match >= 0)
    numbers, first, inverse = np.unique(match[rows], return_index=True, return_inverse=True)
    every = np.ones(len(numbers), np.bool_)
    np.logical_and.at(every, inverse, table["alone"][rows].astype(np.bool_))
    usable = np.ones(len(numbers), np.bool_)
    np.logical_and.at(usable, inverse, table["usable"][rows].astype(np.bool_))
    longest = np.zeros(len(numbers), np.int64)
    np.maximum.at(longest, inverse, table["wait"][rows].astype(np.int64))
    chosen = rows[first]
    transfer = table["transfer"][chosen].astype(np.int64)
    kept = usable & (transfer > 0)
    return _rows(table, chosen[kept], transfer[kept], (every & (longest <= transfer))[kept])


def _lasting(table: dict[str, NDArray[np.generic]]) -> _Points:
    duration = table["duration"].astype(np.int64)
    rows = np.flatnonzero(table["usable"].astype(np.bool_) & (duration > 0))
    return _rows(table, rows, duration[rows], table["alone"][rows].astype(np.bool_))


def _rows(table: dict[str, NDArray[np.generic]], rows: Int64Array, ns: Int64Array, clean: NDArray[np.bool_]) -> _Points:
    group, operation, members, size = (
        table[name][rows].astype(np.int64) for name in ("group", "operation", "members", "size")
    )
    return _Points(group, operation, members, size, ns, clean)


def _per_group(points: _Points, *, bound: bool) -> dict[tuple[int, str], GroupBandwidth]:
    out: dict[tuple[int, str], GroupBandwidth] = {}
    factor = factors(points.operation, points.members)
    order = np.lexsort((points.operation, points.group))
    order = order[~np.isnan(factor[order]) & (factor[order] > 0)]
    if not len(order):
        return out
    changes = np.flatnonzero((np.diff(points.group[order]) != 0) | (np.diff(points.operation[order]) != 0))
    for rows in np.split(order, changes + 1):
        group, operation = int(points.group[rows[0]]), OPERATIONS[int(points.operation[rows[0]])]
        clean = points.clean[rows]
        enough = int(clean.sum()) >= ENOUGH_CLEAN
        chosen = rows[clean] if enough else rows
        moved = points.size[chosen] * factor[chosen]
        rate = moved / points.ns[chosen]
        few = rows[clean] if not bound and not enough else rows[:0]
        out[group, operation] = GroupBandwidth(
            group=group,
            operation=operation,
            members=int(points.members[rows[0]]),
            factor=float(factor[rows[0]]),
            median=None if bound else float(np.median(rate)),
            best=None if bound else float(rate.max()),
            calls=len(rows),
            clean=0 if bound else int(clean.sum()),
            contended=not bound and not enough,
            bound=bound,
            fit=fit(*_typical(moved, points.ns[chosen], bound=bound)),
            few_clean=fit(*_typical(points.size[few] * factor[few], points.ns[few], bound=False)) if len(few) else None,
        )
    return out


def _typical(moved: Floats, ns: Int64Array, *, bound: bool) -> tuple[Floats, Floats]:
    """The median transfer per distinct size, or the shortest duration where waiting is in it."""
    sizes, inverse = np.unique(moved, return_inverse=True)
    middle = np.min if bound else np.median
    times = np.array([middle(ns[inverse == index]) for index in range(len(sizes))], np.float64)
    return sizes, times
