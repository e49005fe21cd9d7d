"""A rank whose columns go while it is analysed gives what it gives with all of them."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commprof.analysis.needs import NEEDED
from commprof.analysis.rank import analyze_rank
from commprof.trace.read import read_rank

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted(path for path in FIXTURES.glob("*/*rank0*.json*") if "manifest" not in path.name)


def plain(value: Any) -> Any:
    """Any result as lists, so that two can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return [(plain(key), plain(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_columns_that_go_early_are_not_missed(path: Path) -> None:
    # Given a rank read twice, with the rows that analyses need,
    kept, consumed = read_rank(str(path), keep=NEEDED), read_rank(str(path), keep=NEEDED)

    # When one of them may lose its columns on the way,
    expected, found = analyze_rank(kept), analyze_rank(consumed, consume=True)

    # Then the result is the same, and the columns are gone.
    assert plain(found) == plain(expected)
    assert len(consumed.device) == len(kept.device)
    with pytest.raises(AttributeError):
        _ = consumed.device.start


def test_a_column_of_one_number_takes_the_room_of_one() -> None:
    # Given a trace of one device in which no kernel belongs to a CUDA graph,
    rank = read_rank(str(FIXTURES / "ddp-two-ranks" / "rank0.json.gz"))

    # When its columns are looked at,
    device, node = rank.device.device, rank.device.graph_node_id

    # Then they are as long as all others, and hold their number once.
    assert len(device) == len(node) == len(rank.device.start) > 1
    assert set(device.tolist()) == {0} == set(node.tolist())
    assert device.dtype == node.dtype == np.int64
    assert device.strides == node.strides == (0,)
