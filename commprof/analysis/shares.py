"""The shares of the calls of a rank in its exposed time, collected device by device."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from commprof.analysis.attribution import Activity, Attribution, Pieces, attribute
from commprof.analysis.model import CallShares
from commprof.analysis.places import CallPlaces
from commprof.analysis.rollup import ExposureRow, exposure_rows, kernels_of
from commprof.analysis.scene import DeviceScene
from commprof.analysis.windows import Marks
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED, Calls


class Shares:
    """Collects the shares of the calls of all devices of a rank."""

    def __init__(self, calls: Calls, marks: Marks) -> None:
        count = len(calls)
        self._calls = calls
        self._marks = marks
        self.exposed = np.zeros(count, np.int64)
        self._sole = np.zeros(count, np.int64)
        self._touched = np.zeros(count, np.int64)
        self._step = np.full(count, -1, np.int64)
        self._rows: list[tuple[DeviceScene, Int64Array, Attribution]] = []
        self._parts: list[tuple[Int64Array, Int64Array, Int64Array]] = []
        self._pieces: list[Pieces] = []
        self._names = list(marks.names)

    def add(self, device: DeviceScene) -> None:
        """Share the exposed time of one device among its calls."""
        calls, work, windows = self._calls, device.work, device.windows
        if not windows.windows or windows.kind == "none":
            self._names = [window.name for window in windows.windows]
        mine = np.flatnonzero((calls.device == work.device) & ~calls.fused)
        kernels = kernels_of(calls, mine)
        owner = np.repeat(np.arange(len(mine)), calls.last[mine] - calls.first[mine])
        activity = Activity(owner, calls.kernel_start[kernels], calls.kernel_end[kernels], len(mine))
        start, end = device.start, device.end
        found = attribute(
            activity, work.compute, work.compute_start, np.concatenate([work.all_start, work.all_end]), start, end
        )
        self.exposed[mine], self._sole[mine], self._touched[mine] = found.exposed, found.sole, found.touched
        self._rows.append((device, mine, found))
        index = device.steps
        self._parts.append((mine[found.part_call], index[found.part_window], found.part_ns))
        pieces = found.pieces
        step = np.where(pieces.window >= 0, np.append(index, -1)[pieces.window], -1)
        self._pieces.append(Pieces(mine[pieces.call], step, pieces.start, pieces.end, pieces.ns))
        self._label(np.flatnonzero(calls.device == work.device), start, end, index)

    def _label(self, calls: Int64Array, start: Int64Array, end: Int64Array, index: Int64Array) -> None:
        """The step of the launch, else the window that holds the start."""
        launched = self._calls.launched[calls]
        step = np.where(launched == NOT_LAUNCHED, -1, self._marks.step_of(launched)) if len(self._marks.start) else -1
        begin = self._calls.start[calls]
        place = np.searchsorted(start, begin, side="right") - 1
        inside = (place >= 0) & (begin < end[np.maximum(place, 0)]) if len(start) else np.zeros(len(begin), np.bool_)
        by_window = np.where(inside, index[np.maximum(place, 0)], -1) if len(start) else np.full(len(begin), -1)
        self._step[calls] = np.where(np.asarray(step) >= 0, step, by_window)

    def result(self) -> CallShares:
        """The shares of all calls, when every device was added."""
        call, step, ns = (np.concatenate(parts) for parts in zip(*self._parts, strict=True))
        names = (field.name for field in fields(Pieces))
        pieces = Pieces(*(np.concatenate([getattr(part, name) for part in self._pieces]) for name in names))
        return CallShares(self.exposed, self._sole, self._touched, self._step, call, step, ns, self._names, pieces)

    def rows(self, places: CallPlaces) -> list[ExposureRow]:
        """Exposed time added up by what is known of the calls and their places."""
        return [
            row
            for device, mine, found in self._rows
            for row in exposure_rows(self._calls, places, mine, found, device.work.compute, device.windows)
        ]
