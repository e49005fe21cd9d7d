"""Waiting where not everybody waits for everybody: messages, broadcasts and reductions, unequal all-to-alls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.codes import operation_is
from commprof.analysis.exchanges import EXCHANGE, exchange_waits
from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.segments import LEAST, MOST, largest, smallest, where_largest
from commprof.intervals import Int64Array

if TYPE_CHECKING:
    from commprof.analysis.waiting import MatchTimes

UNKNOWN = -1
_BY_CLOCK, _BY_DURATION = 1, 2
_FROM_ROOT, _TO_ROOT = ("broadcast", "scatter"), ("reduce", "gather")
_SPREAD_OVER_UNCERTAINTY = 4
"""Arrivals must be spread this many times wider than clocks are known to tell waiting by them (``spec``: section 6)."""


def one_way_waits(found: Matching, times: MatchTimes, arrival: Int64Array, finish: Int64Array) -> None:
    """Sinks wait until their last source has entered, sources only for a sink that entered before they ended."""
    source = _sources(found)
    told = times.one_way & (source >= 0)[found.first[:-1]]
    if not told.any():
        return
    first, of_row, rows = found.first, found.of_row, found.rows
    is_source = source == 1
    duration = found.calls.duration[rows]
    known = times.aligned & told
    last_source = largest(np.where(is_source, arrival, LEAST), first)
    longest_alone = smallest(np.where(is_source, duration, MOST), first)
    sink_wait = np.where(
        known[of_row], np.maximum(last_source[of_row] - arrival, 0), np.maximum(duration - longest_alone[of_row], 0)
    )
    source_wait = _source_waits(found, is_source, arrival, finish)
    wait = np.where(is_source, np.where(known[of_row], source_wait, UNKNOWN), sink_wait)
    times.wait = np.where(told[of_row], wait, times.wait)
    overlap = smallest(finish, first) - largest(arrival, first)
    times.transfer = np.where(told, np.where(known & (overlap > 0), overlap, UNKNOWN), times.transfer)
    times.bound = np.where(told, found.absent != 0, times.bound)
    _name_late(times, found, told, is_source, arrival)


def _sources(found: Matching) -> NDArray[np.int8]:
    """Per row of a match: 1 for a source, 0 for a sink, -1 where that is not known."""
    calls, rows, of_row = found.calls, found.rows, found.of_row
    me = calls.numbers[calls.rank[rows]]
    root = calls.root[rows]
    from_root = operation_is(found.operation, *_FROM_ROOT)[of_row]
    to_root = operation_is(found.operation, *_TO_ROOT)[of_row]
    pair = (found.source >= 0)[of_row]
    out = np.where(pair, me == found.source[of_row], np.where(from_root, me == root, me != root))
    known = pair | ((from_root | to_root) & (root >= 0))
    return np.where(known, out, UNKNOWN).astype(np.int8)


def _source_waits(found: Matching, is_source: NDArray[np.bool_], arrival: Int64Array, finish: Int64Array) -> Int64Array:
    """How long each source waited for the last of the sinks that entered before it ended (0: for none)."""
    first, of_row = found.first, found.of_row
    earliest_end = smallest(np.where(is_source, finish, MOST), first)
    entered = np.where(~is_source & (arrival < earliest_end[of_row]), arrival, LEAST)
    last = largest(entered, first)[of_row]
    # A lone source ends before or after; several (a reduction) each look at their one sink for themselves.
    sink = largest(np.where(is_source, LEAST, arrival), first)[of_row]
    sources = np.add.reduceat(is_source.astype(np.int64), first[:-1])[of_row]
    last = np.where(sources > 1, np.where(sink < finish, sink, LEAST), last)
    return np.where(last == LEAST, 0, np.maximum(last - np.where(last == LEAST, 0, arrival), 0))


def _name_late(
    times: MatchTimes, found: Matching, told: NDArray[np.bool_], is_source: NDArray[np.bool_], arrival: Int64Array
) -> None:
    """The one that another waited for: a source whose sink waited, else the sink that a source waited for."""
    first, rows = found.first, found.rows
    rank = found.calls.rank[rows]
    full = told & (found.absent == 0)
    sink_waits = largest(np.where(is_source, 0, times.wait), first) > 0
    source_waits = largest(np.where(is_source, times.wait, 0), first) > 0
    # Without clocks only the duration of the sink tells, and the order of arrival among several sources does not.
    key = np.where(times.aligned[found.of_row], arrival, -found.calls.duration[rows])
    late_source, _ = where_largest(np.where(is_source, key, LEAST // 2), first)
    late_sink, _ = where_largest(np.where(is_source, LEAST // 2, key), first)
    late = np.where(sink_waits, rank[late_source], np.where(source_waits, rank[late_sink], UNKNOWN))
    times.last = np.where(full, late, np.where(told, UNKNOWN, times.last))
    by = np.where(times.aligned, _BY_CLOCK, _BY_DURATION)
    times.last_by = np.where(told, np.where(full & (late >= 0), by, 0), times.last_by).astype(np.int8)
    longest = np.maximum(times.wait, 0)
    times.lead = np.where(told, np.where(full & (late >= 0), largest(longest, first), 0), times.lead)


def batch_waits(
    analysis: Analysis, found: Matching, times: MatchTimes, arrival: Int64Array, finish: Int64Array
) -> None:
    """Batches of messages: each waits for the last of its sources, where clocks can tell."""
    calls, first = found.calls, found.first
    for match in np.flatnonzero((found.source == EXCHANGE) & times.aligned).tolist():
        low, high = int(first[match]), int(first[match + 1])
        rows = found.rows[low:high]
        wait, caused = exchange_waits(analysis, calls, rows, arrival[low:high], finish[low:high])
        times.wait[low:high] = wait
        overlap = int(finish[low:high].min() - arrival[low:high].max())
        times.transfer[match] = overlap if overlap > 0 else UNKNOWN
        times.bound[match] = found.absent[match] != 0
        latest = int(caused.argmax())
        if not times.bound[match] and caused[latest] > 0:
            times.last[match], times.last_by[match] = calls.rank[rows[latest]], _BY_CLOCK
            times.lead[match] = caused[latest]


def uneven_waits(
    analysis: Analysis, found: Matching, times: MatchTimes, unequal: NDArray[np.bool_], arrival: Int64Array,
    uncertain: Int64Array,
) -> None:  # fmt: skip
    """All-to-alls that may have ``unequal`` splits: each waits for the last of those that send to it, where clocks
    can tell."""
    told = unequal & times.aligned & (times.skew > _SPREAD_OVER_UNCERTAINTY * uncertain)
    calls, first = found.calls, found.first
    for match in np.flatnonzero(told).tolist():
        low, high = int(first[match]), int(first[match + 1])
        rows, arrived = found.rows[low:high], arrival[low:high]
        sends = _senders(analysis, found, match, rows)
        latest = np.where(sends, arrived[None, :], arrived[:, None]).max(axis=1)
        wait = np.minimum(latest - arrived, calls.duration[rows])
        times.wait[low:high], times.own[low:high] = wait, calls.duration[rows] - wait
        if found.absent[match] == 0:
            order = np.argsort(arrived, kind="stable")
            times.last[match] = calls.rank[rows[order[-1]]]
            times.last_by[match] = _BY_CLOCK
            times.lead[match] = arrived[order[-1]] - arrived[order[-2]]
        else:
            times.bound[match] = True


def _senders(analysis: Analysis, found: Matching, match: int, rows: Int64Array) -> NDArray[np.bool_]:
    """Who sends to whom among the rows of a match: ``[i, j]`` whether ``j`` sends to ``i``; all where not stated."""
    calls = found.calls
    members = analysis.groups[found.group[match]].ranks
    out = np.ones((len(rows), len(rows)), np.bool_)
    if members is None:
        return out
    place = {number: index for index, number in enumerate(members)}
    columns = [place.get(int(number), -1) for number in calls.numbers[calls.rank[rows]]]
    for i, row in enumerate(rows.tolist()):
        rank = int(calls.rank[row])
        stated = analysis.ranks[rank].calls.splits.get(row - int(calls.first[rank]))
        received = None if stated is None else stated[1]
        if received is not None and len(received) == len(members) and min(columns) >= 0:
            out[i] = np.array(received, np.int64)[columns] > 0
    return out
