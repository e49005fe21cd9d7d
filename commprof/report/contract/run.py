"""The part of the report that tells which run it is, and the split of its steps."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from commprof.report.contract.words import Bytes, Count, Length, NoteCode, Ns, RankSource, Share, Windows


class Repaired(TypedDict):
    """Events that were mended, by kind of fault."""

    invalid_escape: Count
    control_character: Count
    raw_quote: Count
    non_finite: Count
    encoding: Count
    duplicate_key: Count
    clipped: Count


class Skipped(TypedDict):
    """Events that were left out, by reason."""

    bad_event: Count
    no_duration: Count
    negative_duration: Count
    non_finite: Count
    zero_timestamp: Count
    bad_metadata: Count


class File(TypedDict):
    """One trace file."""

    path: str
    rank: int
    rank_source: RankSource
    bytes: Bytes
    events: Count
    device_events: Count
    truncated: bool
    host: str | None
    events_ignored: Count
    repaired: Repaired
    skipped: Skipped


class Ignored(TypedDict):
    """A file of the input that is no trace."""

    path: str
    reason: str


class Capture(TypedDict):
    """What the capture wrote about the run; null or empty for other traces.

    ``core_wait`` is for each rank the share of the recording for which its training thread was ready to run and had
    no core.
    """

    profiled_step_ns: Length | None
    unprofiled_step_ns: Length | None
    export_ns: Length | None
    environment: dict[str, Any]
    cores: dict[str, Any]
    core_wait: dict[str, Any]


class Hardware(TypedDict):
    """The machine, and how it is known."""

    name: str | None
    source: str | None


class Input(TypedDict):
    """What was read."""

    path: str
    files: list[File]
    ignored: list[Ignored]
    capture: Capture
    hardware: Hardware
    world_size: Count | None
    ranks: list[int]
    missing_ranks: list[int]
    backend: str | None
    devices: list[str]


class Lengths(TypedDict):
    """compute + exposed_comm + exposed_copy + idle == duration."""

    duration_ns: Length
    compute_ns: Length
    fused_ns: Annotated[int, Meta(ge=0, description="nanoseconds, a part of compute_ns")]
    fused_wait_ns: Length | None
    comm_ns: Length
    overlap_ns: Length
    overlap_comm_copies_ns: Length
    overlap_thin_ns: Length | None
    exposed_comm_ns: Length
    copy_ns: Length
    exposed_copy_ns: Length
    idle_ns: Length
    overlap_ratio: Annotated[float, Meta(description="overlap / comm")] | None
    comm_share: Annotated[float, Meta(description="exposed_comm / duration")] | None
    exposed_host_ns: Length | None
    exposed_blocking_ns: Length | None
    idle_host_ns: Length | None


class Split(Lengths):
    """The split of one window; times are relative to the earliest device start over all ranks."""

    start_ns: Ns
    end_ns: Ns


class Step(Split):
    """One step window; a trace without step marks has one, named ``window``."""

    name: str
    incomplete: bool
    open: bool


class StepWithoutWindow(TypedDict):
    """A step that launched nothing that a window could start with."""

    name: str
    reason: str


class Mean(Lengths):
    """Means over the closed steps."""

    steps: Count


class Rank(TypedDict):
    """One device of one rank."""

    rank: int
    device: int
    windows: Windows
    compute_stream: int | None
    device_sms: Annotated[Count | None, Meta(description="multiprocessors of the device")]
    micro_steps: Annotated[int, Meta(description="step marks in an optimizer step")] | None
    whole: Split
    steps: list[Step]
    steps_without_window: list[StepWithoutWindow]
    mean: Mean | None


class Overall(Mean):
    """Means over all ranks and steps together."""

    ranks: Count
    exposed_wait_ns: Length | None
    wait_share: Annotated[float, Meta(description="exposed_wait / duration")] | None


class PerStep(TypedDict):
    """One step as a mean over ranks; ``rows`` is how many ranks and devices that are."""

    steps: list[str]
    rows: Count
    duration_ns: Length
    compute_ns: Length
    comm_ns: Length
    overlap_ns: Length
    exposed_comm_ns: Length
    exposed_host_ns: Length | None
    exposed_copy_ns: Length
    idle_ns: Length
    idle_host_ns: Length | None


class KernelName(TypedDict):
    """A kernel that no rule names, and its share of kernel time."""

    name: str
    share: Share


class PossibleComm(TypedDict):
    """Peer copies that may be communication."""

    calls: Count
    duration_ns: Length


class Coverage(TypedDict):
    """How much of the device work was understood."""

    unrecognised_kernel_share: Share | None
    unclassified: list[KernelName]
    comm_without_metadata: Count
    device_events: Count
    linked_device_events: Count
    fused_calls: Count
    unknown_dtype: Count
    unknown_collective: Count
    group_unknown: Count
    clamped_launches: Count
    graph_kernels: Count
    possible_comm: PossibleComm


class Note(TypedDict):
    """Something a reader must know about the numbers."""

    code: NoteCode
    message: str
