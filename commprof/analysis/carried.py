"""Waiting in a collective that a pipeline carries on to the stages after it.

The first stage waits for a late replica to sum gradients with, and so begins its next step late. A stage that waited
less at that point waits for the first message of the step instead. That wait is bubble by its place, the same in all
replicas; by its cause it belongs to the late replica, as far as the stage that sends had waited longer.
"""

from __future__ import annotations

import numpy as np

from commprof.analysis.decided import LateRows
from commprof.analysis.lateness import Float64Array
from commprof.analysis.matching import COLLECTIVE, Matching
from commprof.analysis.model import Analysis
from commprof.intervals import Int64Array

_BETWEEN_REPLICAS = ("dp", "edp", "shard", "replicate")


def carried_waits(
    analysis: Analysis, found: Matching, late: LateRows, step: Int64Array, waited: Int64Array, bubble: Int64Array
) -> Float64Array:
    """Nanoseconds of waiting for messages that go back to each match, shape ``(matches,)``.

    ``waited`` and ``bubble`` are, per row of the calls, the waiting that is charged anyway and the rest of it.
    """
    out = np.zeros(len(found))
    calls, ranks = found.calls, len(found.calls.numbers)
    steps = len(calls.step_names)
    between = np.array([role.name in _BETWEEN_REPLICAS for role in analysis.roles] + [False])
    blamed = np.zeros(len(found), np.bool_)
    blamed[late.match] = True
    gathers = blamed & (found.source == COLLECTIVE) & between[np.minimum(found.group, len(between) - 1)]
    rows = found.rows[gathers[found.of_row]]
    rows = rows[(waited[rows] > 0) & (step[rows] >= 0)]
    if not len(rows) or not (found.source >= 0).any():
        return out
    held = np.zeros((ranks, steps), np.float64)
    np.add.at(held, (calls.rank[rows], step[rows]), waited[rows])
    # What a rank waits in the end: by itself, or because of another one, whose calls are those to blame.
    origin = np.tile(np.arange(ranks)[:, None], (1, steps))
    carried = np.zeros((ranks, steps))
    for source, sink, before, wait in along_pipelines(_first_messages(found, step, bubble)):
        more = min(held[source, before] - held[sink, before], wait)
        if more > 0:
            origin[sink, before] = origin[source, before]
            held[sink, before] += more
            carried[origin[source, before], before] += more
    own = np.zeros((ranks, steps))
    np.add.at(own, (calls.rank[rows], step[rows]), waited[rows])
    share = carried[calls.rank[rows], step[rows]] / np.maximum(own[calls.rank[rows], step[rows]], 1)
    np.add.at(out, found.match[rows], waited[rows] * share)
    return out


def along_pipelines(messages: list[tuple[int, int, int, float]]) -> list[tuple[int, int, int, float]]:
    """The same, each after the one that its sender began the step with: later stages wait longer and so begin first."""
    by_sink = {(sink, before): (source, sink, before, wait) for source, sink, before, wait in messages}
    out: dict[tuple[int, int], tuple[int, int, int, float]] = {}
    for key in by_sink:
        way: list[tuple[int, int]] = []
        while key in by_sink and key not in out and key not in way:
            way.append(key)
            key = (by_sink[key][0], key[1])
        out.update((one, by_sink[one]) for one in reversed(way))
    return list(out.values())


def _first_messages(found: Matching, step: Int64Array, bubble: Int64Array) -> list[tuple[int, int, int, float]]:
    """Of every rank and step but the first the message that it receives before all others: index of the sender and of
    the receiver, the step before, and the wait for it."""
    calls = found.calls
    place = np.argsort(calls.numbers)
    sorted_numbers = calls.numbers[place]
    message = found.source >= 0
    row = found.rows[message[found.of_row]]
    match = found.of_row[message[found.of_row]]
    receives = calls.numbers[calls.rank[row]] == found.sink[match]
    # Messages of a rank as its program issues them: the first of a step has to be one that it receives.
    order = np.lexsort((calls.order[row], step[row], calls.rank[row]))
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(calls.rank[row[order]]) != 0) | (np.diff(step[row[order]]) != 0)
    first = order[fresh]
    first = first[receives[first] & (step[row[first]] > 0)]
    source = np.minimum(np.searchsorted(sorted_numbers, found.source[match[first]]), len(place) - 1)
    known = sorted_numbers[source] == found.source[match[first]]
    return [
        (int(place[one]), int(calls.rank[at]), int(step[at]) - 1, float(bubble[at]))
        for one, at, there in zip(source.tolist(), row[first].tolist(), known.tolist(), strict=True)
        if there
    ]
