"""One rank while its columns are still there: what every analysis of where and why looks at."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import CallShares
from commprof.analysis.windows import Marks, Windows
from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, Calls, RankTrace

_NO_WORK = re.compile(
    r"^(?:c10d::|_c10d_functional|gloo:|record_param_comms|ProfilerStep|autograd::engine|torch::autograd::"
    r"|torch\.distributed\.)|Backward\d+$"
)


@dataclass(slots=True, eq=False)
class DeviceScene:
    """One device: its work, its windows, its host-bound instants (``None`` if nothing is linked), and those at which
    the next compute was not launched because the thread that was to do it waited for the device.

    ``start``, ``end`` and ``steps`` (index into the names of the steps of the rank) have one entry per window.
    """

    work: Work
    windows: Windows
    host: IntervalSet | None
    blocked: IntervalSet
    start: Int64Array = field(init=False)
    end: Int64Array = field(init=False)
    steps: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        self.start = np.array([window.start for window in self.windows.windows], np.int64)
        self.end = np.array([window.end for window in self.windows.windows], np.int64)
        self.steps = np.array([max(window.mark, 0) for window in self.windows.windows], np.int64)

    @property
    def linked(self) -> NDArray[np.bool_]:
        """Windows with compute that is linked to its launch: only there the host is known (``spec``: section 3)."""
        work = self.work
        starts = np.sort(work.compute_start[work.compute_launch != NOT_LAUNCHED])
        found: NDArray[np.bool_] = np.searchsorted(starts, self.end) > np.searchsorted(starts, self.start)
        return found

    @property
    def on_main(self) -> NDArray[np.bool_]:
        """Which compute events are on the main compute stream."""
        stream = self.windows.main_stream
        return self.work.compute_in_graph if stream is None else self.work.compute_stream == stream


@dataclass(slots=True, eq=False)
class Scene:
    """A rank with its devices, its calls and their shares of exposed time.

    ``launch`` and ``thread`` tell of everything that was launched (on a CPU trace: run) beside communication, over
    all devices. With ``by_time`` nothing in the trace is linked to a launch.
    """

    rank: RankTrace
    marks: Marks
    calls: Calls
    shares: CallShares
    devices: list[DeviceScene]
    on_cpu: bool
    launch: Int64Array = field(init=False)
    thread: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        if self.on_cpu:
            self.launch, self.thread = _cpu_launches(self.rank)
        else:
            works = [device.work for device in self.devices]
            self.launch = _joined([work.compute_launch for work in works])
            self.thread = _joined([work.compute_thread for work in works])

    @property
    def by_time(self) -> bool:
        """Whether only the clock of the device says what belongs together."""
        return not ((self.launch != NOT_LAUNCHED).any() or (self.calls.issued != NOT_LAUNCHED).any())


def _joined(columns: list[Int64Array]) -> Int64Array:
    """The columns of all devices in one; of a single device as it is, without a copy."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _cpu_launches(rank: RankTrace) -> tuple[Int64Array, Int64Array]:
    """Operators of a CPU trace that compute, by start and thread."""
    table = rank.operators
    codes = [code for code, name in enumerate(rank.names) if _NO_WORK.search(name)]
    rows = np.flatnonzero(~np.isin(table.name, codes))
    return table.start[rows], thread_keys(table.pid[rows], table.tid[rows])
