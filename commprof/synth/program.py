"""What one rank does: a list of instructions in the order in which its CPU issues them.

A program is the same for all ranks of a pipeline stage; a collective names the *axis* of its group, which each
rank resolves to its own group. Streams are small numbers, waits between streams are resolved to the
instruction they wait for, as a recorded event would be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import IntEnum

COMPUTE_STREAM = 7
DTYPE_BYTES = {"Float": 4, "BFloat16": 2, "Int": 4, "Half": 2}


class Kind(IntEnum):
    """Instruction kinds; up to ``RECV`` they put work on the device."""

    COMPUTE = 0
    COPY = 1
    COLLECTIVE = 2
    SEND = 3
    RECV = 4
    HOST = 5
    SYNC = 6
    BEGIN = 7
    END = 8


@dataclass(frozen=True, slots=True)
class Comm:
    """What a communication instruction moves.

    ``op`` is the operation (``all_reduce``, ...), ``nelems_in`` and ``nelems_out`` the elements of one rank's
    input and output. ``peer`` is the pipeline stage at the other end of a send or receive, ``microbatch`` and ``layer``
    say which activation it is (``layer``: the boundary between model chunks), ``root`` is the place
    of the root in the group for a broadcast, ``traffic`` the key of a table of unequal splits.
    """

    op: str
    axis: str
    nelems_in: int
    nelems_out: int
    dtype: str
    phase: str = "backward"
    bucket: int | None = None
    layer: int | None = None
    peer: int | None = None
    root: int | None = None
    traffic: tuple[int, ...] | None = None
    transposed: bool = False
    microbatch: int | None = None

    def meets(self, other: Comm) -> bool:
        """Whether the other end of a call may say this: the same bytes of the same thing."""
        mine = (self.size_bytes, self.phase, self.layer, self.microbatch)
        same = mine == (other.size_bytes, other.phase, other.layer, other.microbatch)
        return same and (self.op == other.op) == (self.peer is None)

    @property
    def size_bytes(self) -> int:
        """Bytes that the bandwidth formulas speak of: the larger of input and output."""
        return max(self.nelems_in, self.nelems_out) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One thing that the CPU of a rank does.

    ``work_ns`` is the duration at full speed of a kernel, a copy or host work. ``after`` lists instructions
    whose device work must have ended before this one starts (or, for ``SYNC``, before the CPU goes on).
    ``slot`` marks host work that a fault may lengthen; ``load`` is the key of the all-to-all whose received rows
    decide how long the kernel takes.
    """

    kind: Kind
    name: str
    op: str = ""
    thread: int = 0
    stream: int = -1
    work_ns: int = 0
    step: int = -1
    after: tuple[int, ...] = ()
    comm: Comm | None = None
    grid: int = 0
    nbytes: int = 0
    slot: str = ""
    asynchronous: bool = False
    load: tuple[int, ...] | None = None


@dataclass(slots=True)
class Program:
    """Instructions of one pipeline stage for a whole run, and the number of steps in it."""

    steps: int
    instructions: list[Instruction] = field(default_factory=list)

    def launches(self) -> Iterable[tuple[int, Instruction]]:
        """Index and instruction of everything that puts work on the device."""
        return ((i, ins) for i, ins in enumerate(self.instructions) if ins.kind <= Kind.RECV)


class Builder:
    """Writes a program; keeps track of streams, waits, the current thread and step."""

    def __init__(self, steps: int) -> None:
        self.program = Program(steps)
        self.step = -1
        self.thread = 0
        self._last: dict[int, int] = {}
        self._waits: dict[int, set[int]] = {}

    def _add(self, instruction: Instruction) -> int:
        self.program.instructions.append(instruction)
        return len(self.program.instructions) - 1

    def begin(self, name: str, op: str = "user_annotation") -> None:
        """Open a range on the CPU; ``op`` is its category in the trace."""
        self._add(Instruction(Kind.BEGIN, name, op, self.thread, step=self.step))

    def end(self) -> None:
        """Close the innermost open range."""
        self._add(Instruction(Kind.END, "", thread=self.thread, step=self.step))

    def host(self, name: str, work_ns: int, *, slot: str = "", op: str = "cpu_op") -> None:
        """Work of the CPU alone; a range of that name where it lasts longer than 0 ns."""
        self._add(Instruction(Kind.HOST, name, op, self.thread, work_ns=work_ns, step=self.step, slot=slot))

    def wait(self, stream: int, on: int) -> None:
        """Let later work of ``stream`` wait for all that was launched on stream ``on`` so far."""
        if stream == on:
            return
        pending = self._waits.setdefault(stream, set())
        pending |= self._waits.get(on, set())
        if on in self._last:
            pending.add(self._last[on])

    def wait_for(self, stream: int, instruction: int) -> None:
        """Let later work of ``stream`` wait for one instruction (a recorded event)."""
        self._waits.setdefault(stream, set()).add(instruction)

    def compute(
        self,
        name: str,
        op: str,
        work_ns: int,
        *,
        stream: int = COMPUTE_STREAM,
        grid: int = 264,
        load: tuple[int, ...] | None = None,
    ) -> int:
        """Launch a compute kernel; returns the instruction's index."""
        return self._launch(
            Instruction(Kind.COMPUTE, name, op, self.thread, stream, work_ns, self.step, grid=grid, load=load)
        )

    def copy(self, name: str, op: str, work_ns: int, nbytes: int, *, stream: int = COMPUTE_STREAM) -> int:
        """Launch a copy; returns the instruction's index."""
        return self._launch(Instruction(Kind.COPY, name, op, self.thread, stream, work_ns, self.step, nbytes=nbytes))

    def communicate(self, comm: Comm, *, stream: int, asynchronous: bool = True) -> int:
        """Launch a collective, a send or a receive; returns the instruction's index."""
        kind = {"send": Kind.SEND, "recv": Kind.RECV}.get(comm.op, Kind.COLLECTIVE)
        return self._launch(
            Instruction(kind, comm.op, "", self.thread, stream, 0, self.step, comm=comm, asynchronous=asynchronous)
        )

    def sync(self, call: str, streams: Iterable[int] | None = None) -> None:
        """Block the CPU in runtime call ``call`` until ``streams`` (all when ``None``) have done their work."""
        wanted = self._last if streams is None else [s for s in streams if s in self._last]
        after = tuple(sorted(self._last[s] for s in wanted))
        self._add(Instruction(Kind.SYNC, call, thread=self.thread, step=self.step, after=after))

    def _launch(self, instruction: Instruction) -> int:
        stream = instruction.stream
        after = self._waits.pop(stream, None)
        if after:
            instruction = _with_after(instruction, tuple(sorted(after)))
        index = self._add(instruction)
        self._last[stream] = index
        return index


def _with_after(ins: Instruction, after: tuple[int, ...]) -> Instruction:
    return replace(ins, after=after)
