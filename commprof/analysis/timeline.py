"""One step of one device as lanes of segments, few enough to draw.

A step of a real job holds tens of thousands of kernels; a screen has some thousand pixels. Runs of kernels shorter
than a pixel become one segment that says how many it stands for. Communication stays single as long as it can.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from commprof.analysis.windows import Window, Windows
from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet
from commprof.trace.model import Calls, RankTrace
from commprof.trace.operations import OPERATIONS

PIXELS = 2000
"""What is narrower than one part in this many of a step is no wider than a point of a screen."""
BINS = 1000
_MOST_STRETCHES = 2000
"""A lane with more is drawn by these bins: the page stays small, and its sums exact."""
_NAME_LENGTH = 120
"""Of a kernel's name: templates run to thousands of characters."""


def timeline(rank: RankTrace, work: Work, windows: Windows, calls: Calls, exposed: Int64Array) -> dict[str, Any]:
    """Lanes of the chosen step: ``compute`` and ``copy`` by stream, ``comm`` by stream with facts of each call.

    Times are nanoseconds on the rank's own clock, without its base.
    """
    window = choose_window(windows)
    pixel = max(1, (window.end - window.start) // PIXELS)
    lanes = _kernel_lanes(rank, work, window, pixel) + _comm_lanes(rank, calls, exposed, work, window, pixel)
    busy = work.compute | work.comm | work.copy
    everything = IntervalSet(np.array([window.start], np.int64), np.array([window.end], np.int64))
    parts = {
        "exposed": (work.comm - work.compute).clip(window.start, window.end),
        "exposed_copy": (work.copy - work.compute - work.comm).clip(window.start, window.end),
        "idle": everything - busy,
    }
    return {
        "rank": rank.rank,
        "device": work.device,
        "step": window.name,
        "start_ns": window.start,
        "end_ns": window.end,
        "lanes": lanes,
        **{name: _stretches(part, pixel) for name, part in parts.items()},
        "shares": {name: _shares(part, window) for name, part in parts.items()},
    }


def choose_window(windows: Windows) -> Window:
    """The middle one of the closed windows: neither the first, which may be settling, nor the last, which is cut."""
    closed = [window for window in windows.windows if not window.open] or windows.windows
    return closed[len(closed) // 2]


def _kernel_lanes(rank: RankTrace, work: Work, window: Window, pixel: int) -> list[dict[str, Any]]:
    lanes: list[dict[str, Any]] = []
    for kind, starts, ends, streams, names in (
        ("compute", work.compute_start, work.compute_end, work.compute_stream, work.compute_name),
        ("copy", work.copy_start, work.copy_end, work.copy_stream, work.copy_name),
    ):
        inside = (starts < window.end) & (ends > window.start)
        for stream in np.unique(streams[inside]).tolist():
            mine = np.flatnonzero(inside & (streams == stream))
            mine = mine[np.argsort(starts[mine], kind="stable")]
            for row, chosen in enumerate(_separate(starts[mine], ends[mine])):
                picked = mine[chosen]
                segments = [
                    _kernels(starts[picked[low:high]], ends[picked[low:high]], rank, names[picked[low]])
                    for low, high in _runs(starts[picked], ends[picked], pixel)
                ]
                lanes.append({"kind": kind, "stream": _stream_name(rank, stream), "row": row, "segments": segments})
    return lanes


def _comm_lanes(
    rank: RankTrace, calls: Calls, exposed: Int64Array, work: Work, window: Window, pixel: int
) -> list[dict[str, Any]]:
    lanes: list[dict[str, Any]] = []
    inside = (calls.start < window.end) & (calls.end > window.start) & (calls.device == work.device) & ~calls.fused
    for stream in np.unique(calls.stream[inside]).tolist():
        mine = np.flatnonzero(inside & (calls.stream == stream))
        crowded = pixel if len(mine) > _MOST_STRETCHES else 0
        for row, chosen in enumerate(_separate(calls.start[mine], calls.end[mine])):
            picked = mine[chosen]
            segments = [
                _call_segment(calls, exposed, picked[low:high])
                for low, high in _runs(calls.start[picked], calls.end[picked], crowded)
            ]
            lanes.append({"kind": "comm", "stream": _stream_name(rank, stream), "row": row, "segments": segments})
    return lanes


def _stream_name(rank: RankTrace, stream: int) -> str:
    return str(stream) if len(rank.device) else "cpu"


def _separate(start: Int64Array, end: Int64Array) -> list[Int64Array]:
    """Sorted events in as many rows as it takes for none to cover another one of its row."""
    if len(start) < 2 or (end[:-1] <= start[1:]).all():
        return [np.arange(len(start))]
    rows: list[list[int]] = []
    reach: list[int] = []
    for index, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        row = next((i for i, limit in enumerate(reach) if limit <= begin), None)
        if row is None:
            rows.append([])
            reach.append(0)
            row = len(rows) - 1
        rows[row].append(index)
        reach[row] = stop
    return [np.array(row, np.int64) for row in rows]


def _runs(start: Int64Array, end: Int64Array, pixel: int) -> list[tuple[int, int]]:
    """Ranges of events to draw as one: neighbours less than a pixel apart of which none is a pixel long."""
    short = (end - start) < pixel
    near = np.concatenate([[False], (start[1:] - end[:-1] < pixel) & short[1:] & short[:-1]])
    first = np.flatnonzero(~near)
    return list(zip(first.tolist(), np.append(first[1:], len(start)).tolist(), strict=True))


def _kernels(start: Int64Array, end: Int64Array, rank: RankTrace, name: int) -> dict[str, Any]:
    count = len(start)
    label = f"{count} kernels" if count > 1 else rank.names[name][:_NAME_LENGTH] if name >= 0 else "compute"
    return {
        "start_ns": int(start[0]),
        "end_ns": int(end.max()),
        "label": label,
        "count": count,
        "duration_ns": int((end - start).sum()),
    }


def _call_segment(calls: Calls, exposed: Int64Array, rows: Int64Array) -> dict[str, Any]:
    first = int(rows[0])
    operations = {OPERATIONS[code] for code in calls.operation[rows].tolist()}
    sizes = calls.size_bytes[rows]
    operation = operations.pop() if len(operations) == 1 else "unknown"
    group = int(calls.group[first])
    return {
        "start_ns": int(calls.start[rows].min()),
        "end_ns": int(calls.end[rows].max()),
        "label": operation if len(rows) == 1 else f"{len(rows)} calls",
        "count": len(rows),
        "duration_ns": int(calls.duration[rows].sum()),
        "op": operation,
        "group": calls.groups[group].name if group >= 0 else None,
        "size_bytes": int(sizes.sum()) if (sizes >= 0).all() else None,
        "exposed_ns": int(exposed[rows].sum()),
    }


def _stretches(instants: IntervalSet, pixel: int) -> list[list[int]]:
    """The set as pairs; where there are too many to draw, gaps below a pixel are closed."""
    start, end = instants.starts, instants.ends
    if len(start) > _MOST_STRETCHES:
        apart = start[1:] - end[:-1] >= pixel
        start, end = start[np.concatenate([[True], apart])], end[np.concatenate([apart, [True]])]
    return [[s, e] for s, e in zip(start.tolist(), end.tolist(), strict=True)]


def _shares(part: IntervalSet, window: Window) -> list[int]:
    """Nanoseconds of ``part`` in each of ``BINS`` equal pieces of the window: exact where stretches are not."""
    edges = window.start + (window.end - window.start) * np.arange(BINS + 1, dtype=np.int64) // BINS
    return [int(ns) for ns in part.within(edges[:-1], edges[1:])]
