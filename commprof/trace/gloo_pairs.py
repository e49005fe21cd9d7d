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
    """One operator: where and when it was called, and how many spans gloo makes of it."""

    start: int
    thread: int
    facts: CallFacts
    pieces: int

    @property
    def runs_as(self) -> str:
        """Gloo's own word for what it becomes: a reduce-scatter runs as an all-reduce."""
        return "all_reduce" if self.facts.operation == "reduce_scatter" else self.facts.operation

    def fits(self, span: CallFacts) -> bool:
        """Whether a span of that shape can be this operator's; unknown shapes fit anything."""
        mine, other = self.facts.elements_in, span.elements_in
        if mine is None or other is None or self.facts.operation in ("send", "recv"):
            return True
        return mine == other * self.pieces


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
    remaining = [operator.pieces for operator in operators]
    found = []
    for span in spans:
        queue = waiting[span.facts.operation]
        group = None if span.is_message else group_of_thread.get(span.tid)
        place = _first(queue, operators, span, None if group is None else group.name)
        found.append(place)
        if place != NONE:
            remaining[place] -= 1
            if not remaining[place]:
                queue.remove(place)
    return found


def _first(queue: list[int], operators: Sequence[Launched], span: Span, group: str | None) -> int:
    """The first operator of that shape that was launched before the span started and still waits for one."""
    for place in queue:
        operator = operators[place]
        if operator.start > span.start:
            return NONE
        named = operator.facts.group_name
        if operator.fits(span.facts) and (group is None or named is None or group == named):
            return place
    return NONE
