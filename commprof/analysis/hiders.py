"""What hid a call: the kernel that ran beside the most of it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.places import NOWHERE
from commprof.analysis.scene import Scene
from commprof.intervals import expand_ranges


def find_hiders(scene: Scene) -> tuple[NDArray[np.int32], list[str]]:
    """For each call an index into the returned names (-1: nothing hid it); all calls of one name count together.

    On a CPU trace compute has no names, and nothing is named.
    """
    calls = scene.calls
    out = np.full(len(calls), NOWHERE, np.int32)
    names: dict[str, int] = {}
    if scene.on_cpu or not len(calls):
        return out, []
    owner = np.repeat(np.arange(len(calls)), calls.last - calls.first)
    for device in scene.devices:
        work = device.work
        kernels = np.flatnonzero((calls.device[owner] == device.work.device) & ~calls.fused[owner])
        order = np.argsort(work.compute_start, kind="stable")
        start, end, name = work.compute_start[order], work.compute_end[order], work.compute_name[order]
        # Kernels of several streams may end in another order than they start: a running maximum finds the first.
        low = np.searchsorted(np.maximum.accumulate(end), calls.kernel_start[kernels], side="right")
        high = np.searchsorted(start, calls.kernel_end[kernels], side="left")
        kernel, event = expand_ranges(low, high)
        begin = np.maximum(calls.kernel_start[kernels[kernel]], start[event])
        ns = np.minimum(calls.kernel_end[kernels[kernel]], end[event]) - begin
        real = ns > 0
        if not real.any():
            continue
        width = int(name.max()) + 1
        keys, place = np.unique(owner[kernels[kernel[real]]] * width + name[event[real]], return_inverse=True)
        sums = np.zeros(len(keys), np.int64)
        np.add.at(sums, place, ns[real])
        best = np.lexsort((keys, sums))  # the last one of a call is the largest
        for key in keys[best].tolist():
            out[key // width] = names.setdefault(scene.rank.names[key % width], len(names))
    return out, list(names)
