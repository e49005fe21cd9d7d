"""Device work of one device as arrays that every analysis shares (``spec``: section 1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, IntervalSet, union


@dataclass(eq=False)
class Work:
    """The events of one device, or of the CPU where that computes; arrays of one length per kind.

    ``compute_launch`` is the start of the runtime call that enqueued a compute event (``NOT_LAUNCHED`` without link),
    ``compute_thread`` its thread, ``compute_blocks`` its grid (-1: unknown). Names are indices
    into the names of the rank, -1 where there is none. The arrays never change: the unions are made once.
    """

    device: int
    compute_start: Int64Array
    compute_end: Int64Array
    compute_stream: Int64Array
    compute_name: Int64Array
    compute_launch: Int64Array
    compute_thread: Int64Array
    compute_blocks: Int64Array
    compute_in_graph: NDArray[np.bool_]
    compute_fused: NDArray[np.bool_]
    compute_for_comm: NDArray[np.bool_]
    compute_thin: NDArray[np.bool_] | None
    comm_start: Int64Array
    comm_end: Int64Array
    copy_start: Int64Array
    copy_end: Int64Array
    copy_stream: Int64Array
    copy_name: Int64Array
    copy_thread: Int64Array
    other_launch: Int64Array
    """Launches of communication and copies, in that order."""

    @cached_property
    def compute(self) -> IntervalSet:
        """``C``: instants with compute."""
        return union(self.compute_start, self.compute_end)

    @cached_property
    def comm(self) -> IntervalSet:
        """``K``: instants with communication."""
        return union(self.comm_start, self.comm_end)

    @cached_property
    def copy(self) -> IntervalSet:
        """``M``: instants with copies."""
        return union(self.copy_start, self.copy_end)

    @property
    def copy_launch(self) -> Int64Array:
        """Launches of the copies."""
        return self.other_launch[len(self.comm_start) :]

    @property
    def all_start(self) -> Int64Array:
        return np.concatenate([self.compute_start, self.comm_start, self.copy_start])

    @property
    def all_end(self) -> Int64Array:
        return np.concatenate([self.compute_end, self.comm_end, self.copy_end])

    @property
    def all_launch(self) -> Int64Array:
        return np.concatenate([self.compute_launch, self.other_launch])
