"""What happened in a simulated run, in true time: the result of the engine."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from commprof.synth.mesh import Group
from commprof.synth.plan import Plan
from commprof.synth.program import Comm


@dataclass(slots=True)
class Call:
    """One call of a group: who took part, when each kernel started, and when the data was there.

    ``op`` of a point-to-point message is ``send``; ``members`` are then source and sink. ``indices`` are the
    instructions of the members, in their order. ``first`` is when the first member entered, ``ready`` when the last
    could take part, ``done`` when the transfer was over.
    """

    number: int
    group: Group
    op: str
    comm: Comm
    order: int
    members: tuple[int, ...]
    indices: array[int]
    enrolled: int = 0
    arrived: int = 0
    first: int = -1
    ready: int = 0
    early: int = 0
    done: int = -1
    length: tuple[int, int] | None = None
    pending: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[int, ...]:
        """Group, place among its calls, and the members at both ends: the same in every run of a scenario."""
        return (self.group.id, self.order, self.members[0], self.members[-1])

    @property
    def source(self) -> int:
        """The rank that data comes from, in a one-directional call; else -1."""
        if self.op == "send":
            return self.members[0]
        return self.members[self.comm.root] if self.comm.root is not None else -1


@dataclass(slots=True)
class RankTimeline:
    """Nanoseconds per instruction of the rank's program, -1 where there is none.

    ``cpu_start`` to ``cpu_end`` is the operator on the CPU, ``launch`` the start of the runtime call inside it,
    ``dev_start`` to ``dev_end`` the kernel; ``call_of`` numbers the call.
    """

    cpu_start: array[int]
    launch: array[int]
    cpu_end: array[int]
    dev_start: array[int]
    dev_end: array[int]
    call_of: array[int]


@dataclass(slots=True)
class Timeline:
    """All ranks of a run and the calls between them."""

    plan: Plan
    ranks: list[RankTimeline]
    calls: list[Call]

    def starts(self, call: Call) -> dict[int, int]:
        """When the kernel of each member started."""
        return {rank: self.ranks[rank].dev_start[i] for rank, i in zip(call.members, call.indices, strict=True)}

    def ends(self, call: Call) -> dict[int, int]:
        """When the kernel of each member ended."""
        return {rank: self.ranks[rank].dev_end[i] for rank, i in zip(call.members, call.indices, strict=True)}
