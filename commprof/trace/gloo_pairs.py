"""Which ``c10d::*`` operator launched which ``gloo:*`` span: nothing links the two but order, shape and group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commprof.trace.arguments import CallFacts
from commprof.trace.model import ProcessGroup

NONE = -1


@dataclass(frozen=True, slots=True)
class Launched:
    """One operator: where and when it was called, and the elements of each span that gloo makes of it."""

    start: int
    thread: int
    facts: CallFacts
    pieces: tuple[int | None, ...]

    @property
    def runs_as(self) -> str:
        """Gloo's own word for what it becomes: a reduce-scatter runs as an all-reduce."""
        return "all_reduce" if self.facts.operation == "reduce_scatter" else self.facts.operation

    def piece(self, span: CallFacts, left: list[int | None]) -> int:
        """Place among the pieces left that a span of that shape can be; unknown shapes fit anything."""
        other = span.elements_in
        if other is None or self.facts.operation in ("send", "recv"):
            return 0
        return next((place for place, size in enumerate(left) if size is None or size == other), NONE)


@dataclass(frozen=True, slots=True)
class Span:
    """One execution on a thread of gloo, or of the caller for a send or receive."""

    start: int
    end: int
    tid: int
    facts: CallFacts

    @property
    def is_message(self) -> bool:
        """Whether it runs on the caller's thread."""
        return self.facts.operation in ("send", "recv")


def pair(
    spans: Sequence[Span], operators: Sequence[Launched], group_of_thread: Mapping[int, ProcessGroup]
) -> list[int]:
    """Operator of each span, by its place; both in order of start. Groups that are known on both sides must agree."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for place, operator in enumerate(operators):
        waiting[operator.runs_as].append(place)
    left = [list(operator.pieces) for operator in operators]
    found = []
    for span in spans:
        queue = waiting[span.facts.operation]
        group = None if span.is_message else group_of_thread.get(span.tid)
        place, piece = _first(queue, operators, left, span, None if group is None else group.name)
        found.append(place)
        if place != NONE:
            del left[place][piece]
            if not left[place]:
                queue.remove(place)
    return found


def _first(
    queue: list[int], operators: Sequence[Launched], left: list[list[int | None]], span: Span, group: str | None
) -> tuple[int, int]:
    """The first operator that was launched before the span started and still waits for one of its shape; and which."""
    for place in queue:
        operator = operators[place]
        if operator.start > span.start:
            break
        named = operator.facts.group_name
        piece = operator.piece(span.facts, left[place])
        if piece != NONE and (group is None or named is None or group == named):
            return place, piece
    return NONE, NONE
