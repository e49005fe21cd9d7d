"""Tensor parallelism by its place in the model: each pair of collectives around a block, over steps and ranks.

An all-reduce closes a block alone; with sequence parallelism all-gathers open it and a reduce-scatter closes it. Blocks
are numbered in order of launch within the forward or backward pass of a step, which is the order of the layers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.phases import BACKWARD, FORWARD
from commprof.analysis.places import CAUSES, PHASES, cause_sums
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
    sums: dict[tuple[int, int, int], list[int]] = {}
    operations: dict[tuple[int, int, int], tuple[str, ...]] = {}
    for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True):
        local = [index for index, group in enumerate(groups) if group in chosen]
        rows, block = _blocks(rank, local)
        if not len(rows):
            continue
        structural = cause_sums(rank.causes, rank.shares.pieces, rank.shares.pieces.call, len(rank.calls))[
            :, _STRUCTURAL
        ]
        calls, exposed = rank.calls, rank.shares.exposed
        for row, index in zip(rows.tolist(), block.tolist(), strict=True):
            key = (groups[int(calls.group[row])], int(rank.places.phase[row]), index)
            entry = sums.setdefault(key, [0, 0, 0, 0])
            name = OPERATIONS[int(calls.operation[row])]
            values = (name != "all_gather", int(calls.duration[row]), int(exposed[row]), int(structural[row]))
            sums[key] = [old + new for old, new in zip(entry, values, strict=True)]
            if name not in operations.setdefault(key, ()):
                operations[key] = (*operations[key], name)
    return [
        TensorPair(group, PHASES[phase], index, operations[group, phase, index], *values)
        for (group, phase, index), values in sorted(sums.items())
    ]


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
