"""Waiting and transfer of every matched call (``spec``: section 6).

A synchronising call transfers for as long as its shortest member lasts; what others last longer they wait. That needs
no clock. One-directional calls and all-to-alls with unequal splits are told by when their members entered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.clocks import Clocks, synchronising
from commprof.analysis.codes import codes, operation_is
from commprof.analysis.exposedwait import exposed_until
from commprof.analysis.matching import COLLECTIVE, NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.oneway import batch_waits, one_way_waits, uneven_waits
from commprof.analysis.segments import any_of, largest, smallest, where_largest
from commprof.intervals import Int64Array

UNKNOWN = -1
"""Stands for a time that cannot be measured, and for no rank."""

NOBODY, BY_CLOCK, BY_DURATION = 0, 1, 2
"""How the last rank is known (``last_by``)."""

LAST_BY = (None, "clock", "duration")


@dataclass(slots=True, eq=False)
class CallWaits:
    """Waiting of the calls of one rank, arrays of shape ``(calls,)``, nanoseconds, :data:`UNKNOWN` for null.

    ``match`` numbers the call over ranks. ``bound``: members are missing, so ``wait`` is at least and ``transfer`` at
    most that. ``own`` is what an all-to-all with unequal splits lasts after its wait, ``last_rank`` who entered last.
    """

    match: Int64Array
    wait: Int64Array
    transfer: Int64Array
    exposed_wait: Int64Array
    members_missing: Int64Array
    bound: NDArray[np.bool_]
    last_rank: Int64Array
    last_by: NDArray[np.int8]
    skew: Int64Array
    end_skew: Int64Array
    own: Int64Array


@dataclass(slots=True, eq=False)
class MatchTimes:
    """Times of every match, shape ``(matches,)``, and ``wait`` of its rows, aligned with ``Matching.rows``; ns.

    ``last`` is an index into the ranks of the input (-1: nobody can be named), ``lead`` by how much it came after the
    one before. ``aligned``: the starts of the members can be compared.
    """

    wait: Int64Array
    transfer: Int64Array
    own: Int64Array
    bound: NDArray[np.bool_]
    last: Int64Array
    last_by: NDArray[np.int8]
    lead: Int64Array
    skew: Int64Array
    end_skew: Int64Array
    aligned: NDArray[np.bool_]
    uneven: NDArray[np.bool_]
    one_way: NDArray[np.bool_]


def match_times(analysis: Analysis, found: Matching, clocks: Clocks) -> MatchTimes:
    """Waiting, transfer and the last to arrive of every match."""
    calls, rows, first = found.calls, found.rows, found.first
    rank, duration = calls.rank[rows], calls.duration[rows]
    uneven = any_of(calls.unequal[rows] == 1, first) & (found.source == COLLECTIVE)
    directed = (found.source != COLLECTIVE) | operation_is(found.operation, "broadcast", "reduce", "gather", "scatter")
    meets = synchronising(found)
    component = clocks.component[rank]
    aligned = (smallest(component, first) == largest(component, first)) & ~any_of(~clocks.joined[rank], first)
    uncertain = clocks.uncertainty[rank[first[:-1]]]
    arrival = clocks.aligned(calls.start[rows], rank)
    finish = clocks.aligned(calls.end[rows], rank)
    skew = _spread(arrival, first, aligned)
    times = _by_shortest(duration, first, meets, any_of(calls.sync[rows], first))
    times.bound = (found.absent != 0) & (times.transfer != UNKNOWN)
    times.skew = np.where(aligned & (skew < uncertain), 0, skew)
    times.end_skew = _spread(finish, first, aligned)
    times.aligned, times.uneven, times.one_way = aligned, uneven, directed
    _name_last(times, found, rank, arrival, duration, meets & (found.absent == 0), uncertain)
    one_way_waits(found, times, arrival, finish)
    batch_waits(analysis, found, times, arrival, finish)
    unsaid = (found.operation == codes("all_to_all")[0]) & (found.source == COLLECTIVE) & ~meets
    uneven_waits(analysis, found, times, unsaid, arrival, uncertain)
    return times


def _spread(values: Int64Array, first: Int64Array, known: NDArray[np.bool_]) -> Int64Array:
    return np.where(known, largest(values, first) - smallest(values, first), UNKNOWN)


def _by_shortest(
    duration: Int64Array, first: Int64Array, meets: NDArray[np.bool_], signals: NDArray[np.bool_]
) -> MatchTimes:
    """The min rule, where it holds; kernels that only synchronise are all wait."""
    count = len(meets)
    shortest = np.where(signals, 0, smallest(duration, first))
    of_row = np.repeat(np.arange(count), np.diff(first))
    told = meets | signals
    nothing = np.full(count, UNKNOWN, np.int64)
    return MatchTimes(
        wait=np.where(told[of_row], duration - shortest[of_row], UNKNOWN),
        transfer=np.where(told, shortest, UNKNOWN),
        own=np.full(len(duration), UNKNOWN, np.int64),
        bound=np.zeros(count, np.bool_),
        last=nothing.copy(),
        last_by=np.zeros(count, np.int8),
        lead=np.zeros(count, np.int64),
        skew=nothing.copy(),
        end_skew=nothing.copy(),
        aligned=np.zeros(count, np.bool_),
        uneven=np.zeros(count, np.bool_),
        one_way=np.zeros(count, np.bool_),
    )


def _name_last(
    times: MatchTimes, found: Matching, rank: Int64Array, arrival: Int64Array, duration: Int64Array,
    named: NDArray[np.bool_], uncertain: Int64Array,
) -> None:  # fmt: skip
    """The last to arrive of synchronising calls with all members: by clock where the spread of starts is larger than
    the uncertainty of the clocks, by duration where there is no common clock."""
    if not len(named):
        return
    latest, ahead = where_largest(arrival, found.first)
    shortest, longer = where_largest(-duration, found.first)
    by_clock = named & times.aligned & (times.skew > uncertain) & (ahead > 0)
    by_duration = named & ~times.aligned & (longer > 0)
    times.last = np.where(by_clock, rank[latest], np.where(by_duration, rank[shortest], UNKNOWN))
    times.last_by = np.where(by_clock, BY_CLOCK, np.where(by_duration, BY_DURATION, NOBODY)).astype(np.int8)
    times.lead = np.where(by_clock, ahead, np.where(by_duration, longer, 0))


def call_waits(analysis: Analysis, found: Matching, times: MatchTimes) -> list[CallWaits]:
    """The same per rank, with the part of each call's exposed time that is waiting."""
    rows, of_row, total = found.rows, found.of_row, len(found.calls)

    def spread(values: NDArray[Any], per_row: bool = False, empty: int = UNKNOWN) -> NDArray[Any]:
        out = np.full(total, empty, values.dtype)
        out[rows] = values if per_row else values[of_row]
        return out

    numbers = np.append(found.calls.numbers, UNKNOWN)
    columns: dict[str, NDArray[Any]] = {
        "match": found.match,
        "wait": spread(times.wait, per_row=True),
        "transfer": spread(times.transfer),
        "members_missing": found.missing,
        "bound": spread(times.bound, empty=0),
        "last_rank": spread(numbers[times.last]),
        "last_by": spread(times.last_by, empty=NOBODY),
        "skew": spread(times.skew),
        "end_skew": spread(times.end_skew),
        "own": spread(times.own, per_row=True),
    }
    out = []
    for index, rank in enumerate(analysis.ranks):
        mine = {name: column[found.calls.rows_of(index)].copy() for name, column in columns.items()}
        # A kernel that does nothing but synchronise is all wait, whoever is late; that one rank alone can tell.
        alone = rank.calls.sync & (mine["match"] == NO_MATCH)
        mine["wait"][alone], mine["transfer"][alone] = rank.calls.duration[alone], 0
        exposed = exposed_until(rank.shares.pieces, rank.calls.start, mine["wait"])
        out.append(CallWaits(exposed_wait=exposed, **mine))
    return out
