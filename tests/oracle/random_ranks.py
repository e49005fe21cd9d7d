"""Random timelines of one rank, and the Kineto trace that shows each.

Launches are strictly ordered and no kernel starts before its launch, as on a real machine. The last work of a
linked rank is a linked compute kernel, so that "the next compute" exists at every instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from hypothesis import strategies as st

from tests.builders.kineto import BACKWARD_THREAD, MAIN_THREAD, SEND_RECV, Trace, micros
from tests.oracle.model import Blocking, Launch, Rank, Step, Work

Draw = Callable[[st.SearchStrategy], int]
STREAMS = {"compute": [7, 7, 9, 3], "comm": [20, 21, 22, 7], "copy": [30, 31]}
THREADS = [MAIN_THREAD, BACKWARD_THREAD]
BLOCKING_CALLS = ["cudaStreamSynchronize", "cudaDeviceSynchronize", "hipEventSynchronize", "cudaMemcpy"]
LAUNCH_NS = 1  # how long a launching call takes


@dataclass
class _Cursor:
    """Where the CPU and each stream have got to."""

    cpu: int
    streams: dict[int, int]

    def place(self, stream: int, earliest: int, gap: int, length: int) -> tuple[int, int]:
        start = max(earliest, self.streams.get(stream, 0)) + gap
        self.streams[stream] = start + length
        return start, start + length


@st.composite
def linked_ranks(draw: Draw) -> Rank:
    """A rank with launch links: steps, holes, side streams, several kernels per call, unlinked work."""
    rank, cursor = Rank(), _Cursor(cpu=0, streams={})
    kinds = ["compute", "compute", "compute", "comm", "comm", "copy"]
    step_start: int | None = None
    calls = number = 0
    for _ in range(draw(st.integers(3, 16))):
        if draw(st.integers(0, 3)) == 0:  # a new step begins; the old mark may reach into the new one
            cursor.cpu += draw(st.integers(1, 3))
            if step_start is not None:
                end = cursor.cpu + draw(st.integers(-1, 1))
                rank.steps.append(Step(f"ProfilerStep#{number}", step_start, max(end, step_start + 1)))
            number += draw(st.integers(1, 2))
            step_start = cursor.cpu
        if draw(st.integers(0, 5)) == 0:
            thread, length = draw(st.sampled_from(THREADS)), draw(st.integers(1, 4))
            rank.blocking.append(Blocking(thread, cursor.cpu, cursor.cpu + length))
            cursor.cpu += length
        kind = draw(st.sampled_from(kinds))
        stream = draw(st.sampled_from(STREAMS[kind]))
        linked, thread = draw(st.integers(0, 4)) > 0, draw(st.sampled_from(THREADS))
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3])) if kind == "comm" else 1):
            cursor.cpu += draw(st.integers(1, 4))
            launch = Launch(cursor.cpu, thread)
            start, end = cursor.place(stream, cursor.cpu, draw(st.integers(0, 5)), draw(st.integers(1, 9)))
            call = calls if kind == "comm" else None
            rank.work.append(Work(kind, start, end, stream, launch if linked else None, call))
            if linked and kind == "copy":
                rank.blocking.append(Blocking(launch.thread, launch.time, launch.time + LAUNCH_NS))
            cursor.cpu += LAUNCH_NS
        calls += kind == "comm"
    if step_start is not None:
        rank.steps.append(Step(f"ProfilerStep#{number}", step_start, cursor.cpu + 1 + draw(st.integers(0, 9))))
    cursor.cpu += 1
    launch = Launch(cursor.cpu, MAIN_THREAD)
    last = max(cursor.cpu, *cursor.streams.values()) + draw(st.integers(0, 3))
    rank.work.append(Work("compute", last, last + draw(st.integers(1, 3)), 7, launch))
    return rank


@st.composite
def unlinked_ranks(draw: Draw) -> Rank:
    """A rank without launch events: the windows are the marks, wherever they fall on the device."""
    rank, cursor = Rank(), _Cursor(cpu=0, streams={})
    kinds = ["compute", "comm", "comm", "copy"]
    for call in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(kinds)) if call else "comm"
        stream = draw(st.sampled_from(STREAMS[kind]))
        for _ in range(draw(st.sampled_from([1, 1, 2])) if kind == "comm" else 1):
            start, end = cursor.place(stream, 1, draw(st.integers(0, 6)), draw(st.integers(1, 12)))
            rank.work.append(Work(kind, start, end, stream, None, call if kind == "comm" else None))
    at = 0
    for number in range(draw(st.integers(0, 4))):
        start = at + draw(st.integers(0, 8))
        at = start + draw(st.integers(1, 20))
        overrun = draw(st.integers(0, 1))  # marks may overlap by a little
        rank.steps.append(Step(f"ProfilerStep#{number}", start, at + overrun))
    return rank


def us(ns: int) -> Decimal:
    """Nanoseconds as exact µs."""
    return Decimal(ns) / 1000


def trace_of(rank: Rank, offset_ns: int = 0, *, device: int = 0, first_id: int = 1) -> Trace:
    """The Kineto trace that shows this rank's timeline, moved by ``offset_ns``."""
    trace = Trace(rank=0, world_size=2, device=device, first_id=first_id)
    for step in rank.steps:
        number = int(step.name.removeprefix("ProfilerStep#"))
        trace.step(number, us(step.start), us(step.end))
    operators: dict[int, dict] = {}
    blocked = {(b.thread, b.start) for b in rank.blocking}
    for work in rank.work:
        more: dict = {"stream": work.stream}
        if work.launch is not None:
            more |= {"launch": us(work.launch.time), "thread": work.launch.thread, "call_us": us(LAUNCH_NS)}
            blocked.discard((work.launch.thread, work.launch.time))
        if work.call is not None:
            # One operator per collective: kernels that carry its id belong together.
            operator = operators.get(work.call) or trace.comms_op("all_to_all", 0, 0, tid=99)
            operators[work.call] = operator
            trace.collective("all_to_all", us(work.start), us(work.end), name=SEND_RECV, under=operator, **more)
        elif work.kind == "copy":
            trace.copy(us(work.start), us(work.end), **more)
        else:
            trace.gemm(us(work.start), us(work.end), **more)
    held = [b for b in rank.blocking if (b.thread, b.start) in blocked]
    for place, call in enumerate(held):
        name = BLOCKING_CALLS[place % len(BLOCKING_CALLS)]
        trace.runtime(name, us(call.start), us(call.end), tid=call.thread)
    _give_operators_a_span(trace, rank, operators)
    trace.shift(offset_ns)
    return trace


def _give_operators_a_span(trace: Trace, rank: Rank, operators: dict[int, dict]) -> None:
    """Let each ``record_param_comms`` enclose the launches of its kernels, or stand alone without them."""
    for call, operator in operators.items():
        launches = [w.launch for w in rank.work if w.call == call and w.launch is not None]
        begin = min((launch.time for launch in launches), default=0)
        end = max((launch.time + LAUNCH_NS for launch in launches), default=1)
        operator["ts"], operator["dur"] = micros(begin), micros(end - begin)
        operator["tid"] = launches[0].thread if launches else 99
