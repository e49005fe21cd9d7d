"""What a manifest says about the run: step times, clocks, collectives that the trace names too little of."""

from __future__ import annotations

from typing import Literal

import msgspec


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Every step of the run by the hook's own clock, the first being ``first``.

    ``start_ns`` are Unix nanoseconds, ``duration_ns`` come from a monotonic clock; equal length. Time spent
    inside the hook belongs to no step.
    """

    first: int = 0
    start_ns: tuple[int, ...] = ()
    duration_ns: tuple[int, ...] = ()


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of all stamps, and the Unix nanoseconds at which recording began and ended (null: never)."""

    name: str = "CLOCK_REALTIME"
    start_ns: int | None = None
    stop_ns: int | None = None


class ClockSample(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of rank ``reference`` against this rank's, by a ping-pong before or after the loop.

    At ``at_ns`` (this rank's Unix clock) ``offset_ns`` added to a stamp of this rank gives the reference's
    time, right to half of ``round_trip_ns``, the shortest of ``rounds``. Ranks of one host share a clock,
    so only one rank of each host samples.
    """

    moment: Literal["before", "after"]
    reference: int
    at_ns: int
    offset_ns: int
    round_trip_ns: int
    rounds: int


class CoreWait(msgspec.Struct, frozen=True, kw_only=True):
    """``ns`` of ``of_ns`` the training thread was ready to run and had no core, while it was recorded."""

    ns: int
    of_ns: int


class GraphCall(msgspec.Struct, frozen=True, kw_only=True):
    """One collective noted while a CUDA graph was captured; ``op`` as in the report, ``group`` as in ``groups``.

    ``size_bytes`` is the report's ``S``; ``peer`` (global rank) of point-to-point calls, ``root`` of rooted ones.
    """

    op: str
    group: str | None = None
    group_size: int | None = None
    dtype: str | None = None
    size_bytes: int | None = None
    peer: int | None = None
    root: int | None = None


class CudaGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one captured CUDA graph, in order of their capture."""

    captured_ns: int
    calls: tuple[GraphCall, ...] = ()


class SlowStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that took ``slow_step`` times the running median; the step after it was recorded if ``recorded`` names it.

    ``folder`` is the subfolder with that recording.
    """

    step: int
    duration_ns: int
    median_ns: int
    recorded: str | None = None
    folder: str | None = None


class FlightEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One collective of the window from PyTorch's Flight Recorder: gloo traces carry no sequence number.

    ``name`` is the recorder's, such as ``gloo:all_reduce``; ``created_ns`` (Unix) lies inside the ``c10d::``
    operator that launched it.
    """

    group: str
    seq: int
    name: str
    created_ns: int
    is_p2p: bool = False
    op_id: int | None = None
    thread: str | None = None
    input_sizes: tuple[tuple[int, ...], ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: tuple[tuple[int, ...], ...] = ()
    output_dtypes: tuple[str, ...] = ()
