"""Ranks that run the same program (same pipeline stage and place in their groups), and the same call of it on each.

A rank is compared with these, its role, to say what is unusual about it (``spec``: section 10).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import AllCalls
from commprof.analysis.lanes import changes, count_within
from commprof.intervals import Int64Array

_ROUNDS = 128
"""Each round carries what tells ranks apart one neighbour further along a pipeline: more stages than any has."""


@dataclass(slots=True, eq=False)
class Peers:
    """``role`` per rank of the input: ranks of one number issue the same sequence of operations in a step. ``place``
    per row of the calls: rows of one number are the same call of that program, in the same step, on ranks of a role."""

    role: Int64Array
    place: Int64Array

    def others(self, rank: int) -> list[int]:
        """Indices of the other ranks of the role of ``rank``."""
        return [int(index) for index in np.flatnonzero(self.role == self.role[rank]) if index != rank]


def find_peers(calls: AllCalls, step: Int64Array) -> Peers:
    """Roles and places from the order of operations; ``step`` is the step of each row, carried on between steps."""
    order = np.lexsort((calls.order, step, calls.rank))
    fresh = changes(calls.rank[order], step[order]) if len(order) else np.empty(0, np.bool_)
    number = count_within(fresh)
    role = _roles(calls, order, fresh, number)
    place = np.empty(len(calls), np.int64)
    columns = (number, step[order], role[calls.rank[order]])
    sort = np.lexsort(columns)
    place[order[sort]] = np.cumsum(changes(*(column[sort] for column in columns))) if len(order) else 0
    return Peers(role, place)


def _roles(calls: AllCalls, order: Int64Array, fresh: NDArray[np.bool_], number: Int64Array) -> Int64Array:
    """Ranks whose usual step has the same sequence of operations, group sizes and peers get one number.

    Stages in the middle of a pipeline do the same; what tells them apart is whom they talk to. So roles are refined by
    the roles of the peers until nothing changes any more (colour refinement of graphs).
    """
    ranks = len(calls.numbers)
    role = np.zeros(ranks, np.int64)
    if not len(order):
        return np.arange(ranks)
    position = np.full(int(calls.numbers.max()) + 1, -1, np.int64)
    position[calls.numbers] = np.arange(ranks)
    peer = calls.peer[order]
    known = (peer >= 0) & (peer < len(position))
    peer = np.where(known, position[np.where(known, peer, 0)], -1)
    side = np.where(calls.peer[order] < 0, 0, np.sign(calls.peer[order] - calls.numbers[calls.rank[order]]))
    what = (calls.operation[order].astype(np.int64) << 24) + calls.group_size[order] * 4 + side
    for _ in range(_ROUNDS):
        after = _usual(calls.rank[order], what, np.append(role, -1)[peer], role, fresh, number, ranks)
        if len(np.unique(after)) == len(np.unique(role)):
            return after
        role = after
    return role


def _usual(
    rank: Int64Array, what: Int64Array, peer_role: Int64Array, role: Int64Array, fresh: NDArray[np.bool_],
    number: Int64Array, ranks: int,
) -> Int64Array:  # fmt: skip
    """A number per rank for its present role and the most frequent sequence among its steps."""
    with np.errstate(over="ignore"):
        mixed = _mix(_mix(_mix(what) + peer_role.astype(np.uint64)) + number.astype(np.uint64))
        sums = np.add.reduceat(mixed, np.flatnonzero(fresh)).tolist()
    counted: dict[int, Counter[int]] = {}
    for index, value in zip(rank[fresh].tolist(), sums, strict=True):
        counted.setdefault(index, Counter())[value] += 1
    known: dict[object, int] = {}
    out = np.empty(ranks, np.int64)
    for index in range(ranks):
        values = counted.get(index)
        usual = index if values is None else max(values, key=lambda value: (values[value], value))
        out[index] = known.setdefault((int(role[index]), values is None, usual), len(known))
    return out


def _mix(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Spread the bits of integers (the finaliser of splitmix64)."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
