"""What calls that need not be cost on the critical path: by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from commprof.diagnosis.findings.needless import _latency, needless_on_path
from commprof.diagnosis.ground import Ground


def ground_of(analysis: Any) -> Ground:
    """A ground as far as these functions ask."""
    return cast(Ground, SimpleNamespace(analysis=analysis))


def test_launches_count_by_rank_and_latency_once_per_match_on_the_path() -> None:
    # Matches 2, 5 and 7 are on the path. Both ranks take part in 5, rank 0 in 2, rank 1 in 9, which is on no path; of 7
    # less is on the path than its latency. A half of all can go.
    path = SimpleNamespace(
        match=np.array([2, 5, 7]), transfers=np.array([900, 900, 100]), launching=np.array([1_000, 400]),
        role=np.zeros(2, np.int64),
    )  # fmt: skip
    matches = [np.array([5, 2, -1]), np.array([9, 5, 7])]
    latency = [np.array([300, 200, 1_000]), np.array([1_000, 310, 400])]
    analysis = SimpleNamespace(critical_path=path, waiting=[SimpleNamespace(match=match) for match in matches])

    found = needless_on_path(ground_of(analysis), np.array([0.5, 0.25]), 0.5, lambda where: latency[where])

    assert found is not None
    assert found.parts["launching"].tolist() == [250, 50]
    assert found.transfers is not None
    assert found.transfers.tolist() == [100, 155, 50]


def test_without_a_path_nothing_is_told_of_it() -> None:
    analysis = SimpleNamespace(critical_path=None, waiting=[])

    assert needless_on_path(ground_of(analysis), np.array([1.0]), 1.0, lambda where: np.empty(0, np.int64)) is None


@pytest.mark.parametrize(
    ("size", "lasted", "latency"),
    [
        # 10 us and 1 us per 100 KB: 4 MB take 50 us and 1 MB 20; one of 4 MB was held up to 90 us, as no other was.
        ([4_000_000, 4_000_000, 4_000_000, 1_000_000, 4_000], [50_000, 50_000, 90_000, 20_000, 10_040], [10_000] * 5),
        # Messages of nearly one size tell nothing.
        ([4_000_000, 3_000_000], [50_000, 40_000], [0, 0]),
    ],
)
def test_latency_is_what_a_message_takes_beyond_its_bytes(
    size: list[int], lasted: list[int], latency: list[int]
) -> None:
    count = len(size)
    calls = SimpleNamespace(
        size_bytes=np.array(size), duration=np.array(lasted), fused=np.zeros(count, np.bool_),
        group=np.zeros(count, np.int64), operation=np.zeros(count, np.int64),
    )  # fmt: skip
    ground = ground_of(SimpleNamespace(ranks=[SimpleNamespace(calls=calls)], waiting=[]))

    found = _latency(ground, 0, np.ones(count, np.bool_))

    assert found.tolist() == pytest.approx(latency, abs=1)
