"""How much slower a device is for the same kernels, where communication beside them slows those of others: by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from commprof.analysis.critical_path import CriticalPath
from commprof.analysis.device_pace import device_pace, excess_on_path
from commprof.analysis.model import RankAnalysis
from commprof.analysis.run import analyze
from tests.builders.kineto import Trace


def ranks(folder: Path, *kernels: dict[str, tuple[int, ...]]) -> list[RankAnalysis]:
    """One rank for each table of kernels: by name how long (us) each of them takes in the one step."""
    for rank, table in enumerate(kernels):
        trace, begin = Trace(rank=rank, world_size=len(kernels)), 100
        for name, lengths in table.items():
            for length in lengths:
                trace.kernel(name, begin, begin + length, launch=begin - 50)
                begin += length
        trace.step(1, 10, begin - 10)
        trace.write(folder / f"rank{rank}.json")
    return analyze(str(folder)).ranks


def path(own: int) -> CriticalPath:
    """One step of two ranks of one role that compute 1200 and 1040 us; the first is on the path for ``own`` ns."""
    none = np.zeros(2, np.int64)
    columns = dict.fromkeys(("launching", "inputs", "pauses", "cpu", "role", "fetched", "paused"), none)
    nothing, compute = np.empty(0, np.int64), np.array([1_200_000, 1_040_000])
    return CriticalPath(
        steps=1, length=own, own=np.array([own, 0]), compute=compute, match=nothing, transfers=nothing, gap=np.ones(2),
        **columns,
    )  # fmt: skip


def test_kernels_that_communication_slows_on_the_others_do_not_hide_a_slow_device(tmp_path: Path) -> None:
    # A device that takes 1.2 times as long; backward, communication slows the kernels of the other by 5 %.
    slow, other = ranks(tmp_path, {"back": (480, 480), "adam": (240,)}, {"back": (420, 420), "adam": (200,)})

    assert device_pace(slow, [other]) == pytest.approx(1.2)
    assert device_pace(other, [slow]) == pytest.approx(1.0)


def test_of_what_is_on_the_path_as_much_goes_as_of_all(tmp_path: Path) -> None:
    both = ranks(tmp_path, {"back": (480, 480), "adam": (240,)}, {"back": (420, 420), "adam": (200,)})

    # A sixth of the 600 us that lie on the path, not all of the 160 us that it computes longer.
    assert excess_on_path(path(600_000), both, np.array([True, False])).tolist() == [100_000, 0]


def test_what_one_kind_takes_longer_may_lie_on_the_path_whole(tmp_path: Path) -> None:
    both = ranks(tmp_path, {"back": (400, 400), "adam": (400,)}, {"back": (400, 400), "adam": (240,)})

    assert device_pace(both[0], both[1:]) is None
    assert excess_on_path(path(600_000), both, np.array([True, False])).tolist() == [160_000, 0]


def test_a_kernel_that_stands_out_alone_decides_nothing(tmp_path: Path) -> None:
    others = {"gemm": (1000, 1000), "adam": (300,), "odd": (10,)}
    slow, other = ranks(tmp_path, {"gemm": (1100, 1100), "adam": (330,), "odd": (40,)}, others)

    assert device_pace(slow, [other]) == pytest.approx(1.1)


def test_kernels_of_which_there_are_more_are_not_compared(tmp_path: Path) -> None:
    table = {"gemm": (1200, 1200), "attention": (900, 900, 900)}
    slow, other, third = ranks(tmp_path, table, *[{"gemm": (1000, 1000), "attention": (300, 300)}] * 2)

    # Less than half of its compute is run as often elsewhere.
    assert device_pace(slow, [other, third]) is None


def test_nobody_to_compare_with(tmp_path: Path) -> None:
    (alone,) = ranks(tmp_path, {"gemm": (1000,)})

    assert device_pace(alone, []) is None
