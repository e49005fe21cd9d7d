"""Who gets how much in an all-to-all: split sizes as profilers write them, and whether they are unequal.

PyTorch states splits along the first side of the tensor (rows), the lists of an ``all_to_all`` of tensors in elements,
and shortens both above thirty members; then only the totals are exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

UNKNOWN, EQUAL, UNEQUAL = -1, 0, 1
"""Values of ``Calls.unequal``."""

_LIST = re.compile(r"\s*\[([\d\s,.]*)\]?\s*")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Shown:
    """A list of split sizes as far as it is shown: ``complete`` unless the profiler shortened it."""

    values: tuple[int, ...]
    complete: bool


def shown_splits(value: Any) -> Shown | None:
    """Split sizes from a list or its text; ``None`` where there are none (equal splits) or they are unreadable."""
    if isinstance(value, str):
        match = _LIST.fullmatch(value)
        texts = _NUMBER.findall(match[1]) if match else []
        if any(len(text) > 18 for text in texts):
            return None
        numbers = tuple(map(int, texts))
        complete = "..." not in value
    elif isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 60 for number in value):
        numbers, complete = tuple(value), True
    else:
        return None
    return Shown(numbers, complete) if numbers else None


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one rank gives and gets in an all-to-all, in elements; ``None`` is what cannot be known.

    ``sent_to``/``received_from`` have one entry per member of the group, the rank itself among them.
    """

    sent: int | None
    received: int | None
    sent_to: tuple[int, ...] | None
    received_from: tuple[int, ...] | None
    unequal: int


def exchange(
    elements_in: int | None, elements_out: int | None, given: Shown | None, got: Shown | None, members: int | None
) -> Exchange:
    """The exchange of a call with these totals and split sizes (``given`` of the input, ``got`` of the output)."""
    row = _row(elements_in, given) or _row(elements_out, got)
    sent, received = elements_in, elements_out
    # The call of tensor lists states one total for both sides; where both lists are whole, they know better.
    if row is not None and got is not None and got.complete:
        received = row * sum(got.values)
    if row is not None and given is not None and given.complete:
        sent = row * sum(given.values)
    return Exchange(
        sent, received, _per_member(sent, given, row, members), _per_member(received, got, row, members),
        _unequal(sent, received, given, got),
    )  # fmt: skip


def _row(total: int | None, shown: Shown | None) -> int | None:
    """Elements of one row: how many elements a split size of 1 stands for."""
    if total is None or shown is None or not shown.complete:
        return None
    rows = sum(shown.values)
    return total // rows if rows and total % rows == 0 else None


def _per_member(total: int | None, shown: Shown | None, row: int | None, members: int | None) -> tuple[int, ...] | None:
    if shown is not None:
        if not shown.complete or members not in (None, len(shown.values)):
            return None
        if not any(shown.values):
            return shown.values
        return None if row is None else tuple(row * value for value in shown.values)
    if total is None or not members or total % members:
        return None
    return (total // members,) * members


def _unequal(sent: int | None, received: int | None, given: Shown | None, got: Shown | None) -> int:
    for shown in (given, got):
        if shown is not None and len(set(shown.values)) > 1:
            return UNEQUAL
    if sent is None or received is None:
        return UNKNOWN
    return UNEQUAL if sent != received else EQUAL
