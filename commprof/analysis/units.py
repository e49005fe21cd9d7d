"""Units of FSDP and ZeRO-3: when each gather of parameters was issued, ran and was needed, and each reduction."""

from __future__ import annotations

import re

import numpy as np

from commprof.analysis.modules import module_of
from commprof.analysis.passes import NEVER, BackwardPass
from commprof.analysis.phases import BACKWARD, FORWARD
from commprof.analysis.places import NOWHERE, CallPlaces
from commprof.analysis.purposes import GRADIENTS, PARAMETERS
from commprof.analysis.ranges import find_ranges
from commprof.analysis.scene import DeviceScene, Scene
from commprof.analysis.where_model import Unit
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED
from commprof.trace.operations import OPERATIONS

_COPY_OUT = re.compile(r"^FSDP::all_gather_copy_out")


def find_units(scene: Scene, places: CallPlaces, backward: list[BackwardPass]) -> list[Unit]:
    """The units of one rank, in order of start."""
    calls = scene.calls
    rows = _rows(scene, places)
    if not len(rows):
        return []
    needed = np.full(len(calls), NOT_LAUNCHED)
    for device, passed in zip(scene.devices, backward, strict=True):
        mine = rows[calls.device[rows] == device.work.device]
        gathers = mine[places.purpose[mine] == PARAMETERS]
        if not scene.on_cpu:
            needed[gathers] = _gather_needed(scene, device, places, gathers)
        step = scene.shares.step[mine]
        reduced = mine[(places.purpose[mine] == GRADIENTS) & (step >= 0)]
        end = passed.end[scene.shares.step[reduced]]
        # Gradients are needed when the backward pass has ended: then only the optimizer is left.
        needed[reduced] = np.where((end != NEVER) & ~passed.assumed, end, NOT_LAUNCHED)
    return [_unit(scene, places, row, int(needed[row])) for row in rows.tolist()]


def _rows(scene: Scene, places: CallPlaces) -> Int64Array:
    """Calls that FSDP launched, and those of groups that gather parameters for the passes."""
    calls = scene.calls
    in_pass = (places.phase == FORWARD) | (places.phase == BACKWARD)
    gathers = (places.purpose == PARAMETERS) & in_pass
    sharded = np.isin(calls.group, np.unique(calls.group[gathers])) | (places.module != NOWHERE)
    reductions = (places.purpose == GRADIENTS) & sharded
    return np.flatnonzero((gathers | reductions) & ~calls.fused)


def _unit(scene: Scene, places: CallPlaces, row: int, needed: int) -> Unit:
    calls = scene.calls
    end, issued = int(calls.end[row]), int(calls.issued[row])
    known = needed != NOT_LAUNCHED
    module = int(places.module[row])
    return Unit(
        call=row,
        step=int(scene.shares.step[row]),
        module=places.modules[module] if module >= 0 else None,
        op=OPERATIONS[int(calls.operation[row])],
        direction="forward" if places.phase[row] == FORWARD else "backward",
        issued=None if issued == NOT_LAUNCHED else issued,
        start=int(calls.start[row]),
        end=end,
        needed=needed if known else None,
        slack=needed - end if known else None,
        exposed=int(scene.shares.exposed[row]),
    )


def _gather_needed(scene: Scene, device: DeviceScene, places: CallPlaces, rows: Int64Array) -> Int64Array:
    """When the compute that uses each gather could have started, had its parameters been there.

    The user is the copy out of the gathered buffer where FSDP2 names it, else the compute that started first after
    the gather, if the gather was exposed: then it is the one that waited. It could have started when the compute
    before it on its stream had ended and it was launched.
    """
    work, calls = device.work, scene.calls
    out = np.full(len(rows), NOT_LAUNCHED)
    main = np.flatnonzero(device.on_main & (work.compute_launch != NOT_LAUNCHED))
    main = main[np.argsort(work.compute_start[main], kind="stable")]
    if not len(main):
        return out
    starts, ends = work.compute_start[main], np.maximum.accumulate(work.compute_end[main])
    user = _copies_out(scene, device, places, rows, main)
    follows = np.searchsorted(starts, calls.end[rows], side="left")
    waited = (scene.shares.exposed[rows] > 0) & (follows < len(main))
    user = np.where(user >= 0, user, np.where(waited, follows, NOWHERE))
    there = user >= 0
    before = np.where(user[there] > 0, ends[np.maximum(user[there] - 1, 0)], NOT_LAUNCHED)
    out[there] = np.maximum(before, work.compute_launch[main[user[there]]])
    return out


def _copies_out(
    scene: Scene, device: DeviceScene, places: CallPlaces, rows: Int64Array, main: Int64Array
) -> Int64Array:
    """For each gather the place in ``main`` of the first kernel launched by its module's next copy out, -1 for none."""
    out = np.full(len(rows), NOWHERE, np.int64)
    ranges = find_ranges(scene.rank, _COPY_OUT)
    if not len(ranges):
        return out
    work, calls = device.work, scene.calls
    index = {name: place for place, name in enumerate(places.modules)}
    of_range = np.array([index.get(module_of(scene.rank.names[code]) or "", NOWHERE) for code in ranges.name.tolist()])
    launch, thread = work.compute_launch[main], work.compute_thread[main]
    order = np.lexsort((launch, thread))
    for module in np.unique(places.module[rows]).tolist():
        mine = np.flatnonzero(places.module[rows] == module)
        copies = np.flatnonzero(of_range == module)
        if module < 0 or not len(copies):
            continue
        copies = copies[np.argsort(ranges.start[copies], kind="stable")]
        following = np.searchsorted(ranges.start[copies], calls.issued[rows[mine]], side="left")
        found = following < len(copies)
        for gather, chosen in zip(mine[found].tolist(), copies[following[found]].tolist(), strict=True):
            key = int(ranges.thread[chosen])
            low, high = np.searchsorted(thread[order], [key, key + 1])
            first = low + int(np.searchsorted(launch[order[low:high]], ranges.start[chosen], side="left"))
            if first < high and launch[order[first]] < ranges.end[chosen]:
                out[gather] = order[first]
    return out
