"""Columns in little space come out as they went in, whatever numbers they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commprof.trace.packing import joined, merged, packed

INT64 = st.integers(-(2**63), 2**63 - 1)
NEAR = st.builds(
    lambda base, steps: [base + step for step in steps], st.integers(-(2**62), 2**62), st.lists(st.integers(0, 2**17))
)


@given(st.lists(st.one_of(NEAR, st.lists(INT64)), max_size=4))
def test_what_is_joined_are_the_numbers_that_were_packed(parts: list[list[int]]) -> None:
    pieces = [packed(np.array(part, np.int64)) for part in parts]

    expected = [value for part in parts for value in part]
    assert joined(pieces, np.int64).tolist() == expected
    if pieces:
        assert merged(pieces).wide().tolist() == expected


@pytest.mark.parametrize(
    ("values", "width"),
    [([7, 7, 7], 1), ([10**18, 10**18 + 255], 1), ([-5, 251], 2), ([0, 65_536], 4), ([0, 2**32], 8)],
)
def test_a_row_takes_what_the_range_of_its_column_needs(values: list[int], width: int) -> None:
    column = packed(np.array(values, np.int64))

    assert column.above.itemsize == width
    assert column.wide().tolist() == values


def test_the_same_number_everywhere_is_kept_once() -> None:
    pieces = [packed(np.full(1_000, 3, np.int64)), packed(np.full(500, 3, np.int64))]

    column = joined(pieces, np.int32)

    assert column.strides == (0,)
    assert (len(column), column[0], column.dtype) == (1_500, 3, np.int32)


def test_flags_stay_flags() -> None:
    column = joined([packed(np.array([True, False])), packed(np.array([True, True]))], np.bool_)

    assert column.tolist() == [True, False, True, True]
