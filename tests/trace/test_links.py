"""Which span lies in which, against one comparison of each with all before it."""

from __future__ import annotations

import numpy as np
import pytest

from commprof.trace import links


def slow_parents(spans: list[tuple[int, int, int]]) -> list[int]:
    """For each span the last one before it, on its thread, that ends after it begins."""
    return [
        max((i for i in range(row) if spans[i][0] == thread and spans[i][2] > start), default=links.NONE)
        for row, (thread, start, _) in enumerate(spans)
    ]


@pytest.mark.parametrize("longest", [3, 15, 60])
@pytest.mark.parametrize("seed", range(8))
def test_parents_are_the_last_spans_that_reach_beyond_the_start(seed: int, longest: int) -> None:
    # Given spans of three threads, nested, overlapping, empty and side by side, in order of thread and start,
    random = np.random.default_rng(seed)
    spans = [(int(t), int(s), int(s + d)) for t, s, d in random.integers(0, [3, 40, longest], (120, 3))]
    spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    thread, start, end = np.array(spans, np.int64).T

    # When the parents of all are looked for at once,
    found = links.parents(thread, start, end)

    # Then each has the one that comparing it with all before it finds.
    assert found.tolist() == slow_parents(spans)


def test_no_spans_have_no_parents() -> None:
    none = np.empty(0, np.int64)

    assert len(links.parents(none, none, none)) == 0
