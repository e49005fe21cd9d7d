"""Exposed time added up by operation, process group and stream; every roll-up adds up to the window's exposed time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from commprof.analysis.attribution import Attribution
from commprof.analysis.windows import Windows
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.model import Calls


@dataclass(frozen=True, slots=True)
class ExposureRow:
    """Communication of one kind in one window.

    ``comm_ns`` is the union of its kernels there, ``hidden_ns`` the part under compute; ``exposed_ns`` the sum of the
    shares of its calls. ``key`` is an index into ``OPERATIONS``, a local group (-1 unknown) or a stream, by ``by``.
    """

    step: str
    device: int
    by: str
    key: int
    calls: int
    comm_ns: int
    hidden_ns: int
    exposed_ns: int


def exposure_rows(
    calls: Calls, mine: Int64Array, found: Attribution, compute: IntervalSet, windows: Windows, device: int
) -> Iterator[ExposureRow]:
    """Rows for every window of one device; ``mine`` are its calls, in the order of the attribution."""
    start = np.array([window.start for window in windows.windows], np.int64)
    end = np.array([window.end for window in windows.windows], np.int64)
    keys: dict[str, Callable[[Calls], Int64Array]] = {
        "op": lambda c: c.operation.astype(np.int64),
        "group": lambda c: c.group.astype(np.int64),
        "stream": lambda c: c.stream,
    }
    for by, key_of in keys.items():
        key = key_of(calls)[mine]
        for value in np.unique(key).tolist():
            chosen = mine[key == value]
            kernels = kernels_of(calls, chosen)
            pieces = union(calls.kernel_start[kernels], calls.kernel_end[kernels])
            comm, hidden = pieces.within(start, end), (pieces & compute).within(start, end)
            shares = np.zeros(len(start), np.int64)
            parts = key[found.part_call] == value
            np.add.at(shares, found.part_window[parts], found.part_ns[parts])
            for index, window in enumerate(windows.windows):
                active = (calls.start[chosen] < window.end) & (calls.end[chosen] > window.start)
                if active.any():
                    yield ExposureRow(
                        window.name, device, by, int(value), int(active.sum()), int(comm[index]), int(hidden[index]),
                        int(shares[index]),
                    )  # fmt: skip


def kernels_of(calls: Calls, rows: Int64Array) -> Int64Array:
    """Indices of the kernels of the given calls, call by call."""
    return np.concatenate([np.arange(calls.first[row], calls.last[row]) for row in rows.tolist()] or [rows])
