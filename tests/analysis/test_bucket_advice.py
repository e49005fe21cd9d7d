"""Predicted tails of bucket layouts, against a hand-worked pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from commprof.analysis.bandwidth import GroupBandwidth
from commprof.analysis.bucket_advice import MIB, Layout, _best, _cut, _duration, _flows, _overshoot, _predict
from commprof.analysis.fit import fit
from commprof.analysis.where_model import Bucket


def bucket(index: int, size: int, at: int, end: int, **other: Any) -> Bucket:
    """A bucket of one backward pass from 1000 to 5000."""
    values = {
        "call": index, "step": 0, "series": 1, "index": index, "size": size, "parameters": None, "ready": at,
        "launched": at - 10, "start": at, "end": end, "exposed": 0, "queued": 0, "lag": -10, "start_delay": 0,
        "tail": 0, "layout": "unknown", "backward_start": 1000, "backward_end": 5000,
    }  # fmt: skip
    return Bucket(**{**values, **other})


def test_tail_of_a_layout_by_hand() -> None:
    # 400 bytes in 4000 ns, evenly; a message takes 100 ns and 8 ns per byte.
    flows = _flows([bucket(0, 100, 2000, 2900), bucket(1, 300, 5000, 7500)])

    def duration(sizes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return 100 + 8 * sizes

    # As recorded: 100 bytes at 1000 take until 1900; 300 at 4000 until 6500: 2500 after the pass of 4000.
    assert _predict(flows, duration, [flows[0].sizes], 0, 0).tail == 2500
    assert flows[0].tail == 2500
    # Four buckets of 100 end at 1900, 2900, 3900 and 4900: each is sent before the next is complete.
    even = _predict(flows, duration, [_cut(400, 100, 100)], 1, 1)
    assert (even.tail, even.buckets, even.comm) == (900, 4, 3600)
    # Sixteen of 25 take 300 each, more than the 250 in which they become complete: 250 + 16 * 300.
    assert _predict(flows, duration, [_cut(400, 25, 25)], 1, 1).tail == 1050


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [((400, 100, 100), [100, 100, 100, 100]), ((400, 50, 150), [50, 150, 150, 50]), ((30, 100, 100), [30])],
)
def test_layouts_divide_all_bytes(sizes: tuple[int, int, int], expected: list[int]) -> None:
    assert _cut(*sizes).tolist() == expected


def test_passes_with_an_unknown_bucket_are_left_out() -> None:
    assert _flows([bucket(0, 100, 2000, 2900), bucket(1, 300, 5000, 7500, ready=None)]) == []
    assert _flows([bucket(0, 100, 2000, 2900, backward_end=None)]) == []


def test_duration_of_few_sizes_is_a_line_through_them() -> None:
    measured = GroupBandwidth(
        0, "all_reduce", 2, 1.0, None, None, 2, 2, False, False, fit(*_points([10, 30], [50, 110]))
    )

    assert _duration(measured)(np.array([10.0, 20.0, 40.0])).tolist() == [50, 80, 140]


def test_duration_of_one_size_is_in_proportion() -> None:
    measured = GroupBandwidth(0, "all_reduce", 2, 1.0, None, None, 2, 2, False, False, fit(*_points([10], [50])))

    assert _duration(measured)(np.array([5.0, 20.0])).tolist() == [25, 100]


def _points(moved: list[int], ns: list[int]) -> tuple[Any, Any]:
    return np.array(moved, np.float64), np.array(ns, np.float64)


def test_no_change_is_advised_before_one_that_is_not_worth_it() -> None:
    current, little, much = (Layout(1, 25, 4, tail, 0) for tail in (100, 95, 50))

    assert _best([little], current, step=1000) == current
    assert _best([little, much], current, step=1000) == much


def test_the_fewest_buckets_among_nearly_equal_gains() -> None:
    current = Layout(1, 25, 4, 100, 0)
    many, few, plain = Layout(1, 1, 40, 48, 0), Layout(1, 10, 9, 50, 0), Layout(10, 10, 9, 52, 0)

    assert _best([many, few, plain], current, step=1000) == plain


def test_overshoot_shows_only_where_buckets_fit_the_default_cap() -> None:
    assert _overshoot(np.array([1, 27, 29, 3]) * float(MIB)) == 3 * MIB
    assert _overshoot(np.array([1, 9, 29, 3]) * float(MIB)) == 0
