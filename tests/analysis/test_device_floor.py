"""What calls hold up compute by if the CPU is always ahead: by hand."""

from __future__ import annotations

import numpy as np

from commprof.analysis.device_floor import hold_up

_NEVER = 1 << 62


def delay(*calls: tuple[int, int, int, int], until: int = 100) -> int:
    """Of calls with ready, needed, transfer and stream each, in order of time."""
    columns = np.array(calls, np.int64).reshape(-1, 4).T
    return hold_up(*columns, until=until)


def test_what_is_needed_at_once_holds_up_compute_for_as_long_as_it_lasts() -> None:
    assert delay((20, 20, 30, 7), (60, 60, 30, 7)) == 60


def test_what_is_hidden_behind_compute_costs_nothing() -> None:
    assert delay((20, 70, 50, 7)) == 0


def test_a_call_waits_for_its_stream_and_for_compute_that_was_held_up_before() -> None:
    # The first ends at 50, so compute is 30 late. The second can start at 60 + 30 and ends at 140, needed at 100.
    assert delay((20, 20, 30, 7), (60, 100, 50, 7)) == 40
    # On one stream a call of 90 that nobody needs lets the next begin at 90: it ends at 130 and is needed at 50.
    assert delay((0, _NEVER, 90, 7), (10, 50, 40, 7)) == 80
    # On a stream of its own it ends at 50.
    assert delay((0, _NEVER, 90, 7), (10, 50, 40, 8)) == 0


def test_only_what_is_needed_by_then_counts_up_to_an_earlier_place() -> None:
    calls = ((20, 20, 30, 7), (60, 100, 50, 7))

    assert delay(*calls, until=60) == 30


def test_without_calls_nothing_holds_up_compute() -> None:
    assert delay() == 0
