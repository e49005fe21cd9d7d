"""Exposed time added up by operation, process group, stream, phase, module and bucket.

Every roll-up adds up to the exposed time of its window: it sums the parts that the calls have inside the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.attribution import Attribution
from commprof.analysis.places import CallPlaces
from commprof.analysis.windows import Windows
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.model import Calls


@dataclass(frozen=True, slots=True)
class ExposureRow:
    """Communication of one kind in one window.

    ``comm_ns`` is the union of its kernels there, ``hidden_ns`` the part under compute; ``exposed_ns`` the sum of the
    shares of its calls. ``key`` is by ``by`` an index into ``OPERATIONS``, a local group, a stream, an index into
    ``PHASES`` or into the modules of the rank, or the number of a bucket; -1 (of a stream: never) where unknown.
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
    calls: Calls, places: CallPlaces, mine: Int64Array, found: Attribution, compute: IntervalSet, windows: Windows
) -> Iterator[ExposureRow]:
    """Rows for every window of one device; ``mine`` are its calls, in the order of the attribution.

    A roll-up in which nothing is known of any call of the rank is left out.
    """
    start = np.array([window.start for window in windows.windows], np.int64)
    end = np.array([window.end for window in windows.windows], np.int64)
    keys: dict[str, NDArray[Any]] = {
        "op": calls.operation, "group": calls.group, "stream": calls.stream, "phase": places.phase,
        "module": places.module, "bucket": places.bucket,
    }  # fmt: skip
    device = int(calls.device[mine[0]]) if len(mine) else 0
    for by, column in keys.items():
        key = column[mine].astype(np.int64)
        values = np.unique(key)
        # Asked of all devices: a roll-up that one of them has adds up to the exposed time of them all.
        if by in ("module", "bucket") and not (column >= 0).any():
            continue
        for value in values.tolist():
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
