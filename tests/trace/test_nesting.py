"""Values that lie in each other: one limit, wherever in a program the reader is called and however it reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commprof.trace.nesting import DEEPEST, too_deep
from commprof.trace.read import read_rank
from tests.builders.kineto import Raw, Trace

SHAPES: dict[str, Callable[[int], str]] = {
    "lists": lambda depth: "[" * depth + "]" * depth,
    "objects": lambda depth: '{"a":' * depth + "1" + "}" * depth,
    "both": lambda depth: '[{"a":' * (depth // 2) + "1" + "}]" * (depth // 2),
    "with words": lambda depth: '["]]}\\"",' * depth + "1" + "]" * depth,
}


def called_from_deep_inside(levels: int, work: Callable[[], Any]) -> Any:
    return called_from_deep_inside(levels - 1, work) if levels else work()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", [2, 300, 390, 396, 398, 400, 402, 500, 700, 850, 1500])
def test_an_event_is_read_or_counted_by_its_depth_alone(shape: str, depth: int, tmp_path: Path) -> None:
    # Given an event whose arguments hold a value this deep; the event and its arguments are two levels more.
    trace = Trace(rank=0, world_size=1)
    for number in range(6):
        event = trace.gemm(1000 * number + 100, 1000 * number + 600, launch=1000 * number + 10)
        if number == 3:
            event["args"]["Input Dims"] = Raw(SHAPES[shape](depth))
    path = trace.write(tmp_path / "rank0.json")

    # When it is read the fast way and event by event, from the top of a program and from deep inside one,
    found = set()
    for tolerant in (False, True):
        for levels in (0, 250):
            rank = called_from_deep_inside(levels, lambda way=tolerant: read_rank(str(path), tolerant=way))  # type: ignore[misc]
            found.add((len(rank.device), rank.file.events, rank.file.skipped["bad_event"]))

    # Then it is there up to the limit and counted beyond it, each time.
    assert len(found) == 1
    kernels, _, bad = found.pop()
    assert (kernels, bad) == ((6, 0) if depth + 2 <= DEEPEST else (5, 1))


@pytest.mark.parametrize("depth", [DEEPEST - 1, DEEPEST])
def test_what_a_file_says_of_itself_has_the_same_limit(depth: int, tmp_path: Path) -> None:
    trace = Trace(rank=0, world_size=1)
    trace.gemm(100, 600, launch=10)
    trace.top["note"] = Raw(SHAPES["lists"](depth))

    rank = read_rank(str(trace.write(tmp_path / "rank0.json")))

    assert ("note" in rank.metadata) == (depth < DEEPEST)
    assert rank.file.skipped["bad_metadata"] == (depth >= DEEPEST)


@pytest.mark.parametrize(
    ("text", "deep"),
    [
        ("[" * DEEPEST + "]" * DEEPEST, False),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), True),
        ('["' + "[" * 2 * DEEPEST + '"]', False),
        ("[" + "[]," * 2 * DEEPEST + "0]", False),
        ('["\\"' + "[{" * DEEPEST + '"]', False),
    ],
)
def test_brackets_in_words_and_beside_each_other_are_not_deep(text: str, deep: bool) -> None:
    assert too_deep(text) is deep
    assert too_deep(text.encode()) is deep
