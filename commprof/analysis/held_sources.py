"""Sources that waited for their sink, where no common clock tells (a send to another stage of a pipeline).

Once both have entered, a message lasts as long on either end, so what the source lasts longer it had most likely
waited. That is no measurement (``spec``: section 6 leaves it open) and stands in no table; but where it is compared
with the same message of other replicas, what the buffers hold and how the two ends are timed drops out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commprof.analysis.exposedwait import waiting_pieces
from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.segments import smallest
from commprof.analysis.waiting import BY_DURATION, UNKNOWN, MatchTimes
from commprof.intervals import Int64Array


def held_by_sinks(found: Matching, times: MatchTimes) -> Int64Array:
    """By how much each row of ``found.rows`` outlasts the shortest of its match, ns, where its wait is not known.

    Only in one-directional calls; 0 for all others.
    """
    duration = found.calls.duration[found.rows]
    unknown = times.one_way[found.of_row] & (times.wait == UNKNOWN)
    return np.where(unknown, duration - smallest(duration, found.first)[found.of_row], 0)


def blame_sinks(found: Matching, times: MatchTimes, held: Int64Array) -> MatchTimes:
    """``times`` in which a sink is late to the messages whose one source waited for it, by ``held``."""
    calls, rows, of_row = found.calls, found.rows, found.of_row
    two = (found.source >= 0) & (found.absent == 0) & (np.diff(found.first) == 2) & (times.last == UNKNOWN)
    source = np.flatnonzero(two[of_row] & (held > 0) & (calls.numbers[calls.rank[rows]] == found.source[of_row]))
    match = of_row[source]
    sink = 2 * found.first[match] + 1 - source
    last, lead, last_by = times.last.copy(), times.lead.copy(), times.last_by.copy()
    last[match], lead[match], last_by[match] = calls.rank[rows[sink]], held[source], BY_DURATION
    return replace(times, last=last, lead=lead, last_by=last_by)


def held_pieces(analysis: Analysis, found: Matching, held: Int64Array) -> list[Int64Array]:
    """Of each rank the nanoseconds of its pieces of exposed time that lie in what its calls were ``held``."""
    wait = np.zeros(len(found.calls), np.int64)
    wait[found.rows] = held
    return [
        waiting_pieces(rank.shares.pieces, rank.calls.start, wait[found.calls.rows_of(index)])
        for index, rank in enumerate(analysis.ranks)
    ]
