"""What is found out about where a rank communicates: one frozen type for each table of the report.

Times are nanoseconds on the rank's own clock, ``None`` where nothing tells. ``step`` is an index into the names of the
rank's steps (-1: none), ``call`` a row of its calls.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket in one backward pass; times in nanoseconds on the rank's clock, ``None`` where nothing tells.

    ``call`` is a row of the rank's calls and ``series`` numbers the backward passes of the capture.
    """

    call: int
    step: int
    series: int
    index: int
    size: int | None
    parameters: tuple[str, ...] | None
    ready: int | None
    launched: int | None
    start: int
    end: int
    exposed: int
    queued: int | None
    lag: int | None
    start_delay: int | None
    tail: int | None
    layout: str
    backward_start: int | None
    backward_end: int | None


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of one cause in one window; ``op`` is the operator or call that has the most of it."""

    device: int
    step: int
    cause: str
    ns: int
    count: int
    op: str | None


@dataclass(frozen=True, slots=True)
class Unit:
    """One gather or reduction of a unit of parameters (FSDP, ZeRO) in one step.

    ``issued`` is when the CPU enqueued it, ``needed`` when the compute that waits for it could have started:
    ``slack`` is how long before that it ended, negative where compute had to wait.
    """

    call: int
    step: int
    module: str | None
    op: str
    direction: str
    issued: int | None
    start: int
    end: int
    needed: int | None
    slack: int | None
    exposed: int


@dataclass(frozen=True, slots=True)
class Contention:
    """Kernels of one name and grid alone and beside communication, summed over the steps of one rank.

    ``cost`` is by how much those beside lasted longer than as many alone.
    """

    kernel: str
    blocks: int
    calls_alone: int
    ns_alone: int
    calls_beside: int
    ns_beside: int
    cost: int


@dataclass(frozen=True, slots=True)
class BucketCopies:
    """Copies of gradients into buckets or back in one window: how many, how long, and how long beside nothing else."""

    device: int
    step: int
    count: int
    ns: int
    exposed: int
