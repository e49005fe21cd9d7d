"""What one rank did on its own until each of its calls and in each step: small tables that outlive its columns.

When a rank comes late to a call, these tell what it did since a call to which it was not late (``spec``: section 10).
Time is divided without rest: compute, then what the host did not have ready (whatever communication did meanwhile: a
rank that waits for its host loses nothing by waiting for others), then communication, then copies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from commprof.analysis.hostbound import unlaunched
from commprof.analysis.ranges import codes_of
from commprof.analysis.scene import DeviceScene, Scene
from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.cpu_compute import cpu_operators
from commprof.trace.model import NOT_LAUNCHED, Calls

ACTIVITIES = ("compute", "comm", "copy", "input", "host", "other")
"""What time consists of; ``comm`` is exposed communication that is not host-bound, ``other`` is left unexplained."""

COMPUTE, COMM, COPY, INPUT, HOST, OTHER = range(len(ACTIVITIES))

BLOCKING = re.compile(r"Synchronize|Memcpy")
LAUNCH = re.compile(r"Launch")
INPUT_RANGE = re.compile(r"^enumerate\(DataLoader\)|train_dataloader_next|^DataLoader\b")
_LONGEST_LATENCY_NS = 20_000
"""Between the launch of a kernel and its start on an idle device lie 3 to 10 us; more is queueing."""
_FULL_QUEUE_NS, _FULL_QUEUE_TIMES = 50_000, 10
_KINDS_KEPT = 400


@dataclass(slots=True, eq=False)
class KernelTotals:
    """Compute by step and kind of kernel (name and grid), one row each: how often and how long in all, nanoseconds.

    ``step`` is an index into the names of the steps of the rank (-1: outside of every step), ``kind`` into ``kinds``.
    """

    step: Int64Array
    kind: Int64Array
    count: Int64Array
    ns: Int64Array
    kinds: list[str]


@dataclass(slots=True, eq=False)
class Behaviour:
    """``done[:, j]`` are the nanoseconds of each of :data:`ACTIVITIES` from the first event of the capture to the start
    of call ``j``; ``chain[j]`` is a number that all calls with the same ranks have (messages: with the same peer).

    ``blocking`` are the nanoseconds of each piece of exposed time while the host had work ready, shape ``(pieces,)``.
    ``host_busy[:, j]`` is what the host did from the start of the capture until it issued the call, but for waiting for
    the device: input, and the rest (-1 where that is not known).
    """

    chain: Int64Array
    done: Int64Array
    blocking: Int64Array
    host_busy: Int64Array
    kernels: KernelTotals


def find_behaviour(scene: Scene) -> Behaviour:
    """The tables of one rank."""
    calls = scene.calls
    done = np.zeros((len(ACTIVITIES), len(calls)), np.int64)
    loading, pieces = _loading(scene), scene.shares.pieces
    blocking = pieces.ns.copy()
    for device in scene.devices:
        ready = _not_ready(scene, device)
        of_device = np.flatnonzero(calls.device[pieces.call] == device.work.device)
        length = pieces.end[of_device] - pieces.start[of_device]
        idle = ready.within(pieces.start[of_device], pieces.end[of_device])
        # A stretch is shared among its calls, and so is the part of it that the host caused.
        blocking[of_device] -= np.minimum(blocking[of_device] * idle // np.maximum(length, 1), blocking[of_device])
        mine = np.flatnonzero(calls.device == device.work.device)
        end = calls.start[mine]
        start = np.full(len(mine), int(device.work.all_start.min()), np.int64)
        done[:, mine] = _divide(scene, device, ready, loading, np.minimum(start, end), end)
    return Behaviour(_chains(calls), done, blocking, _host_busy(scene, loading), _kernel_totals(scene))


def _host_busy(scene: Scene, loading: IntervalSet) -> Int64Array:
    """Nanoseconds of input and of other work of the host until each call was issued, shape ``(2, calls)``.

    Waiting for the device is left out: in calls that synchronise, and in launches that stand in a full queue.
    """
    calls, runtime = scene.calls, scene.rank.runtime
    out = np.full((2, len(calls)), -1, np.int64)
    known = calls.issued != NOT_LAUNCHED
    if scene.on_cpu or not known.any():
        return out
    names = runtime.name
    waits = np.isin(names, codes_of(scene.rank, BLOCKING))
    launches = np.isin(names, codes_of(scene.rank, LAUNCH))
    if launches.any():
        length = runtime.end - runtime.start
        waits |= launches & (length > max(_FULL_QUEUE_NS, _FULL_QUEUE_TIMES * float(np.median(length[launches]))))
    waiting = union(runtime.start[waits], runtime.end[waits])
    marks = scene.marks.start
    earliest = int(runtime.start.min()) if len(runtime) else int(calls.issued[known].min())
    begin = min([earliest, *marks[:1].tolist()])
    end = calls.issued[known]
    start = np.minimum(np.full(len(end), begin), end)
    out[0, known] = (loading - waiting).within(start, end)
    out[1, known] = end - start - waiting.within(start, end) - out[0, known]
    # Replays of graphs say nothing of their launch: they take over from the call before.
    return np.asarray(np.maximum.accumulate(out, axis=1))


def _chains(calls: Calls) -> Int64Array:
    pairs = np.stack([calls.group.astype(np.int64), calls.peer])
    return np.asarray(np.unique(pairs, axis=1, return_inverse=True)[1].reshape(-1))


def _loading(scene: Scene) -> IntervalSet:
    """Instants in which a thread of the rank waits for or makes its next batch."""
    spans = empty()
    codes = codes_of(scene.rank, INPUT_RANGE)
    for table in (scene.rank.operators, scene.rank.annotations):
        rows = np.flatnonzero(np.isin(table.name, codes))
        spans = spans | union(table.start[rows], table.end[rows])
    return spans


def _divide(
    scene: Scene, device: DeviceScene, not_ready: IntervalSet, loading: IntervalSet, start: Int64Array, end: Int64Array
) -> Int64Array:
    """Nanoseconds of each activity in ``[start, end)``, shape ``(activities, stretches)``."""
    work = device.work
    compute, comm, copy = work.compute, work.comm, work.copy
    out = np.zeros((len(ACTIVITIES), len(start)), np.int64)
    if scene.on_cpu:
        # There operators compute inside the loader too, and nothing else stands between launch and work.
        compute = compute - loading
        late, host = loading - comm, empty()
    else:
        host = not_ready - compute
        late = loading & host
    comm = comm - compute - host
    copy = copy - compute - comm - host
    for activity, instants in ((COMPUTE, compute), (COMM, comm), (COPY, copy), (INPUT, late), (HOST, host - late)):
        out[activity] = instants.within(start, end)
    out[HOST if scene.on_cpu else OTHER] += end - start - out.sum(axis=0)
    return out


def _not_ready(scene: Scene, device: DeviceScene) -> IntervalSet:
    """Instants at which the host had nothing ready to compute, with the time that a launch takes to reach the device.

    Where kernels are shorter than their launches, that time is all the gap there is between them.
    """
    work = device.work
    linked = work.compute_launch != NOT_LAUNCHED
    if device.host is None or not linked.any():
        return empty()
    took = work.compute_start[linked] - work.compute_launch[linked]
    latency = int(np.clip(np.percentile(took, 10), 0, _LONGEST_LATENCY_NS))
    runtime = scene.rank.runtime
    blocking = np.flatnonzero(np.isin(runtime.name, codes_of(scene.rank, BLOCKING)))
    return unlaunched(work, runtime, blocking, latency)[0]


def _kernel_totals(scene: Scene) -> KernelTotals:
    """Sums per step over kernels of one name and grid; on a CPU trace over outermost operators of one name."""
    steps, names, blocks, length = [], [], [], []
    for device in scene.devices:
        work = device.work
        if scene.on_cpu:
            rows = cpu_operators(scene.rank)
            start, end = scene.rank.operators.start[rows], scene.rank.operators.end[rows]
            name, grid = scene.rank.operators.name[rows].astype(np.int64), np.full(len(rows), -1, np.int64)
        else:
            start, end, name, grid = work.compute_start, work.compute_end, work.compute_name, work.compute_blocks
        steps.append(_step_of(device, start))
        names.append(name)
        blocks.append(grid)
        length.append(end - start)
    step, name, grid, ns = (np.concatenate(parts) for parts in (steps, names, blocks, length))
    width = int(grid.max(initial=0)) + 2
    both, kind = np.unique(name * width + grid + 1, return_inverse=True)
    kinds = np.stack([both // width, both % width - 1])
    weight = np.zeros(kinds.shape[1], np.int64)
    np.add.at(weight, kind, ns)
    kept = np.argsort(-weight, kind="stable")[:_KINDS_KEPT]
    number = np.full(kinds.shape[1], -1, np.int64)
    number[kept] = np.arange(len(kept))
    mine = number[kind] >= 0
    width = len(kept) + 1
    keys, inverse = np.unique((step[mine] + 1) * width + number[kind[mine]], return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, inverse, ns[mine])
    listed = [
        f"{scene.rank.names[code] if code >= 0 else '?'}|{size}" for code, size in kinds[:, kept].T.tolist()
    ]  # fmt: skip
    return KernelTotals(keys // width - 1, keys % width, np.bincount(inverse, minlength=len(keys)), total, listed)


def _step_of(device: DeviceScene, instant: Int64Array) -> Int64Array:
    """Index of the step whose window holds each instant, -1 for none."""
    if not len(device.start):
        return np.full(len(instant), -1, np.int64)
    window = np.searchsorted(device.start, instant, side="right") - 1
    inside = (window >= 0) & (instant < device.end[np.maximum(window, 0)])
    return np.where(inside, device.steps[np.maximum(window, 0)], -1)
