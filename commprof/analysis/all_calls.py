"""The calls of all ranks as one table: what has to be compared across ranks, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

SYNCHRONISING = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Operations that nobody can finish before the last member has entered (all-to-all: with equal splits)."""

NO_STEP = -1


@dataclass(slots=True, eq=False)
class AllCalls:
    """One row per call and rank, by rank and then in the order of its table; columns of shape ``(rows,)``.

    ``rank`` is an index into ``numbers`` (the ranks in the input), ``first[i]`` the first row of rank ``i``. ``start``
    and ``end`` are Unix nanoseconds on the rank's own clock. ``group`` is an index into ``Analysis.groups``, ``dtype``
    into a list common to all ranks, ``step`` into ``step_names`` (-1: none). ``order`` sorts the calls of a rank as its
    program issued them.
    """

    numbers: Int64Array
    first: Int64Array
    rank: Int64Array
    operation: NDArray[np.int8]
    group: Int64Array
    group_size: Int64Array
    sequence: Int64Array
    peer: Int64Array
    root: Int64Array
    size: Int64Array
    dtype: Int64Array
    start: Int64Array
    end: Int64Array
    duration: Int64Array
    order: Int64Array
    step: Int64Array
    unequal: NDArray[np.int8]
    sync: NDArray[np.bool_]
    fused: NDArray[np.bool_]
    step_names: list[str]
    labelled: NDArray[np.bool_]
    """Per rank: whether step labels come from launches, so that they mean the same on every rank."""
    begins: Int64Array
    ends: Int64Array
    """Per rank: the first and last instant of its capture with work on a device."""

    def __len__(self) -> int:
        return len(self.rank)

    def rows_of(self, rank: int) -> slice:
        """Rows of the rank with index ``rank``."""
        return slice(int(self.first[rank]), int(self.first[rank + 1]))


def gather_calls(analysis: Analysis) -> AllCalls:
    """All calls of the input in one table."""
    ranks = analysis.ranks
    counts = [len(rank.calls) for rank in ranks]
    steps: dict[str, int] = {}
    dtypes: dict[str, int] = {}

    def column(name: str) -> Int64Array:
        return _joined([getattr(rank.calls, name) for rank in ranks])

    base = np.repeat(np.array([rank.base_ns for rank in ranks], np.int64), counts)
    return AllCalls(
        numbers=np.array([rank.rank for rank in ranks], np.int64),
        first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        rank=np.repeat(np.arange(len(ranks)), counts),
        operation=column("operation").astype(np.int8),
        group=_joined([_mapped(rank.calls.group, to) for rank, to in zip(ranks, analysis.group_of, strict=True)]),
        group_size=column("group_size"),
        sequence=column("sequence"),
        peer=column("peer"),
        root=column("root"),
        size=column("size_bytes"),
        dtype=_joined([_mapped(rank.calls.dtype, _numbers(rank.calls.dtypes, dtypes)) for rank in ranks]),
        start=column("start") + base,
        end=column("end") + base,
        duration=column("duration"),
        order=_joined([_issue_order(rank) for rank in ranks]),
        step=_joined([_mapped(rank.shares.step, _numbers(rank.shares.step_names, steps)) for rank in ranks]),
        unequal=column("unequal").astype(np.int8),
        sync=column("sync").astype(np.bool_),
        fused=column("fused").astype(np.bool_),
        step_names=list(steps),
        labelled=np.array([_has_labels(rank) for rank in ranks], np.bool_),
        begins=np.array([min(d.whole.start for d in rank.devices) + rank.base_ns for rank in ranks], np.int64),
        ends=np.array([max(d.whole.end for d in rank.devices) + rank.base_ns for rank in ranks], np.int64),
    )  # fmt: skip


def _joined(parts: list[Int64Array]) -> Int64Array:
    return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)


def _numbers(names: list[str], known: dict[str, int]) -> list[int]:
    return [known.setdefault(name, len(known)) for name in names]


def _mapped(index: NDArray[Any], to: Sequence[int]) -> Int64Array:
    table: Int64Array = np.array([*to, -1], np.int64)
    return np.asarray(table[index])


def _issue_order(rank: RankAnalysis) -> Int64Array:
    """Place of each call in the order of its program, which streams and gloo's threads need not start them in.

    A call whose launch is not known (of a graph, or before the capture) comes after the one before it on its stream.
    """
    calls = rank.calls
    index = np.arange(len(calls))
    along = np.lexsort((index, calls.start, calls.stream, calls.device))
    known = calls.issued[along] != NOT_LAUNCHED
    fresh = np.ones(len(along), np.bool_)
    fresh[1:] = (np.diff(calls.stream[along]) != 0) | (np.diff(calls.device[along]) != 0)
    before = np.maximum.accumulate(np.where(known | fresh, index, 0))
    issued = np.empty(len(calls), np.int64)
    issued[along] = calls.issued[along][before]
    place = np.empty(len(calls), np.int64)
    place[np.lexsort((index, calls.start, issued))] = index
    return place


def _has_labels(rank: RankAnalysis) -> bool:
    """Whether steps are told by the launch of calls: those of windows depend on how late a rank is."""
    launched = rank.calls.launched != NOT_LAUNCHED
    return bool(len(launched)) and bool(launched.mean() > 0.9) and bool((rank.shares.step >= 0).any())
