"""Kernels with an impossible end, cut where the next one on their stream begins.

Profilers sometimes lose the end of a kernel and write one that lies seconds later. Such an event contains whole later
events of its own in-order stream and lasts many times what its name usually does. Communication and the kernels of
CUDA graphs are left alone: there a long wait looks the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.trace.model import DeviceEvents

_TIMES_MEDIAN = 10
_CONTAINED = 2


def clip_lost_ends(device: DeviceEvents, may_clip: NDArray[np.bool_]) -> int:
    """Shorten such events in place and return how many there were."""
    if len(device) < _CONTAINED + 1:
        return 0
    duration = device.end - device.start
    suspects = np.flatnonzero(
        may_clip & (duration > 0) & (duration >= _TIMES_MEDIAN * _median_of_name(device, duration))
    )
    if not len(suspects):
        return 0
    order = np.lexsort((np.arange(len(device)), device.start, device.stream, device.device))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    start, end, stream, unit = (column[order] for column in (device.start, device.end, device.stream, device.device))
    cuts: list[tuple[int, int]] = []
    for row in suspects.tolist():
        at = int(place[row])
        after = _after_those_begun(at, start, stream, unit, end[at])
        inside = np.count_nonzero(end[at + 1 : after] <= end[at])
        following = start[at + 1 : after]
        following = following[following > start[at]]
        if inside >= _CONTAINED and len(following):
            cuts.append((row, int(following[0])))
    for row, stop in cuts:
        device.end[row] = stop
    return len(cuts)


def _after_those_begun(
    at: int, start: NDArray[np.int64], stream: NDArray[np.int64], unit: NDArray[np.int64], stop: np.int64
) -> int:
    """Position after the last event of the same stream that starts before ``stop``."""
    position = at + 1
    while position < len(start) and stream[position] == stream[at] and unit[position] == unit[at]:
        if start[position] >= stop:
            break
        position += 1
    return position


def _median_of_name(device: DeviceEvents, duration: NDArray[np.int64]) -> NDArray[np.float64]:
    """The median duration of each event's name."""
    order = np.lexsort((duration, device.name))
    name, sorted_duration = device.name[order], duration[order]
    first = np.flatnonzero(np.concatenate([[True], name[1:] != name[:-1]]))
    count = np.diff(np.concatenate([first, [len(name)]]))
    middle = (sorted_duration[first + (count - 1) // 2] + sorted_duration[first + count // 2]) / 2
    out = np.empty(len(name), np.float64)
    out[order] = np.repeat(middle, count)
    return out
