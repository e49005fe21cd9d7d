"""Where each training step begins and ends on the device (``spec``: section 2).

A GPU can run two steps behind the CPU, so the CPU's marks alone are no windows for device time. With launch links a
window starts where the first compute launched in a step starts on the main compute stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.work import Work
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED, RankTrace

_MARK = re.compile(r"^ProfilerStep\s*#?\s*\d+")
_LAUNCH = re.compile(r"Launch(?:Cooperative)?Kernel|GraphLaunch|LaunchKernelEx")
_INCOMPLETE_SHARE = 0.01

NO_DEVICE_WORK = "no device work"
NO_MAIN_COMPUTE = "no main compute"
NO_LENGTH = "timestamps out of order"
UNMARKED = "window"


@dataclass(frozen=True, slots=True)
class Marks:
    """Step annotations of the CPU, cut so that every instant belongs to one: ``[start, end)`` in order."""

    names: list[str]
    start: Int64Array
    end: Int64Array

    def step_of(self, instants: Int64Array) -> Int64Array:
        """Index of the step whose annotation holds each instant, -1 outside all of them."""
        index = np.searchsorted(self.start, instants, side="right") - 1
        inside = index >= 0
        inside[inside] = instants[inside] < self.end[index[inside]]
        return np.where(inside, index, -1)


@dataclass(frozen=True, slots=True)
class Window:
    """One step on the device; ``open`` if the capture ended before the next one began."""

    name: str
    mark: int
    start: int
    end: int
    open: bool = False


@dataclass(frozen=True, slots=True)
class Windows:
    """All windows of one device; ``kind`` is ``launch``, ``annotation`` or ``none`` (no step marks)."""

    kind: str
    windows: list[Window]
    without: list[tuple[str, str]]
    main_stream: int | None


def step_marks(rank: RankTrace) -> Marks:
    """The ``ProfilerStep`` annotations of a rank: one per step, whatever number of threads show it."""
    found: list[tuple[int, int, str]] = []
    for table in (rank.annotations, rank.operators):
        codes = {code for code in np.unique(table.name).tolist() if _MARK.match(rank.names[code])}
        rows = np.flatnonzero(np.isin(table.name, list(codes)))
        found += [(int(table.start[row]), int(table.end[row]), rank.names[table.name[row]]) for row in rows.tolist()]
    merged: list[tuple[int, int, str]] = []
    for start, end, name in sorted(found):
        same = next((i for i, (s, e, n) in enumerate(merged) if n == name and start < e and end > s), None)
        if same is None:
            merged.append((start, end, name))
        else:
            merged[same] = (min(start, merged[same][0]), max(end, merged[same][1]), name)
    merged.sort()
    starts = np.array([start for start, _, _ in merged], np.int64)
    ends = np.array([end for _, end, _ in merged], np.int64)
    if len(starts) > 1:
        ends[:-1] = np.minimum(ends[:-1], starts[1:])
    return Marks([name for _, _, name in merged], starts, ends)


def find_windows(work: Work, marks: Marks) -> Windows:
    """The windows of one device."""
    stream, on_main = _main_compute(work)
    if not marks.names:
        starts, ends = work.all_start, work.all_end
        return Windows("none", [Window(UNMARKED, -1, int(starts.min()), int(ends.max()))], [], stream)
    step_of_compute = _steps_of(marks, work.compute_launch)
    first = _earliest(work.compute_start[on_main], step_of_compute[on_main], len(marks.names))
    if not first:
        spans = [
            Window(name, index, int(marks.start[index]), int(marks.end[index]))
            for index, name in enumerate(marks.names)
        ]
        return Windows("annotation", spans, [], stream)
    first = _in_order(first)
    step_of_all = _steps_of(marks, work.all_launch)
    last = _latest(work.all_end, step_of_all, len(marks.names))
    windows = []
    for index, name in enumerate(marks.names):
        if index in first:
            end, is_open = _end_of(index, first, last, len(marks.names))
            windows.append(Window(name, index, first[index], max(end, first[index]), is_open))
    # Only timestamps out of order make a window that holds no time; a step of 0 ns would say nothing.
    windows = [window for window in windows if window.end > window.start] or windows
    kept = {window.mark for window in windows}
    without = [
        (name, NO_LENGTH if index in first else NO_MAIN_COMPUTE if index in last else NO_DEVICE_WORK)
        for index, name in enumerate(marks.names)
        if index not in kept
    ]
    return Windows("launch", windows, without, stream)


def _in_order(first: dict[int, int]) -> dict[int, int]:
    """No window starts before that of an earlier step, whatever a damaged clock says: windows may never overlap."""
    out: dict[int, int] = {}
    latest = min(first.values())
    for step in sorted(first):
        latest = max(latest, first[step])
        out[step] = latest
    return out


def _end_of(index: int, first: dict[int, int], last: dict[int, int], steps: int) -> tuple[int, bool]:
    if index + 1 in first:
        return first[index + 1], False
    if index + 1 == steps:
        return max(last.values()), True
    following = [start for step, start in first.items() if step > index]
    return min([last[index], *following]), False


def _main_compute(work: Work) -> tuple[int | None, NDArray[np.bool_]]:
    """The stream with the most compute, and which compute events are on it; CUDA graphs count as one stream."""
    if not len(work.compute_start):
        return None, np.zeros(0, np.bool_)
    graph = work.compute_in_graph
    streams = np.unique(work.compute_stream[~graph])
    duration = work.compute_end - work.compute_start
    sums = [(int(duration[~graph & (work.compute_stream == stream)].sum()), -int(stream)) for stream in streams]
    best = max(sums, default=(-1, 0))
    if graph.any() and int(duration[graph].sum()) > best[0]:
        return None, graph
    return -best[1], ~graph & (work.compute_stream == -best[1])


def _steps_of(marks: Marks, launch: Int64Array) -> Int64Array:
    return np.where(launch == NOT_LAUNCHED, -1, marks.step_of(launch))


def _earliest(values: Int64Array, step: Int64Array, steps: int) -> dict[int, int]:
    lowest = np.full(steps, np.iinfo(np.int64).max)
    np.minimum.at(lowest, step[step >= 0], values[step >= 0])
    return {index: int(lowest[index]) for index in np.unique(step[step >= 0]).tolist()}


def _latest(values: Int64Array, step: Int64Array, steps: int) -> dict[int, int]:
    highest = np.full(steps, np.iinfo(np.int64).min)
    np.maximum.at(highest, step[step >= 0], values[step >= 0])
    return {index: int(highest[index]) for index in np.unique(step[step >= 0]).tolist()}


def optimizer_marks(rank: RankTrace, marks: Marks) -> list[int]:
    """Indices of the marks inside which an optimizer stepped (``Optimizer.step#AdamW.step``)."""
    found: set[int] = set()
    for table in (rank.annotations, rank.operators):
        codes = [code for code, name in enumerate(rank.names) if name.startswith("Optimizer.step#")]
        found |= set(marks.step_of(table.start[np.isin(table.name, codes)]).tolist())
    return sorted(found - {-1})


def incomplete_steps(rank: RankTrace, marks: Marks) -> set[int]:
    """Steps of which more than 1 % of the kernel launches have no device event: the capture ended before them."""
    runtime = rank.runtime
    codes = [code for code, name in enumerate(rank.names) if _LAUNCH.search(name)]
    rows = np.flatnonzero(np.isin(runtime.name, codes) & (runtime.correlation != -1))
    if not len(rows) or not len(rank.device) or not marks.names:
        return set()
    step = marks.step_of(runtime.start[rows])
    ids = np.sort(rank.device.correlation)
    place = np.minimum(np.searchsorted(ids, runtime.correlation[rows]), len(ids) - 1)
    lost = ids[place] != runtime.correlation[rows]
    out = set()
    for index in np.unique(step[step >= 0]).tolist():
        mine = step == index
        if lost[mine].sum() > _INCOMPLETE_SHARE * mine.sum():
            out.add(index)
    return out
