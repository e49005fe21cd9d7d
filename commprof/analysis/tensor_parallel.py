"""Tensor parallelism by its place in the model: each pair of collectives around a block, over steps and ranks.

An all-reduce closes a block alone; with sequence parallelism all-gathers open it and a reduce-scatter closes it. Blocks
are numbered in order of launch within the forward or backward pass of a step, which is the order of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.phases import BACKWARD, FORWARD
from commprof.analysis.places import CAUSES, PHASES
from commprof.analysis.purposes import ACTIVATIONS
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_GATHER, _REDUCE, _SCATTER = (OPERATIONS.index(name) for name in ("all_gather", "all_reduce", "reduce_scatter"))
_STRUCTURAL = CAUSES.index("structural")


@dataclass(frozen=True, slots=True)
class TensorPair:
    """The collectives of one block, over all steps and ranks: ``index`` counts the blocks of the pass from 0.

    ``comm`` is the sum of their durations, ``exposed`` of it nothing hid, and ``structural`` of that no schedule of the
    same layers can hide. ``count`` is how many times the block was passed; nanoseconds.
    """

    group: int
    direction: str
    index: int
    operations: tuple[str, ...]
    count: int
    comm: int
    exposed: int
    structural: int


def find_tensor_pairs(analysis: Analysis) -> list[TensorPair]:
    """The pairs of every group that is tensor parallel, by group, pass and block."""
    chosen = {group for group, role in enumerate(analysis.roles) if role.name == "tp"}
    parts: list[Int64Array] = []
    for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True):
        rows, block = _blocks(rank, [index for index, group in enumerate(groups) if group in chosen])
        if len(rows):
            parts.append(_facts(rank, np.array(groups, np.int64), rows, block))
    if not parts:
        return []
    facts = np.concatenate(parts, axis=1)
    group, phase, block = facts[:3]
    blocks = int(block.max()) + 1
    key, place = np.unique((group * len(PHASES) + phase) * blocks + block, return_inverse=True)
    sums = np.zeros((4, len(key)), np.int64)
    for row in range(4):
        np.add.at(sums[row], place, facts[4 + row])
    used = np.zeros((len(key), len(OPERATIONS)), np.bool_)
    used[place, facts[3]] = True
    return [
        TensorPair(
            number // blocks // len(PHASES),
            PHASES[number // blocks % len(PHASES)],
            number % blocks,
            tuple(OPERATIONS[code] for code in np.flatnonzero(used[index]).tolist()),
            *sums[:, index].tolist(),
        )
        for index, number in enumerate(key.tolist())
    ]


def _facts(rank: RankAnalysis, groups: Int64Array, rows: Int64Array, block: Int64Array) -> Int64Array:
    """One column per call: group, phase, block, operation; then whether it closes a block, and its nanoseconds."""
    calls, pieces = rank.calls, rank.shares.pieces
    rest = pieces.ns - rank.causes.host - rank.causes.wait
    structural = np.zeros(len(calls), np.int64)
    np.add.at(structural, pieces.call, np.where(rank.causes.cause == _STRUCTURAL, rest, 0))
    return np.stack(
        [
            groups[calls.group[rows]],
            rank.places.phase[rows].astype(np.int64),
            block,
            calls.operation[rows].astype(np.int64),
            (calls.operation[rows] != _GATHER).astype(np.int64),
            calls.duration[rows],
            rank.shares.exposed[rows],
            structural[rows],
        ]
    )


def _blocks(rank: RankAnalysis, groups: list[int]) -> tuple[Int64Array, Int64Array]:
    """Calls of tensor-parallel groups in order of launch, and the number of the block of each within its pass."""
    calls, places, step = rank.calls, rank.places, rank.shares.step
    mine = np.isin(calls.group, groups) & np.isin(calls.operation, [_GATHER, _REDUCE, _SCATTER])
    mine &= (places.purpose == ACTIVATIONS) & np.isin(places.phase, [FORWARD, BACKWARD]) & (step >= 0)
    rows = np.flatnonzero(mine)
    rows = rows[np.lexsort((calls.issued[rows], places.phase[rows], step[rows], calls.group[rows]))]
    if not len(rows):
        return rows, rows
    keys = np.stack([calls.group[rows].astype(np.int64), step[rows], places.phase[rows].astype(np.int64)])
    fresh = np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)])
    # A block is over with what reduces its output: whatever follows opens the next one.
    closes = calls.operation[rows] != _GATHER
    opens = np.concatenate([[True], closes[:-1]]) | fresh
    number = np.cumsum(opens)
    first = np.maximum.accumulate(np.where(fresh, number, 0))
    return rows, number - first
