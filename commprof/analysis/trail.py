"""What the CPU of a rank did, kept small: all that the critical path of the run needs after the columns are gone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.behaviour import INPUT_RANGE
from commprof.analysis.host_delays import Stalls, launches_of, launching_of
from commprof.analysis.ranges import find_ranges
from commprof.analysis.scene import Scene
from commprof.analysis.syncs import Syncs
from commprof.intervals import Int64Array, IntervalSet, union

SHORTEST_WAIT_NS = 5_000
"""A wait that returns sooner found the device done: the CPU went on as if it had not asked."""


@dataclass(slots=True, eq=False)
class Trail:
    """Instants on the clock of the rank, nanoseconds.

    ``host`` are the host-bound ones, ``waits`` those at which a thread waits for the device, ``inputs`` those at which
    the loop fetches its next batch, ``pauses`` other stretches without a launch, ``launching`` those inside the launch
    of communication. ``done[i]`` is the end of the last compute before the end of wait ``i``. ``gap`` is the mean time
    between two launches where neither a wait, an input nor a pause lies between them, 0 without any.
    """

    host: IntervalSet
    waits: IntervalSet
    done: Int64Array
    inputs: IntervalSet
    pauses: IntervalSet
    launching: IntervalSet
    gap: float


def find_trail(scene: Scene, syncs: Syncs) -> Trail | None:
    """The trail of one rank; ``None`` where it has several devices, or nothing is linked to its launch."""
    device = scene.devices[0]
    if len(scene.devices) != 1 or scene.on_cpu or device.host is None:
        return None
    launches = launches_of(scene)
    long = syncs.end - syncs.start >= SHORTEST_WAIT_NS
    waits = union(syncs.start[long], syncs.end[long])
    loading = find_ranges(scene.rank, INPUT_RANGE)
    stalls = Stalls(union(loading.start, loading.end), launches, union(syncs.start, syncs.end))
    ends = device.work.compute.ends
    place = np.searchsorted(ends, waits.ends, side="right") - 1
    done = np.where(place >= 0, ends[np.maximum(place, 0)], waits.ends) if len(ends) else waits.ends
    usual = _gap(launches, waits | stalls.inputs | stalls.pauses)
    return Trail(device.host, waits, done, stalls.inputs, stalls.pauses, launching_of(scene), usual)


def _gap(launches: Int64Array, left_out: IntervalSet) -> float:
    gap = np.diff(launches)
    plain = gap[left_out.within(launches[:-1], launches[1:]) == 0] if len(gap) else gap
    return float(plain.mean()) if len(plain) else 0.0
