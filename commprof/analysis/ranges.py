"""Named ranges of CPU threads: which instants of which thread lie in a range of some name, and in which.

Operators and annotations are taken together. Spans of gloo are left out by whoever chooses names: they run on the
caller's thread without being nested.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.links import parents, thread_keys
from commprof.trace.model import RankTrace

NONE = -1


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges in order of thread and start, the longer first; ``parent`` is the row of the one around each."""

    name: NDArray[np.int32]
    thread: Int64Array
    start: Int64Array
    end: Int64Array
    parent: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    def innermost(self, thread: Int64Array, instant: Int64Array) -> Int64Array:
        """Row of the last-started range around each instant of a thread, :data:`NONE` where there is none."""
        found = np.full(len(instant), NONE, np.int64)
        for key in np.unique(thread).tolist():
            low = int(np.searchsorted(self.thread, key, side="left"))
            high = int(np.searchsorted(self.thread, key, side="right"))
            mine = np.flatnonzero(thread == key)
            row = low - 1 + np.searchsorted(self.start[low:high], instant[mine], side="right")
            found[mine] = np.where(row < low, NONE, row)
        return self._until(found, instant)

    def _until(self, row: Int64Array, instant: Int64Array) -> Int64Array:
        """Step outwards until the range holds the instant."""
        while True:
            over = row != NONE
            over[over] = self.end[row[over]] <= instant[over]
            if not over.any():
                return row
            row[over] = self.parent[row[over]]

    def outwards(self, row: Int64Array) -> Int64Array:
        """The range around each of the given ones."""
        return np.where(row == NONE, NONE, self.parent[np.maximum(row, 0)]) if len(self) else row

    def spans(self, chosen: NDArray[np.bool_]) -> dict[int, IntervalSet]:
        """The chosen ranges of each thread that has any, as instants."""
        return {
            key: union(self.start[rows], self.end[rows])
            for key in np.unique(self.thread[chosen]).tolist()
            for rows in [np.flatnonzero(chosen & (self.thread == key))]
        }


def find_ranges(rank: RankTrace, pattern: re.Pattern[str]) -> Ranges:
    """All operators and annotations whose name the pattern finds."""
    codes = codes_of(rank, pattern)
    parts = []
    for table in (rank.operators, rank.annotations):
        rows = np.flatnonzero(np.isin(table.name, codes))
        thread = thread_keys(table.pid[rows], table.tid[rows])
        parts.append((table.name[rows], thread, table.start[rows], table.end[rows]))
    name, thread, start, end = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((-end, start, thread))
    name, thread, start, end = name[order], thread[order], start[order], end[order]
    return Ranges(name, thread, start, end, parents(thread, start, end))


def codes_of(rank: RankTrace, pattern: re.Pattern[str]) -> list[int]:
    """Indices of the names that the pattern finds."""
    return [code for code, name in enumerate(rank.names) if pattern.search(name)]


def contained(spans: dict[int, IntervalSet], thread: Int64Array, instant: Int64Array) -> NDArray[np.bool_]:
    """Whether each instant of a thread lies in the spans of that thread."""
    inside = np.zeros(len(instant), np.bool_)
    for key, instants in spans.items():
        mine = np.flatnonzero(thread == key)
        inside[mine] = instants.contains(instant[mine])
    return inside
