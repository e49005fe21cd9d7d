"""From device work back to the CPU: the runtime call that launched it and the innermost operator around that call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.errors import InputRefused
from commprof.intervals import Int64Array, expand_ranges
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
    """Spans of CPU threads, to be asked for the innermost one around an instant."""

    rows: Int64Array
    thread: Int64Array
    start: Int64Array
    end: Int64Array

    def innermost(self, thread: int, instant: int) -> int:
        """Row of the last-started span of the thread that contains the instant; :data:`NONE` if none does."""
        low = int(np.searchsorted(self.thread, thread, side="left"))
        high = int(np.searchsorted(self.thread, thread, side="right"))
        position = low + int(np.searchsorted(self.start[low:high], instant, side="right")) - 1
        while position >= low:
            if self.end[position] > instant:
                return int(self.rows[position])
            position -= 1
        return NONE


def index_spans(spans: CpuSpans, rows: Int64Array) -> SpanIndex:
    """Index the given rows of a table of spans."""
    thread = thread_keys(spans.pid[rows], spans.tid[rows])
    order = np.lexsort((-spans.end[rows], spans.start[rows], thread))
    return SpanIndex(rows[order], thread[order], spans.start[rows][order], spans.end[rows][order])


def thread_keys(pid: Int64Array, tid: Int64Array) -> Int64Array:
    """One number per thread of a process, equal for equal pairs."""
    return pid * 1_000_003 + tid


def rows_launched_under(
    wanted: Int64Array,
    operators: CpuSpans,
    device: DeviceEvents,
    runtime: RuntimeCalls,
    launches: Int64Array,
) -> dict[int, int]:
    """Device rows whose **innermost** operator is one of the ``wanted`` rows: device row to operator row.

    The operator is found by ``External id`` (of the kernel, else of its launch) where the operator of that id really
    encloses the launch, since older files put the correlation id there; else by time on the launching thread.
    """
    if not len(wanted) or not len(device):
        return {}
    ids = _operator_ids(device, runtime, launches)
    found = _by_time(wanted, operators, np.flatnonzero(launches != NONE), runtime, launches)
    found = _without_other_owner(found, ids, wanted, operators, runtime, launches)
    found.update(_by_external_id(wanted, operators, device, runtime, launches, ids))
    return found


def _operator_ids(device: DeviceEvents, runtime: RuntimeCalls, launches: Int64Array) -> Int64Array:
    """The ``External id`` of each device event, or of its launch unless that only repeats the correlation id."""
    ids = device.external_id.copy()
    linked = launches != NONE
    own = runtime.external_id[launches[linked]]
    borrowed = np.where(own == device.correlation[linked], NO_ID, own)
    ids[linked] = np.where(ids[linked] == NO_ID, borrowed, ids[linked])
    return ids


def _without_other_owner(
    found: dict[int, int],
    ids: Int64Array,
    wanted: Int64Array,
    operators: CpuSpans,
    runtime: RuntimeCalls,
    launches: Int64Array,
) -> dict[int, int]:
    """What was found by time, less the rows whose id names another operator that encloses the launch.

    In traces of whole microseconds a launch falls on the same instant as the start of the next operator.
    """
    rows = list(found)
    owners = np.flatnonzero(np.isin(operators.external_id, ids[rows])) if rows else np.empty(0, np.int64)
    owner_of = {int(operators.external_id[owner]): int(owner) for owner in owners}
    ours = set(wanted.tolist())
    kept = {}
    for row, operator in found.items():
        owner = owner_of.get(int(ids[row]), NONE)
        launch = runtime.start[launches[row]]
        named = owner != NONE and operators.start[owner] <= launch <= operators.end[owner]
        if not named or owner in ours:
            kept[row] = operator
    return kept


def _by_time(
    wanted: Int64Array, operators: CpuSpans, linked: Int64Array, runtime: RuntimeCalls, launches: Int64Array
) -> dict[int, int]:
    calls = launches[linked]
    thread = thread_keys(runtime.pid[calls], runtime.tid[calls])
    order = np.lexsort((runtime.start[calls], thread))
    linked, thread, instant = linked[order], thread[order], runtime.start[calls][order]
    own = thread_keys(operators.pid[wanted], operators.tid[wanted])
    inside: list[tuple[int, int, int]] = []
    for key in np.unique(own):
        mine = wanted[own == key]
        low, high = np.searchsorted(thread, key, side="left"), np.searchsorted(thread, key, side="right")
        times = instant[low:high]
        first = np.searchsorted(times, operators.start[mine], side="left")
        last = np.searchsorted(times, operators.end[mine], side="left")
        owner, position = expand_ranges(first, last)
        inside += [
            (int(linked[low + p]), int(mine[o]), int(key))
            for o, p in zip(owner.tolist(), position.tolist(), strict=True)
        ]
    if not inside:
        return {}
    near = index_spans(operators, _rows_overlapping(operators, wanted))
    accepted = set(wanted.tolist())
    found = {}
    for row, _, key in inside:
        innermost = near.innermost(key, int(runtime.start[launches[row]]))
        if innermost in accepted:
            found[row] = innermost
    return found


def _rows_overlapping(operators: CpuSpans, wanted: Int64Array) -> Int64Array:
    """Operators that start within the wanted ones, on whatever thread: the only ones that can be further inside."""
    order = np.argsort(operators.start, kind="stable")
    starts = operators.start[order]
    first = np.searchsorted(starts, operators.start[wanted], side="left")
    last = np.searchsorted(starts, operators.end[wanted], side="left")
    _, position = expand_ranges(first, last)
    return np.unique(np.concatenate([order[position], wanted]))


def _by_external_id(
    wanted: Int64Array,
    operators: CpuSpans,
    device: DeviceEvents,
    runtime: RuntimeCalls,
    launches: Int64Array,
    ids: Int64Array,
) -> dict[int, int]:
    by_id = {int(operators.external_id[row]): int(row) for row in wanted if operators.external_id[row] != NO_ID}
    found = {}
    for row in np.flatnonzero(np.isin(ids, list(by_id))).tolist():
        operator = by_id[int(ids[row])]
        launch = launches[row]
        if launch == NONE:
            plausible = operators.start[operator] <= device.start[row]
        else:
            plausible = operators.start[operator] <= runtime.start[launch] <= operators.end[operator]
        if plausible:
            found[row] = operator
    return found
