"""Transfers that stand out: of one group against groups of the same kind, and of single calls against their likes.

Both compare transfers (``spec``: section 6), which hold no waiting for late ranks, of equal operations and sizes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.places import FLAGS
from commprof.analysis.waiting import MatchTimes
from commprof.intervals import Int64Array

SLOWER = 1.5
"""A group is slow if its transfers last so many times as long as those of its siblings: more than the spread of healthy
links, which share switches and adapters."""
OUTLIER = 2.0
"""A call is slow if its transfer lasts so many times as long as the faster half of calls of its kind."""
LEAST_NS = 5_000
_FEWEST_CALLS = 4
_MOST_OUTLIERS = 0.5
_ALONE = 4.0
"""One slow call says something only if it is as slow as this."""
_ODD = (FLAGS.index("profiler-start"), FLAGS.index("first-use"))


@dataclass(frozen=True, slots=True, eq=False)
class SlowLink:
    """One group that is slower than its ``siblings`` in one operation, ``factor`` times at the median over sizes."""

    group: int
    operation: int
    ranks: tuple[int, ...]
    factor: float
    siblings: int
    calls: int


@dataclass(frozen=True, slots=True, eq=False)
class Intermittent:
    """Calls of one group and operation that are slow now and then: ``matches`` with their own ``factors``, among
    ``calls`` of their kind."""

    group: int
    operation: int
    ranks: tuple[int, ...]
    matches: Int64Array
    factors: NDArray[np.float64]
    calls: int


@dataclass(slots=True, eq=False)
class _Kinds:
    """Matches with a known transfer, by kind (operation and size): columns of one entry per match."""

    match: Int64Array
    group: Int64Array
    operation: Int64Array
    size: Int64Array
    transfer: Int64Array


def _kinds(analysis: Analysis, found: Matching, times: MatchTimes) -> _Kinds:
    rows = found.rows[found.first[:-1]]
    flags = np.concatenate([rank.places.flag for rank in analysis.ranks])
    known = (times.transfer > 0) & ~times.bound & ~times.one_way & ~times.uneven & (found.calls.size[rows] > 0)
    known &= ~np.isin(flags[rows], _ODD)
    match = np.flatnonzero(known)
    return _Kinds(
        match, found.group[match], found.operation[match].astype(np.int64), found.calls.size[rows[match]],
        times.transfer[match],
    )  # fmt: skip


def slow_links(analysis: Analysis) -> list[SlowLink]:
    """Groups that are slower than others of their role in the same operation and size, the slowest first."""
    found, times = analysis.matching, analysis.times
    if found is None or times is None or not len(found):
        return []
    kinds = _kinds(analysis, found, times)
    medians: dict[tuple[str, int, int], dict[int, tuple[float, int]]] = defaultdict(dict)
    key = np.stack([kinds.group, kinds.operation, kinds.size])
    for group, operation, size in np.unique(key, axis=1).T.tolist():
        mine = (kinds.group == group) & (kinds.operation == operation) & (kinds.size == size)
        facts = analysis.groups[group]
        if facts.ranks is None:
            continue
        role = analysis.roles[group].name if analysis.roles else ""
        kind = (f"{role} of {len(facts.ranks)}", operation, size)
        medians[kind][group] = (float(np.median(kinds.transfer[mine])), int(mine.sum()))
    ratios: dict[tuple[int, int], list[tuple[float, int, int]]] = defaultdict(list)
    for (_, operation, _), groups in medians.items():
        for group, (median, calls) in groups.items():
            others = [value for other, (value, _) in groups.items() if other != group]
            if others and median - np.median(others) >= LEAST_NS:
                ratios[group, operation].append((median / float(np.median(others)), calls, len(others)))
            elif others:
                ratios[group, operation].append((1.0, calls, len(others)))
    out = []
    for (group, operation), entries in ratios.items():
        factor = float(np.median([entry[0] for entry in entries]))
        if factor >= SLOWER:
            calls = sum(entry[1] for entry in entries)
            ranks = analysis.groups[group].ranks or ()
            out.append(SlowLink(group, operation, ranks, factor, max(entry[2] for entry in entries), calls))
    return sorted(out, key=lambda entry: -entry.factor)


def intermittent(analysis: Analysis) -> list[Intermittent]:
    """Groups in which some calls of a kind last much longer than most of that kind."""
    found, times = analysis.matching, analysis.times
    if found is None or times is None or not len(found):
        return []
    kinds = _kinds(analysis, found, times)
    slow: dict[tuple[int, int], tuple[list[int], list[float], int]] = {}
    key = np.stack([kinds.group, kinds.operation, kinds.size])
    for group, operation, size in np.unique(key, axis=1).T.tolist():
        mine = np.flatnonzero((kinds.group == group) & (kinds.operation == operation) & (kinds.size == size))
        if len(mine) < _FEWEST_CALLS:
            continue
        transfer = kinds.transfer[mine]
        usual = float(np.median(np.sort(transfer)[: (len(transfer) + 1) // 2]))
        over = (transfer >= OUTLIER * usual) & (transfer - usual >= LEAST_NS)
        entry = slow.setdefault((group, operation), ([], [], 0))
        if over.sum() <= _MOST_OUTLIERS * len(mine):
            entry[0].extend(kinds.match[mine[over]].tolist())
            entry[1].extend((transfer[over] / usual).tolist())
        slow[group, operation] = (entry[0], entry[1], entry[2] + len(mine))
    return [
        Intermittent(
            group, operation, analysis.groups[group].ranks or (), np.array(matches, np.int64), np.array(factors), calls
        )
        for (group, operation), (matches, factors, calls) in slow.items()
        if len(matches) >= 2 or (matches and max(factors) >= _ALONE)
    ]  # fmt: skip
