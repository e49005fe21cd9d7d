"""The calls of all ranks as the questions about roles, strategy and volumes see them: who moved what when in a step.

A *unit* is what "per step" figures are taken over: a step, or the steps of one optimizer step where gradients are
accumulated (``spec``: section 2). Calls outside of every complete unit have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.steps import units
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED, Calls
from commprof.trace.operations import OPERATIONS, bus_factor, element_bytes

Floats = NDArray[np.float64]

NO_UNIT = -1


_SOON_NS = 2_000
"""Kernels of one stream start within this of each other: a microsecond or two between them."""


@dataclass(slots=True, eq=False)
class Traffic:
    """One row per call and rank (fused kernels left out), by rank and then in the order its program issued them.

    Columns of shape ``(rows,)``: ``rank`` is an index into the ranks of the input, ``group`` into ``Analysis.groups``
    (-1 none), ``operation`` into ``OPERATIONS``, ``phase`` into ``PHASES`` (-1 unknown), ``unit`` counts within a rank.
    ``size`` is ``S`` in bytes (-1 unknown), ``width`` bytes per element (0 unknown), ``floating`` whether of a
    floating-point type, ``moved`` is ``S * f`` (0 where it is not known). ``place`` is where in its unit a call starts,
    from 0 to 1 (NaN without a unit). ``behind`` tells the calls that start as soon as the one before them in their
    group has ended (``None``: not known). ``units`` is the number of units of each rank, shape ``(ranks,)``.
    """

    rank: Int64Array
    group: Int64Array
    operation: NDArray[np.int8]
    phase: NDArray[np.int8]
    unit: Int64Array
    size: Int64Array
    width: Int64Array
    floating: NDArray[np.bool_]
    moved: Floats
    place: Floats
    peer: Int64Array
    units: Int64Array
    behind: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def share(self) -> Floats:
        """What each call weighs in a sum that is to be a mean over ranks and units; 0 outside of units."""
        counts = self.units[self.rank] * max(1, int((self.units > 0).sum()))
        return np.where(self.unit >= 0, 1 / np.maximum(counts, 1), 0.0)


def find_traffic(analysis: Analysis) -> Traffic:
    """The table of all ranks."""
    parts = [_of_rank(rank, groups, analysis) for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True)]
    names = [name for name in Traffic.__slots__ if name not in ("rank", "units")]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
    counts = [len(part["group"]) for part in parts]
    return Traffic(
        rank=np.repeat(np.arange(len(parts)), counts),
        units=np.array([_count(part["unit"]) for part in parts], np.int64),
        **columns,
    )


def _count(unit: NDArray[Any]) -> int:
    return len(np.unique(unit[unit >= 0])) if len(unit) else 0


def _of_rank(rank: RankAnalysis, groups: Sequence[int], analysis: Analysis) -> dict[str, NDArray[Any]]:
    calls = rank.calls
    issued = np.where(calls.issued == NOT_LAUNCHED, calls.start, calls.issued)
    rows = np.flatnonzero(~calls.fused)
    rows = rows[np.argsort(issued[rows], kind="stable")]
    to_global = np.array([*groups, -1], np.int64)
    sizes = np.array([*(analysis.groups[group].size or -1 for group in groups), -1], np.int64)
    members = np.where(calls.group_size > 0, calls.group_size, sizes[calls.group])[rows]
    widths = np.array([*(element_bytes(name) or 0 for name in calls.dtypes), 0], np.int64)
    floating = np.array([*("float" in name or "complex" in name for name in calls.dtypes), True], np.bool_)
    unit, place = _units_of(rank, rows)
    size = calls.size_bytes[rows]
    return {
        "group": to_global[calls.group[rows]],
        "operation": calls.operation[rows],
        "phase": rank.places.phase[rows],
        "unit": unit,
        "size": size,
        "width": widths[calls.dtype[rows]],
        "floating": floating[calls.dtype[rows]],
        "moved": np.maximum(size, 0) * _factors(calls.operation[rows], members),
        "place": place,
        "peer": calls.peer[rows],
        "behind": _behind(calls, rows),
    }


def _behind(calls: Calls, rows: Int64Array) -> NDArray[np.bool_]:
    """Whether each of these calls starts as soon as the one before it in its group has ended: nothing computes between
    that could have made the one from the other."""
    order = rows[np.lexsort((calls.start[rows], calls.group[rows]))]
    out = np.zeros(len(calls), np.bool_)
    after = calls.start[order[1:]] - calls.end[order[:-1]] <= _SOON_NS
    out[order[1:]] = after & (calls.group[order[1:]] == calls.group[order[:-1]])
    behind: NDArray[np.bool_] = out[rows]
    return behind


def _factors(operation: NDArray[np.int8], members: Int64Array) -> Floats:
    """``f`` of each call, 0 where it is not defined."""
    out = np.zeros(len(operation))
    for size in np.unique(members).tolist():
        mine = members == size
        table = np.array([bus_factor(name, size) or 0.0 for name in OPERATIONS])
        out[mine] = table[operation[mine]]
    return out


def _units_of(rank: RankAnalysis, rows: Int64Array) -> tuple[Int64Array, Floats]:
    """Unit of each call by the label of its step, and its place in it by time."""
    device = rank.devices[0]
    unit_of = np.full(len(rank.shares.step_names) + 1, NO_UNIT, np.int64)
    begin, length = [], []
    numbers = {name: index for index, name in enumerate(rank.shares.step_names)}
    cut = {step.name for step in device.steps if step.incomplete}
    every = units(device, rank.optimizer_marks)
    whole = [one for one in every if not cut.intersection(one.names)]
    for number, one in enumerate(whole or every):
        for name in one.names:
            unit_of[numbers[name]] = number
        begin.append(one.splits[0].start)
        length.append(max(1, one.splits[-1].end - one.splits[0].start))
    unit = unit_of[rank.shares.step[rows]]
    place = (rank.calls.start[rows] - np.array([*begin, 0])[unit]) / np.array([*length, 1])[unit]
    return unit, np.where(unit >= 0, np.clip(place, 0.0, 1.0), np.nan)
