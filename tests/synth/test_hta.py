"""HTA loads what is written and finds the same overlap; where HTA is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

from tests.benchmarks.synth_against_hta import compare


@pytest.mark.skipif(find_spec("hta") is None, reason="HTA (traceinsight) is not installed")
def test_overlap_is_what_hta_prints() -> None:
    _, rows = compare(3, sys.executable)

    assert rows
    assert all(row.agrees for row in rows)
