"""Thread blocks of a launch: the product of its grid, or -1 where the grid is not given or cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from commprof.trace.read import read_rank
from tests.builders.kineto import Trace

GRIDS = [[13, 1, 1], [2, 3, 4], [10**9, 10**9, 10**9], [-1, 2, 2], None]


@pytest.mark.parametrize("tolerant", [False, True])
def test_a_grid_beyond_any_machine_takes_none_from_the_others(tolerant: bool, tmp_path: Path) -> None:
    # Given five kernels, of which one has a grid whose product no 64 bits hold, one a negative side, and one none,
    trace = Trace(rank=0, world_size=1)
    for number, grid in enumerate(GRIDS):
        event = trace.gemm(1000 * number + 100, 1000 * number + 600, launch=1000 * number + 10)
        event["args"].pop("grid", None)
        if grid is not None:
            event["args"]["grid"] = grid

    # When it is read the fast way or event by event,
    read = read_rank(str(trace.write(tmp_path / "rank0.json")), tolerant=tolerant)

    # Then the other grids keep their product.
    assert read.device.blocks.tolist() == [13, 24, -1, -1, -1]
