"""From device work back to the CPU: the runtime call that launched it and the innermost operator around that call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.errors import InputRefused
from commprof.intervals import Int64Array, expand_ranges, union
from commprof.trace.model import NO_ID, CpuSpans, DeviceEvents, RuntimeCalls

NONE = -1


def launch_rows(device: DeviceEvents, runtime: RuntimeCalls, path: str) -> Int64Array:
    """For each device event the row of the runtime call with its correlation id, :data:`NONE` without one.

    Raises :class:`InputRefused` where two processes' launches and two devices' kernels share ids: a merged file, in
    which a kernel would be joined to the launch of another rank.
    """
    order = np.lexsort((runtime.start, runtime.correlation))
    ids = runtime.correlation[order]
    usable = ids != NO_ID
    order, ids = order[usable], ids[usable]
    first = np.searchsorted(ids, device.correlation, side="left")
    found = (first < len(ids)) & (device.correlation != NO_ID)
    found[found] = ids[first[found]] == device.correlation[found]
    rows = np.full(len(device), NONE, np.int64)
    rows[found] = order[first[found]]
    if len(ids) > 1:
        _refuse_merged(device, runtime, order, ids, path)
    return rows


def _refuse_merged(
    device: DeviceEvents, runtime: RuntimeCalls, order: NDArray[np.intp], ids: Int64Array, path: str
) -> None:
    pids = runtime.pid[order]
    shared = np.unique(ids[1:][(ids[1:] == ids[:-1]) & (pids[1:] != pids[:-1])])
    if not len(shared):
        return
    rows = np.isin(device.correlation, shared)
    pairs = np.unique(np.stack([device.correlation[rows], device.device[rows]]), axis=1)
    if pairs.shape[1] > len(np.unique(pairs[0])):
        raise InputRefused(f"{path}: merged trace: correlation ids collide", hint="give each rank a file of its own")


@dataclass(frozen=True, slots=True)
class SpanIndex:
    """Spans of CPU threads in order of thread and start, the longer first, to be asked for the innermost one.

    ``parent`` is for each the place of the last one before it, on its thread, that reaches beyond its start.
    """

    rows: Int64Array
    thread: Int64Array
    start: Int64Array
    end: Int64Array
    parent: Int64Array

    def innermost(self, thread: Int64Array, instant: Int64Array) -> Int64Array:
        """Row of the last-started span around each instant of a thread, :data:`NONE` where none is."""
        return self._row(self._place(thread, instant))

    def outermost(self, thread: Int64Array, instant: Int64Array) -> Int64Array:
        """Row of the first-started span around each instant of a thread, :data:`NONE` where none is."""
        place = self._place(thread, instant)
        inner = np.flatnonzero(place != NONE)
        while len(inner):
            inner = inner[self.parent[place[inner]] != NONE]
            place[inner] = self.parent[place[inner]]
        return self._row(place)

    def _row(self, place: Int64Array) -> Int64Array:
        return np.where(place == NONE, NONE, self.rows[place]) if len(self.rows) else place

    def _place(self, thread: Int64Array, instant: Int64Array) -> Int64Array:
        place = np.full(len(instant), NONE, np.int64)
        for key in np.unique(thread).tolist():
            low, high = np.searchsorted(self.thread, [key, key + 1])
            mine = np.flatnonzero(thread == key)
            last = low - 1 + np.searchsorted(self.start[low:high], instant[mine], side="right")
            place[mine] = np.where(last < low, NONE, last)
        over = np.flatnonzero(place != NONE)
        while len(over):
            over = over[self.end[place[over]] <= instant[over]]
            place[over] = self.parent[place[over]]
            over = over[place[over] != NONE]
        return place


def index_spans(spans: CpuSpans, rows: Int64Array) -> SpanIndex:
    """Index the given rows of a table of spans."""
    thread = thread_keys(spans.pid[rows], spans.tid[rows])
    start, end = spans.start[rows], spans.end[rows]
    order = np.lexsort((-end, start, thread))
    thread, start, end = thread[order], start[order], end[order]
    return SpanIndex(rows[order], thread, start, end, parents(thread, start, end))


def parents(thread: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    """For each span the place of the last one before it, on its thread, that reaches beyond its start.

    The spans come in order of thread and start.
    """
    place = np.arange(-1, len(start) - 1)
    place[1:][thread[1:] != thread[:-1]] = NONE
    over = np.flatnonzero(place != NONE)
    # What one span has found to be over before it starts, is over for those after it as well: so all jump at once,
    # each as far as the one it stands at has come.
    while len(over):
        over = over[end[place[over]] <= start[over]]
        place[over] = place[place[over]]
        over = over[place[over] != NONE]
    return place


def thread_keys(pid: Int64Array, tid: Int64Array) -> Int64Array:
    """One number per thread of a process, equal for equal pairs."""
    return pid * 1_000_003 + tid


def launching_operators(
    wanted: Int64Array,
    operators: CpuSpans,
    device: DeviceEvents,
    runtime: RuntimeCalls,
    launches: Int64Array,
) -> Int64Array:
    """For each device event the one of the ``wanted`` rows that is its **innermost** operator, else :data:`NONE`.

    The operator is found by ``External id`` (of the kernel, else of its launch) where the operator of that id really
    encloses the launch, since older files put the correlation id there; else by time on the launching thread.
    """
    found = np.full(len(device), NONE, np.int64)
    if not len(wanted) or not len(device):
        return found
    ids = _operator_ids(device, runtime, launches)
    _by_time(found, wanted, operators, runtime, launches)
    _without_other_owner(found, ids, wanted, operators, runtime, launches)
    _by_external_id(found, wanted, operators, device, runtime, launches, ids)
    return found


def _operator_ids(device: DeviceEvents, runtime: RuntimeCalls, launches: Int64Array) -> Int64Array:
    """The ``External id`` of each device event, or of its launch unless that only repeats the correlation id."""
    ids = device.external_id.copy()
    linked = launches != NONE
    own = runtime.external_id[launches[linked]]
    borrowed = np.where(own == device.correlation[linked], NO_ID, own)
    ids[linked] = np.where(ids[linked] == NO_ID, borrowed, ids[linked])
    return ids


def _by_time(
    found: Int64Array, wanted: Int64Array, operators: CpuSpans, runtime: RuntimeCalls, launches: Int64Array
) -> None:
    """Set the rows whose launch has a wanted operator as its innermost one."""
    linked = np.flatnonzero(launches != NONE)
    calls = launches[linked]
    thread, instant = thread_keys(runtime.pid[calls], runtime.tid[calls]), runtime.start[calls]
    own = thread_keys(operators.pid[wanted], operators.tid[wanted])
    inside = np.zeros(len(linked), np.bool_)
    for key in np.unique(own).tolist():
        mine = wanted[own == key]
        there = np.flatnonzero(thread == key)
        inside[there] = union(operators.start[mine], operators.end[mine]).contains(instant[there])
    if not inside.any():
        return
    near = index_spans(operators, _rows_overlapping(operators, wanted))
    innermost = near.innermost(thread[inside], instant[inside])
    found[linked[inside]] = np.where(np.isin(innermost, wanted), innermost, NONE)


def _rows_overlapping(operators: CpuSpans, wanted: Int64Array) -> Int64Array:
    """Operators that start within the wanted ones, on whatever thread: the only ones that can be further inside."""
    order = np.argsort(operators.start, kind="stable")
    starts = operators.start[order]
    first = np.searchsorted(starts, operators.start[wanted], side="left")
    last = np.searchsorted(starts, operators.end[wanted], side="left")
    _, position = expand_ranges(first, last)
    return np.unique(np.concatenate([order[position], wanted]))


def _without_other_owner(
    found: Int64Array,
    ids: Int64Array,
    wanted: Int64Array,
    operators: CpuSpans,
    runtime: RuntimeCalls,
    launches: Int64Array,
) -> None:
    """Forget what was found by time where the id names another operator that encloses the launch.

    In traces of whole microseconds a launch falls on the same instant as the start of the next operator.
    """
    rows = np.flatnonzero(found != NONE)
    owner = rows_with_id(operators, np.arange(len(operators)), ids[rows])
    rows, owner = rows[owner != NONE], owner[owner != NONE]
    launch = runtime.start[launches[rows]]
    other = (operators.start[owner] <= launch) & (launch <= operators.end[owner]) & ~np.isin(owner, wanted)
    found[rows[other]] = NONE


def _by_external_id(
    found: Int64Array,
    wanted: Int64Array,
    operators: CpuSpans,
    device: DeviceEvents,
    runtime: RuntimeCalls,
    launches: Int64Array,
    ids: Int64Array,
) -> None:
    operator = rows_with_id(operators, wanted, ids)
    rows = np.flatnonzero(operator != NONE)
    operator = operator[rows]
    launch = launches[rows]
    linked = launch != NONE
    plausible = operators.start[operator] <= device.start[rows]
    begin = runtime.start[launch[linked]]
    plausible[linked] = (operators.start[operator[linked]] <= begin) & (begin <= operators.end[operator[linked]])
    found[rows[plausible]] = operator[plausible]


def rows_with_id(operators: CpuSpans, rows: Int64Array, ids: Int64Array) -> Int64Array:
    """For each id the last of the rows that has it as its ``External id``, else :data:`NONE`."""
    own = operators.external_id[rows]
    order = np.argsort(own, kind="stable")
    own, rows = own[order], rows[order]
    place = np.searchsorted(own, ids, side="right") - 1
    known = (place >= 0) & (ids != NO_ID)
    known[known] = own[place[known]] == ids[known]
    return np.where(known, rows[np.maximum(place, 0)] if len(rows) else NONE, NONE)
