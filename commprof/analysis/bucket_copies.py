"""Copies of gradients into the buckets that are reduced, and back: memory traffic that bucket views avoid.

Without ``gradient_as_bucket_view`` DDP keeps every gradient twice, once as such and once inside its bucket. What the
profiler shows of it as copies inside the device is told by what launched them or by what they come before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.ranges import contained, find_ranges
from commprof.analysis.scene import DeviceScene, Scene
from commprof.analysis.where_model import Bucket, BucketCopies
from commprof.intervals import Int64Array, union
from commprof.trace.model import NOT_LAUNCHED

_REDUCER = re.compile(r"^torch::distributed::reducer::(?:mul_out|copy_)|^torch\.distributed\.ddp\.reducer::copy_bucket")
_ELSEWHERE = re.compile(r"h(?:ost)?\s*(?:to|2)\s*d|d(?:evice)?\s*(?:to|2)\s*h|p\s*(?:to|2)\s*p|set|fill", re.IGNORECASE)
"""Copies that leave the device, and fills."""


def find_bucket_copies(scene: Scene, buckets: Sequence[Bucket]) -> list[BucketCopies]:
    """Copies of every device and window that belong to a bucket; a window without any has no row.

    A copy inside the device belongs to a bucket if DDP's reducer launched it, or if the next thing but copies that its
    thread launched is the reduction of a bucket. Where the copy is not linked to its launch, the next thing that starts
    on the device after it decides. Empty on a CPU trace, where DDP's copies are compute.
    """
    if scene.on_cpu or not buckets:
        return []
    calls = np.array([bucket.call for bucket in buckets], np.int64)
    spans = find_ranges(scene.rank, _REDUCER)
    by_reducer = spans.spans(np.ones(len(spans), np.bool_))
    rows = []
    for device in scene.devices:
        work = device.work
        mine = calls[scene.calls.device[calls] == work.device]
        local = _inside(scene, device)
        if not len(mine) or not local.any():
            continue
        chosen = local & contained(by_reducer, work.copy_thread, work.copy_launch)
        chosen |= local & _before_a_bucket(scene, device, mine)
        rows += _by_window(device, chosen)
    return rows


def _inside(scene: Scene, device: DeviceScene) -> NDArray[np.bool_]:
    """Copies that stay on the device."""
    names = device.work.copy_name
    codes = [code for code in np.unique(names).tolist() if not _ELSEWHERE.search(scene.rank.names[code])]
    return np.isin(names, codes)


def _before_a_bucket(scene: Scene, device: DeviceScene, buckets: Int64Array) -> NDArray[np.bool_]:
    """Copies after which a reduction of a bucket comes before anything else, on their thread or else on the device."""
    work, calls = device.work, scene.calls
    other = np.setdiff1d(np.flatnonzero(calls.device == work.device), buckets)
    linked = work.copy_launch != NOT_LAUNCHED
    out = np.zeros(len(linked), np.bool_)
    for key in np.unique(work.copy_thread[linked]).tolist():
        on_thread = calls.thread == key
        mine = np.flatnonzero(linked & (work.copy_thread == key))
        out[mine] = _next_is(
            work.copy_launch[mine],
            calls.launched[buckets[on_thread[buckets]]],
            np.concatenate([work.compute_launch[work.compute_thread == key], calls.launched[other[on_thread[other]]]]),
        )
    mine = np.flatnonzero(~linked)
    out[mine] = _next_is(
        work.copy_end[mine], calls.start[buckets], np.concatenate([work.compute_start, calls.start[other]])
    )
    return out


def _next_is(instants: Int64Array, wanted: Int64Array, others: Int64Array) -> NDArray[np.bool_]:
    """Whether at or after each instant one of ``wanted`` comes, and none of ``others`` before it."""
    never = np.iinfo(np.int64).max
    wanted, others = np.sort(wanted[wanted != NOT_LAUNCHED]), np.sort(others[others != NOT_LAUNCHED])
    following = np.append(wanted, never)[np.searchsorted(wanted, instants, side="left")]
    between = np.append(others, never)[np.searchsorted(others, instants, side="left")]
    found: NDArray[np.bool_] = following < between
    return found


def _by_window(device: DeviceScene, chosen: NDArray[np.bool_]) -> list[BucketCopies]:
    work = device.work
    start, end = work.copy_start[chosen], work.copy_end[chosen]
    copies = union(start, end)
    total = copies.within(device.start, device.end)
    exposed = (copies - work.compute - work.comm).within(device.start, device.end)
    place = np.searchsorted(device.start, start, side="right") - 1
    inside = (place >= 0) & (start < device.end[np.maximum(place, 0)]) if len(device.start) else place >= 0
    count = np.bincount(place[inside], minlength=len(device.start))
    return [
        BucketCopies(work.device, int(device.steps[window]), int(count[window]), int(total[window]), int(lost))
        for window, lost in enumerate(exposed.tolist())
        if total[window]
    ]
