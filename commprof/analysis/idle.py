"""What idle time waited for (``spec``: section 3 divides the window; this divides idle): parts that add up exactly.

An idle instant is, by the first of these that holds:

* before the launch of the next compute, its thread not waiting (host-bound): ``input`` while a thread fetches the next
  batch, ``allocator`` inside an allocation or a release of device memory, else ``launch``;
* before that launch, its thread waiting for the device: ``rate-limiter`` inside FSDP's, ``bubble`` where it waits for
  a message of a pipeline, else ``synchronisation``;
* after that launch: ``launch`` within :data:`LATENCY_NS` of it, ``bubble`` in a rank of a pipeline, else ``unknown``.

On a CPU the training thread is the device and runs no operator: ``input``; ``dispatch`` inside a call that starts or
awaits a collective while none runs here; else ``between-operators`` (Python, the autograd engine, the profiler, a
process without a core: the trace has no event for any of them). In a window without a launch link all is ``unknown``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from commprof.analysis.behaviour import INPUT_RANGE
from commprof.analysis.places import CallPlaces
from commprof.analysis.purposes import POINT_TO_POINT
from commprof.analysis.ranges import codes_of, find_ranges
from commprof.analysis.scene import DeviceScene, Scene
from commprof.analysis.syncs import BLOCKING_WAIT, RATE_LIMITER, Syncs
from commprof.analysis.where_model import IdleTime
from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.cpu_compute import cpu_dispatch
from commprof.trace.model import NOT_LAUNCHED

LATENCY_NS = 15_000
"""Launch to start of a kernel on a free device: 2 to 10 us on A100 and H100, a little more on MI300X."""

_ALLOCATES = re.compile(r"(?:Malloc|Free|MemAlloc|MemFree|MemCreate|MemRelease)(?:Async|Host|Managed|_v\d)*$")


def find_idle(scene: Scene, places: CallPlaces, syncs: Syncs) -> list[IdleTime]:
    """Idle time of every window by cause, in order of device, window and cause."""
    loading = find_ranges(scene.rank, INPUT_RANGE)
    inputs = union(loading.start, loading.end)
    allocator = _allocator(scene)
    piped = bool((places.purpose == POINT_TO_POINT).any())
    out: list[IdleTime] = []
    for device in scene.devices:
        out += _of_device(scene, device, inputs, allocator, syncs, piped)
    return out


def idle_of(device: DeviceScene) -> IntervalSet:
    """Instants without any work on a device."""
    work = device.work
    return (work.compute | work.comm | work.copy).complement()


def _of_device(
    scene: Scene, device: DeviceScene, inputs: IntervalSet, allocator: _Calls, syncs: Syncs, piped: bool
) -> Iterator[IdleTime]:
    idle = idle_of(device)
    parts: dict[str, IntervalSet] = {}
    if scene.on_cpu:
        parts["input"] = idle & inputs
        parts["dispatch"] = (idle - inputs) & cpu_dispatch(scene.rank)
        parts["between-operators"] = idle - inputs - parts["dispatch"]
    elif device.host is None:
        parts["unknown"] = idle
    else:
        host, blocked = idle & device.host, idle & device.blocked
        rest = idle - host - blocked
        parts["input"] = host & inputs
        parts["allocator"] = (host - inputs) & allocator.spans
        parts["rate-limiter"] = blocked & _spans(syncs, RATE_LIMITER)
        piping = _spans(syncs, BLOCKING_WAIT) if piped else empty()
        waiting = (blocked - parts["rate-limiter"]) & piping
        parts["synchronisation"] = blocked - parts["rate-limiter"] - waiting
        starting = rest & _after_launch(device)
        parts["launch"] = (host - inputs - allocator.spans) | starting
        parts["bubble"] = waiting | (rest - starting if piped else empty())
        parts["unknown"] = empty() if piped else rest - starting
    unlinked = np.zeros(len(device.start), np.bool_) if scene.on_cpu else ~device.linked
    for cause, part in parts.items():
        ns = np.where(unlinked, 0, part.within(device.start, device.end))
        if cause == "unknown":
            ns = np.where(unlinked, idle.within(device.start, device.end), ns)
        yield from _rows(device, cause, part, ns, allocator, syncs)


def _rows(
    device: DeviceScene, cause: str, part: IntervalSet, ns: Int64Array, allocator: _Calls, syncs: Syncs
) -> Iterator[IdleTime]:
    first = np.searchsorted(part.ends, device.start, side="right")
    count = np.searchsorted(part.starts, device.end, side="left") - first
    for index in np.flatnonzero(ns).tolist():
        span = (int(device.start[index]), int(device.end[index]))
        stretches, operator = max(1, int(count[index])), None
        if cause == "allocator":
            stretches, operator = allocator.within(span, part)
        elif cause in ("synchronisation", "rate-limiter", "bubble"):
            operator = _operator(syncs, part.clip(*span))
        yield IdleTime(device.work.device, int(device.steps[index]), cause, int(ns[index]), stretches, operator)


def _operator(syncs: Syncs, part: IntervalSet) -> str | None:
    """The operator whose waits hold the most of the part."""
    if not len(syncs) or not len(part):
        return None
    low, high = np.searchsorted(syncs.start, [part.starts[0], part.ends[-1]])
    rows = slice(max(int(low) - 1, 0), int(high))
    if rows.start >= rows.stop:
        return None
    held = np.zeros(len(syncs.names), np.int64)
    np.add.at(held, syncs.operator[rows], part.within(syncs.start[rows], syncs.end[rows]))
    return syncs.names[int(held.argmax())] if held.any() else None


def _spans(syncs: Syncs, cause: int) -> IntervalSet:
    mine = syncs.cause == cause
    return union(syncs.start[mine], syncs.end[mine])


def _after_launch(device: DeviceScene) -> IntervalSet:
    """Instants right after a launch of compute, in which it may not have reached the device."""
    launch = device.work.compute_launch[device.work.compute_launch != NOT_LAUNCHED]
    return union(launch, launch + LATENCY_NS)


class _Calls:
    """Calls of the allocator: a retry releases memory and asks for it again, which is one episode."""

    def __init__(self, start: Int64Array, end: Int64Array, name: Int64Array, names: list[str]) -> None:
        self._start, self._end, self._name, self._names = start, end, name, names
        self.spans = union(start, end)

    def within(self, span: tuple[int, int], part: IntervalSet) -> tuple[int, str | None]:
        """How often the allocator was called in the span while the device was idle, and by which call most."""
        mine = np.flatnonzero((self._start < span[1]) & (self._end > span[0]))
        held = part.within(self._start[mine], self._end[mine])
        mine, held = mine[held > 0], held[held > 0]
        codes, place, count = np.unique(self._name[mine], return_inverse=True, return_counts=True)
        sums = np.zeros(len(codes), np.int64)
        np.add.at(sums, place, held)
        # A release and the allocation after it are one retry, so the more frequent of the two counts.
        return int(count.max(initial=0)), self._names[int(codes[sums.argmax()])] if len(codes) else None


def _allocator(scene: Scene) -> _Calls:
    runtime = scene.rank.runtime
    rows = np.flatnonzero(np.isin(runtime.name, codes_of(scene.rank, _ALLOCATES)))
    return _Calls(runtime.start[rows], runtime.end[rows], runtime.name[rows].astype(np.int64), scene.rank.names)
