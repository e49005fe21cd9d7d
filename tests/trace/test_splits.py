"""Split sizes of an all-to-all: rows to elements, shortened lists, unequal or not."""

from __future__ import annotations

from typing import Any

import pytest

from commprof.trace.splits import EQUAL, UNEQUAL, UNKNOWN, Shown, exchange, shown_splits


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("[]", None),
        ("", None),
        (None, None),
        ("[12, 4]", Shown((12, 4), True)),
        ("[12,4]", Shown((12, 4), True)),
        ([12, 4], Shown((12, 4), True)),
        ("[0, 0]", Shown((0, 0), True)),
        ("[1, 2, ..., 9]", Shown((1, 2, 9), False)),
        ("[1, 2, ...]", Shown((1, 2), False)),
        ("twelve", None),
        ([12, -4], None),
        (12, None),
        ("[" + "9" * 40 + "]", None),
    ],
)
def test_lists_in_all_their_spellings(value: Any, expected: Shown | None) -> None:
    assert shown_splits(value) == expected


def test_rows_become_elements() -> None:
    # 4 ranks, rows of 8 elements: this rank gives 1, 2, 3 and 4 rows and gets 2, 2, 2 and 6.
    found = exchange(80, 96, Shown((1, 2, 3, 4), True), Shown((2, 2, 2, 6), True), 4)

    assert found.sent_to == (8, 16, 24, 32)
    assert found.received_from == (16, 16, 16, 48)
    assert (found.sent, found.received, found.unequal) == (80, 96, UNEQUAL)


def test_lists_of_tensors_state_one_total_for_both_sides() -> None:
    # The call of tensor lists reports the input's elements twice; its splits are in elements.
    found = exchange(30, 30, Shown((10, 20), True), Shown((10, 50), True), 2)

    assert (found.sent, found.received, found.received_from) == (30, 60, (10, 50))


def test_only_one_side_is_split() -> None:
    # Output rows are given, the input is cut into equal parts.
    found = exchange(12, 16, None, Shown((1, 3), True), 2)

    assert (found.sent_to, found.received_from, found.unequal) == ((6, 6), (4, 12), UNEQUAL)


def test_a_rank_that_gives_nothing() -> None:
    found = exchange(0, 24, Shown((0, 0, 0), True), Shown((1, 2, 0), True), 3)

    assert (found.sent_to, found.received_from) == ((0, 0, 0), (8, 16, 0))
    assert (found.sent, found.received) == (0, 24)


def test_shortened_lists_leave_only_totals() -> None:
    shown = Shown(tuple(range(30)), False)

    found = exchange(4096, 5000, shown, shown, 64)

    assert (found.sent_to, found.received_from, found.unequal) == (None, None, UNEQUAL)
    assert (found.sent, found.received) == (4096, 5000)


@pytest.mark.parametrize(
    ("sent", "received", "shown", "unequal"),
    [
        (64, 64, None, EQUAL),  # no split sizes: equal totals are equal splits
        (64, 72, None, UNEQUAL),
        (64, None, None, UNKNOWN),
        (None, None, None, UNKNOWN),
        (64, 64, Shown((2, 2), True), EQUAL),
        (64, 64, Shown((3, 1), True), UNEQUAL),
        (None, None, Shown((3, 1), True), UNEQUAL),
        (64, 64, Shown((2,) * 30, False), EQUAL),
    ],
)
def test_unequal_is_known_or_said_to_be_unknown(
    sent: int | None, received: int | None, shown: Shown | None, unequal: int
) -> None:
    assert exchange(sent, received, shown, shown, 2).unequal == unequal


def test_splits_of_another_number_of_members_are_not_believed() -> None:
    found = exchange(30, 30, Shown((10, 20), True), Shown((10, 20), True), 3)

    assert (found.sent_to, found.received_from) == (None, None)
