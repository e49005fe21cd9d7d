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


@pytest.mark.parametrize("block", [1, 3, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_parents_do_not_depend_on_blocks(block: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given spans of three threads, nested, overlapping, empty and side by side, in order of thread and start,
    random = np.random.default_rng(seed)
    spans = [(int(t), int(s), int(s + d)) for t, s, d in random.integers(0, [3, 40, 15], (120, 3))]
    spans.sort(key=lambda span: (span[0], span[1], -span[2]))
    thread, start, end = np.array(spans, np.int64).T

    # When they are looked at block by block,
    monkeypatch.setattr(links, "_BLOCK", block)
    found = links.parents(thread, start, end)

    # Then each has the parent that it has among all of them.
    assert found.tolist() == slow_parents(spans)
