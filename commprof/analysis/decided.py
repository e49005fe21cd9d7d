"""Which ranks made a call late beyond doubt: one alone, or all those of one host together (``spec``: section 10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.clocks import Clocks
from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.places import FLAGS
from commprof.analysis.segments import LEAST, MOST, largest, smallest
from commprof.analysis.waiting import BY_CLOCK, MatchTimes
from commprof.intervals import Int64Array

LEAST_LEAD_NS = 2_000
_LEAD_SHARE = 20
"""The last rank must lag behind the next by 2 us and by one part in twenty of the transfer (``spec``: section 10)."""
_ODD = (FLAGS.index("profiler-start"), FLAGS.index("first-use"))


@dataclass(slots=True, eq=False)
class LateRows:
    """One entry per late rank and match, by match: ``rank`` (index into the input), ``row`` of its call, and its
    ``share`` of the charge. Entries ``first[m]`` to ``first[m + 1]`` are of match ``m``; most matches have none."""

    match: Int64Array
    rank: Int64Array
    row: Int64Array
    share: NDArray[np.float64]
    first: Int64Array

    def __len__(self) -> int:
        return len(self.match)


def decided(analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks) -> LateRows:
    """The late ranks of every match in which somebody is late by more than what could be chance."""
    calls, rows, of_row = found.calls, found.rows, found.of_row
    rank = calls.rank[rows]
    doubt = _doubt(found, times, clocks)
    usable = ~times.bound & ~_odd(analysis, found)
    single = usable & (times.last >= 0) & (times.lead > doubt)
    late = single[of_row] & (rank == times.last[of_row])
    late |= _late_hosts(analysis, found, times, clocks, doubt, usable & ~single & (found.absent == 0))
    chosen = np.flatnonzero(late)
    match = of_row[chosen]
    count = np.bincount(match, minlength=len(found))
    first = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
    return LateRows(match, rank[chosen], rows[chosen], 1.0 / count[match], first)


def _doubt(found: Matching, times: MatchTimes, clocks: Clocks) -> Int64Array:
    """How much later than the next a rank has to be."""
    uncertain = np.where(times.aligned, clocks.uncertainty[found.calls.rank[found.rows[found.first[:-1]]]], 0)
    uncertain = np.where((times.last_by == BY_CLOCK) | (times.last < 0), uncertain, 0)
    return np.maximum(np.maximum(LEAST_LEAD_NS, times.transfer // _LEAD_SHARE), uncertain)


def _odd(analysis: Analysis, found: Matching) -> NDArray[np.bool_]:
    """Matches that are long because a profiler started or a communicator was set up."""
    odd = np.concatenate([np.isin(rank.places.flag, _ODD) for rank in analysis.ranks])
    out = np.zeros(len(found), np.bool_)
    np.logical_or.at(out, found.of_row, odd[found.rows])
    return out


def _late_hosts(
    analysis: Analysis, found: Matching, times: MatchTimes, clocks: Clocks, doubt: Int64Array, asked: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Rows of the ranks of a host that all came last, too close together to tell which was the very last."""
    calls, rows, first, of_row = found.calls, found.rows, found.first, found.of_row
    codes: dict[str, int] = {}
    names = [analysis.hosts.get(rank.rank) for rank in analysis.ranks]
    host = np.array([-1 if name is None else codes.setdefault(name, len(codes)) for name in names], np.int64)
    if len(codes) < 2 or not asked.any():
        return np.zeros(len(rows), np.bool_)
    rank = calls.rank[rows]
    arrival = clocks.aligned(calls.start[rows], rank)
    key = np.where(times.aligned[of_row], arrival, -calls.duration[rows])
    tied = largest(key, first)[of_row] - key <= doubt[of_row]
    where = host[rank]
    lowest = smallest(np.where(tied, where, MOST), first)
    one_host = (lowest == largest(np.where(tied, where, LEAST), first)) & (lowest >= 0)
    whole = smallest(np.where((where == lowest[of_row]) & ~tied, 0, 1), first) == 1
    others = smallest(np.where(where == lowest[of_row], 1, 0), first) == 0
    synchronising = ~times.one_way & (times.transfer >= 0)
    return np.asarray(tied & (asked & one_host & whole & others & synchronising)[of_row])
