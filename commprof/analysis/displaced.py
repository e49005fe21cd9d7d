"""Transfers that become exposed because a call before them had to wait, though that wait itself was hidden.

While a rank waits for a late one behind its compute, the calls after it stand in the queue. They transfer when
compute has ended, and that is lost as much as waiting would be. The late rank shows how much of the transfers is
exposed without that: what the others have beyond it, up to what they waited hidden, is charged like waiting.
"""

from __future__ import annotations

import numpy as np

from commprof.analysis.decided import LateRows
from commprof.analysis.matching import COLLECTIVE, Matching
from commprof.analysis.model import Analysis
from commprof.intervals import Int64Array


def displaced_transfers(
    analysis: Analysis, found: Matching, late: LateRows, step: Int64Array, exposed_wait: Int64Array
) -> Int64Array:
    """Exposed transfer of each row of the calls that the late rank of its match displaced, nanoseconds.

    It stands with the calls that waited, in proportion to their hidden waiting; the sums are over a group and a step.
    """
    calls, rows, of_row = found.calls, found.rows, found.of_row
    out = np.zeros(len(calls), np.int64)
    if not len(late):
        return out
    wait = np.concatenate([np.maximum(waits.wait, 0) for waits in analysis.waiting])
    exposed = np.concatenate([rank.shares.exposed for rank in analysis.ranks])
    collective = (found.source == COLLECTIVE)[of_row]
    rows, of_row = rows[collective], of_row[collective]
    if not len(rows):
        return out
    steps, ranks = len(calls.step_names) + 1, len(calls.numbers)
    place = found.group[of_row] * steps + np.where(step[rows] < 0, steps - 1, step[rows])
    keys, key = np.unique(place * ranks + calls.rank[rows], return_inverse=True)
    blamed = np.zeros(len(found), np.bool_)
    blamed[late.match] = True
    hidden = np.where(blamed[of_row], np.maximum(wait - exposed_wait, 0)[rows], 0)
    hidden_sum, transfer = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
    np.add.at(hidden_sum, key, hidden)
    np.add.at(transfer, key, np.maximum(exposed - exposed_wait, 0)[rows])
    usual = _of_late_rank(found, late, keys, key, place, hidden, of_row, transfer, ranks)
    lost = np.minimum(hidden_sum, np.maximum(transfer - usual, 0))
    share = hidden / np.maximum(hidden_sum[key], 1)
    out[rows] = np.floor(lost[key] * share).astype(np.int64)
    return out


def _of_late_rank(
    found: Matching, late: LateRows, keys: Int64Array, key: Int64Array, place: Int64Array, hidden: Int64Array,
    of_row: Int64Array, transfer: Int64Array, ranks: int,
) -> Int64Array:  # fmt: skip
    """Per group, step and rank: exposed transfer of the rank that the others of the group waited for most, hidden."""
    by_match = np.zeros(len(found), np.int64)
    np.add.at(by_match, of_row, hidden)
    where = np.full(len(found), -1, np.int64)
    where[of_row] = place
    caused, owner = np.zeros(len(keys)), np.searchsorted(keys, where[late.match] * ranks + late.rank)
    there = (where[late.match] >= 0) & (owner < len(keys))
    there[there] = keys[owner[there]] == (where[late.match] * ranks + late.rank)[there]
    np.add.at(caused, owner[there], (by_match[late.match] * late.share)[there])
    group = keys // ranks
    order = np.lexsort((caused, group))
    last = np.append(np.flatnonzero(np.diff(group[order])), len(order) - 1)
    worst = order[last]
    index = np.searchsorted(group[worst], group)
    # Where nobody is late nothing is displaced.
    return np.where(caused[worst][index] > 0, transfer[worst][index], np.iinfo(np.int64).max)
