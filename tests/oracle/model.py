"""One rank's timeline as the oracles see it: half-open intervals of whole ticks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Launch:
    """The runtime call that enqueued a piece of work: its start and its thread."""

    time: int
    thread: int


@dataclass(frozen=True)
class Work:
    """Device work over ``[start, end)``; ``call`` numbers the collective that a comm kernel belongs to."""

    kind: Literal["compute", "comm", "copy"]
    start: int
    end: int
    stream: int
    launch: Launch | None = None
    call: int | None = None


@dataclass(frozen=True)
class Step:
    """A step mark on the CPU."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Blocking:
    """A runtime call that holds its thread: named ``*Synchronize*`` or ``*Memcpy*``."""

    thread: int
    start: int
    end: int


@dataclass
class Rank:
    """All work of one rank on one device, in the order of the file."""

    work: list[Work] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    blocking: list[Blocking] = field(default_factory=list)

    def of(self, kind: str) -> list[Work]:
        """The work of one kind."""
        return [work for work in self.work if work.kind == kind]

    @property
    def start(self) -> int:
        """First device start."""
        return min(work.start for work in self.work)

    @property
    def end(self) -> int:
        """Last device end."""
        return max(work.end for work in self.work)


def busy(work: list[Work], tick: int) -> bool:
    """Whether any of this work runs during ``[tick, tick + 1)``."""
    return any(one.start <= tick < one.end for one in work)
