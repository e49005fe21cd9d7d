"""DDP's gradient buckets on the timeline of the device (``spec``: section 9).

A bucket is a reduction of gradients that is no unit of FSDP or ZeRO-3. Buckets are numbered in order of launch within
one backward pass and process group. The capture's bucket map gives them parameters where its sizes fit; a capture that
holds the first iteration shows it by one bucket as large as the later ones together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from commprof.analysis.passes import BackwardPass, last_launched, previous_call
from commprof.analysis.phases import Phases
from commprof.analysis.places import NOWHERE, CallPlaces
from commprof.analysis.purposes import GRADIENTS, PARAMETERS, communicators
from commprof.analysis.ranges import codes_of
from commprof.analysis.scene import Scene
from commprof.analysis.where_model import Bucket
from commprof.intervals import Int64Array
from commprof.manifest import Bucket as KnownBucket
from commprof.manifest import DdpModule
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, UNKNOWN_SIZE

FIRST_ITERATION, REBUILT, UNKNOWN_LAYOUT = "first-iteration", "rebuilt", "unknown"
_REDUCER = re.compile(r"^torch::distributed::reducer::")
_COMPRESSIONS = (1, 2, 4)
"""A communication hook may send fewer bytes than the gradients have."""


def find_buckets(
    scene: Scene, phases: Phases, places: CallPlaces, backward: list[BackwardPass], ddp: Sequence[DdpModule] = ()
) -> list[Bucket]:
    """The buckets of one rank in order of start; numbers their calls in ``places.bucket``."""
    rows = _candidates(scene, places)
    if not len(rows):
        return []
    calls = scene.calls
    order = np.where(calls.issued[rows] == NOT_LAUNCHED, calls.start[rows], calls.issued[rows])
    rows = rows[np.argsort(order, kind="stable")]
    series = _series(scene, phases, rows)
    named = {int(row): bucket for row, bucket in _named(scene, rows, series, ddp)}
    _number(scene, places, rows, series, named)
    sizes = calls.size_bytes
    first = _first_iteration(scene, rows, series, ddp)
    times = _Times(scene, backward, rows)
    out = []
    for position, row in enumerate(rows.tolist()):
        known = named.get(row)
        layout = known.layout if known else REBUILT if first and row > max(first) else UNKNOWN_LAYOUT
        out.append(
            replace(
                times.bucket(position),
                series=int(series[position]),
                index=int(places.bucket[row]),
                size=None if sizes[row] == UNKNOWN_SIZE else int(sizes[row]),
                parameters=(known.parameters or None) if known else None,
                layout=FIRST_ITERATION if row in first else layout,
            )
        )
    return sorted(out, key=lambda bucket: (bucket.start, bucket.call))


def _candidates(scene: Scene, places: CallPlaces) -> Int64Array:
    """Reductions of gradients in groups that gather no parameters during the passes, and not launched by FSDP."""
    calls = scene.calls
    gathers = (places.purpose == PARAMETERS) & ((places.phase == 0) | (places.phase == 1))
    group = communicators(calls)
    chosen = (places.purpose == GRADIENTS) & ~np.isin(group, np.unique(group[gathers])) & (places.module == NOWHERE)
    return np.flatnonzero(chosen & ~calls.fused)


def _series(scene: Scene, phases: Phases, rows: Int64Array) -> Int64Array:
    """Number of the backward pass of each call, else of its step; FSDP's and DDP's hooks may run after the pass."""
    calls = scene.calls
    instant = np.where(calls.issued[rows] == NOT_LAUNCHED, calls.start[rows], calls.issued[rows])
    if not len(phases.passes) or scene.by_time:
        return scene.shares.step[rows]
    return np.searchsorted(phases.passes.starts, instant, side="right")


def _number(
    scene: Scene, places: CallPlaces, rows: Int64Array, series: Int64Array, named: dict[int, KnownBucket]
) -> None:
    """Buckets by order of launch within device, group and series; those of the bucket map by its numbers."""
    calls = scene.calls
    mapped = {int(number) for row, number in zip(rows.tolist(), series.tolist(), strict=True) if row in named}
    count: dict[tuple[int, int, int], int] = {}
    for row, number in zip(rows.tolist(), series.tolist(), strict=True):
        if row in named:
            places.bucket[row] = named[row].index
        elif number not in mapped:
            key = (int(calls.device[row]), int(calls.group[row]), number)
            places.bucket[row] = count[key] = count.get(key, -1) + 1


def _named(
    scene: Scene, rows: Int64Array, series: Int64Array, ddp: Sequence[DdpModule]
) -> list[tuple[int, KnownBucket]]:
    """Calls of the series whose sizes are those of the bucket map, in its order."""
    modules = [module.buckets for module in ddp if module.buckets]
    expected: list[KnownBucket] = []
    for buckets in modules:
        expected += [
            KnownBucket(index=len(expected) + place, size_bytes=b.size_bytes, parameters=b.parameters, layout=b.layout)
            for place, b in enumerate(sorted(buckets, key=lambda b: b.index))
        ]
    found = []
    for number in np.unique(series).tolist() if expected else []:
        mine = rows[series == number].tolist()
        for factor in _COMPRESSIONS:
            matched = _in_order(scene, mine, modules, expected, factor)
            if len(matched) == len(expected):
                found += matched
                break
    return found


def _in_order(
    scene: Scene, rows: list[int], modules: list[tuple[KnownBucket, ...]], expected: list[KnownBucket], factor: int
) -> list[tuple[int, KnownBucket]]:
    """Match calls with the next bucket of whichever module fits; calls that fit none are left out."""
    first = np.cumsum([0, *(len(buckets) for buckets in modules)]).tolist()
    following = first[:-1]
    matched = []
    for row in rows:
        size = int(scene.calls.size_bytes[row]) * factor
        for module, place in enumerate(following):
            if place < first[module + 1] and expected[place].size_bytes == size:
                matched.append((row, expected[place]))
                following[module] += 1
                break
    return matched


def _first_iteration(scene: Scene, rows: Int64Array, series: Int64Array, ddp: Sequence[DdpModule]) -> set[int]:
    """Calls from before the buckets were rebuilt: alone in their series, and as large as the buckets together that
    come later or that the capture knows."""
    calls = scene.calls
    mapped = [bucket.size_bytes for module in ddp for bucket in module.buckets]
    found: set[int] = set()
    for group in np.unique(calls.group[rows]).tolist():
        mine = np.flatnonzero(calls.group[rows] == group)
        numbers, place, count = np.unique(series[mine], return_inverse=True, return_counts=True)
        size = np.zeros(len(numbers), np.int64)
        np.add.at(size, place, calls.size_bytes[rows[mine]])
        for position in np.flatnonzero(count == 1).tolist():
            later = size[position + 1 :][count[position + 1 :] > 1]
            if size[position] in later or (len(mapped) > 1 and size[position] == sum(mapped)):
                found |= set(rows[mine[place == position]].tolist())
    return found


class _Times:
    """Times of the buckets of a rank, worked out for all of them at once."""

    def __init__(self, scene: Scene, backward: list[BackwardPass], rows: Int64Array) -> None:
        self._scene, self._rows = scene, rows
        calls = scene.calls
        self._ready = _ready(scene, rows)
        before = previous_call(calls.device, calls.stream)[rows]
        self._previous = np.where(before >= 0, calls.end[before], NOT_LAUNCHED)
        self._launched = calls.launched[rows]
        self._backward = {device.work.device: passed for device, passed in zip(scene.devices, backward, strict=True)}
        self._tail = np.zeros(len(calls), np.int64)
        pieces = scene.shares.pieces
        for number, passed in self._backward.items():
            if len(pieces) and len(passed.end):
                late = (pieces.window >= 0) & (calls.device[pieces.call] == number)
                late &= pieces.start >= passed.end[np.maximum(pieces.window, 0)]
                np.add.at(self._tail, pieces.call[late], pieces.ns[late])

    def bucket(self, position: int) -> Bucket:
        """The bucket of one call, with everything but its number and its parameters."""
        scene, row = self._scene, int(self._rows[position])
        calls, step = scene.calls, int(scene.shares.step[row])
        ready, launched = _known(self._ready[position]), _known(self._launched[position])
        previous, start = _known(self._previous[position]), int(calls.start[row])
        passed = self._backward[int(calls.device[row])]
        known = step >= 0 and bool(passed.known[step])
        times = [time for time in (ready, launched) if time is not None]
        base = max(times) if times else None
        reached = None if base is None else base if previous is None else max(base, previous)
        return Bucket(
            call=row,
            step=step,
            series=0,
            index=NOWHERE,
            size=None,
            parameters=None,
            ready=ready,
            launched=launched,
            start=start,
            end=int(calls.end[row]),
            exposed=int(scene.shares.exposed[row]),
            queued=None if base is None else max(0, previous - base) if previous is not None else 0,
            lag=None if ready is None or launched is None else launched - ready,
            start_delay=None if reached is None else start - reached,
            tail=int(self._tail[row]) if known else None,
            layout=UNKNOWN_LAYOUT,
            backward_start=int(passed.start[step]) if known and not passed.assumed else None,
            backward_end=int(passed.end[step]) if known and not passed.assumed else None,
        )


def _known(value: int) -> int | None:
    return None if value == NOT_LAUNCHED else int(value)


def _ready(scene: Scene, rows: Int64Array) -> Int64Array:
    """When the gradients of each bucket were complete."""
    calls = scene.calls
    if scene.on_cpu:
        return _accumulated(scene, rows)
    ready = np.full(len(rows), NOT_LAUNCHED)
    for device in scene.devices:
        mine = np.flatnonzero(calls.device[rows] == device.work.device)
        launched = calls.launched[rows[mine]]
        before = last_launched(calls.thread[rows[mine]], launched, device)
        ready[mine[before >= 0]] = device.work.compute_end[before[before >= 0]]
    return ready


def _accumulated(scene: Scene, rows: Int64Array) -> Int64Array:
    """On a CPU trace: the start of the reducer's last copy or product before the launch, on its thread: the gradient
    that it takes into the bucket has just been accumulated."""
    table, calls = scene.rank.operators, scene.calls
    codes = codes_of(scene.rank, _REDUCER)
    copies = np.flatnonzero(np.isin(table.name, codes))
    thread, start = thread_keys(table.pid[copies], table.tid[copies]), table.start[copies]
    out = np.full(len(rows), NOT_LAUNCHED)
    for key in np.unique(calls.thread[rows]).tolist():
        starts = np.sort(start[thread == key])
        mine = np.flatnonzero(calls.thread[rows] == key)
        before = np.searchsorted(starts, calls.issued[rows[mine]], side="right") - 1
        there = before >= 0
        out[mine[there]] = starts[before[there]]
    return out
