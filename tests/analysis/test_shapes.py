"""Shapes of sets of ranks, and whether such sets tile a job."""

from __future__ import annotations

import pytest

from commprof.analysis.shapes import Shape, shape_of, shape_text, tiling


@pytest.mark.parametrize(
    ("ranks", "shape"),
    [
        ((4, 5, 6, 7), Shape("contiguous")),
        ((7, 5, 6, 4), Shape("contiguous")),
        ((0, 8, 16), Shape("strided", 8)),
        ((0, 1, 8, 9, 16, 17), Shape("blocks", 8, 2)),
        ((0, 1, 3, 7), Shape("irregular")),
        ((0, 1, 2, 8, 9), Shape("irregular")),
        ((3,), Shape("contiguous")),
    ],
)
def test_shapes(ranks: tuple[int, ...], shape: Shape) -> None:
    assert shape_of(ranks) == shape


def test_groups_tile_a_job_when_each_rank_is_in_exactly_one() -> None:
    assert tiling([(0, 2), (1, 3)], 4) == 2
    assert tiling([(0, 2), (0, 2), (1, 3)], 4) == 2  # the same set under two names
    assert tiling([(0, 2)], 4) == 0
    assert tiling([(0, 2), (2, 3), (1, 3)], 4) == 0
    assert tiling([(0, 1)], None) == 0


def test_shapes_in_words() -> None:
    assert shape_text((0, 1), 0, 2) == "all 2 ranks"
    assert shape_text((0, 2), 2, 4) == "every 2nd rank from 0 to 2; 2 such groups hold all 4 ranks"
    assert shape_text((8, 9), 0, 16) == "neighbouring ranks 8 to 9"
    assert shape_text((0, 11, 22), 0, None) == "every 11th rank from 0 to 22"
