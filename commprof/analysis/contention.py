"""What overlap costs (``spec``: section 9): kernels of one name and grid beside communication, against alone."""

from __future__ import annotations

import numpy as np

from commprof.analysis.scene import Scene
from commprof.analysis.where_model import Contention

FEWEST = 3
"""Calls beside and calls alone that a mean needs."""


def find_contention(scene: Scene) -> list[Contention]:
    """Kernels with enough calls beside communication and alone, on the devices of one rank; largest cost first.

    A call is beside communication if any of it is. The cost is the sum over the windows of the steps and may be
    negative. Empty on a CPU trace, where compute is no sequence of kernels.
    """
    if scene.on_cpu:
        return []
    out: list[Contention] = []
    for device in scene.devices:
        work, comm = device.work, device.work.comm
        start, end = work.compute_start, work.compute_end
        if not len(comm) or not len(device.start):
            continue
        place = np.searchsorted(device.start, start, side="right") - 1
        inside = (place >= 0) & (start < device.end[np.maximum(place, 0)])
        grids, grid = np.unique(work.compute_blocks, return_inverse=True)
        kinds, kind = np.unique(work.compute_name * len(grids) + grid, return_inverse=True)
        beside = comm.within(start, end) > 0
        sums, counts = np.zeros((2, len(kinds)), np.int64), np.zeros((2, len(kinds)), np.int64)
        for row, chosen in enumerate((~beside & inside, beside & inside)):
            np.add.at(sums[row], kind[chosen], (end - start)[chosen])
            np.add.at(counts[row], kind[chosen], 1)
        for index in np.flatnonzero((counts >= FEWEST).all(axis=0)).tolist():
            (alone, by), (few, many) = sums[:, index].tolist(), counts[:, index].tolist()
            name, blocks = int(kinds[index] // len(grids)), int(grids[kinds[index] % len(grids)])
            out.append(Contention(scene.rank.names[name], blocks, few, alone, many, by, by - alone * many // few))
    return sorted(out, key=lambda row: (-row.cost, row.kernel, row.blocks))
