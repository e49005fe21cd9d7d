"""The part of the report about calls, groups and where in the step they stand."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from commprof.report.contract.words import (
    By,
    Bytes,
    Cause,
    Count,
    Direction,
    Flag,
    Gbps,
    IdleCause,
    LastBy,
    LayoutKind,
    Length,
    Members,
    Ns,
    Operation,
    Phase,
    Role,
    Share,
    Source,
)


class Partner(TypedDict):
    """One of the point-to-point calls of a batch."""

    peer: int | None
    sent_bytes: Bytes | None
    received_bytes: Bytes | None


class Splits(TypedDict):
    """Bytes to and from each member of the group, in its order."""

    sent_bytes: list[Bytes] | None
    received_bytes: list[Bytes] | None


class Collective(TypedDict):
    """One call on one rank; ``match`` is the same for its rows on all ranks."""

    rank: int
    device: int
    step: str | None
    op: Operation
    group: str | None
    group_id: Count | None
    group_size: Count | None
    seq: int | None
    dtype: str | None
    size_bytes: Bytes | None
    start_ns: Ns
    duration_ns: Annotated[int, Meta(ge=0, description="nanoseconds, the union of its kernels")]
    exposed_ns: Length
    sole_ns: Length
    touched_ns: Length
    hidden_ns: Length
    exposed_by_step: dict[str, Length]
    wait_ns: Length | None
    transfer_ns: Length | None
    exposed_wait_ns: Length | None
    exposed_transfer_ns: Length | None
    own_ns: Length | None
    skew_ns: Length | None
    end_skew_ns: Length | None
    algbw_gbps: Gbps | None
    busbw_gbps: Gbps | None
    busbw_at_least_gbps: Gbps | None
    stream: int
    kind_source: Source
    bucket: Count | None
    phase: Phase | None
    module: str | None
    hidden_by: str | None
    flag: Flag | None
    cause: Cause | None
    cause_op: str | None
    on_compute_stream: bool
    peer: int | None
    root: int | None
    kernels: Count
    channels: Count | None
    copy_engine: bool
    fused: bool
    launched_ns: Ns | None
    match: Count | None
    members_missing: Count | None
    bound: Annotated[bool, Meta(description="wait and transfer are bounds: members are missing")]
    last_rank: int | None
    last_by: LastBy | None
    sent_bytes: Bytes | None
    received_bytes: Bytes | None
    unequal_splits: bool | None
    splits: Splits | None
    partners: list[Partner] | None
    in_graph: bool


class Group(TypedDict):
    """One process group and operation, over the whole capture and all ranks."""

    group: str | None
    group_id: Count | None
    description: str | None
    ranks: list[int] | None
    group_size: Count | None
    members: Members
    op: Operation
    role: Role
    role_evidence: list[str]
    crosses_hosts: bool | None
    calls: Count
    calls_without_size: Count
    bytes: Bytes
    comm_ns: Length
    overlap_ns: Length
    exposed_ns: Length
    exposed_host_ns: Length | None
    exposed_wait_ns: Length | None
    exposed_transfer_ns: Length | None
    exposed_unknown_ns: Length | None
    wait_ns: Length | None
    transfer_ns: Length | None
    busbw_gbps_median: Gbps | None
    busbw_gbps_best: Gbps | None
    clean_calls: Count
    contended: bool
    alpha_ns: float | None
    beta_gbps: Gbps | None
    fit_error: float | None
    fit: dict[str, Any] | None
    peak_gbps: Gbps | None
    peak_high_gbps: Gbps | None
    peak_source: str | None
    efficiency: float | None
    compute_to_comm: float | None
    compute_to_comm_at: dict[str, float] | None


class Bucket(TypedDict):
    """One gradient bucket of DDP on one rank, in one backward pass."""

    rank: int
    device: int
    step: str | None
    series: Count
    index: Count
    group_id: Count | None
    op: Operation
    size_bytes: Bytes | None
    parameters: list[str] | None
    ready_ns: Ns | None
    launched_ns: Ns | None
    start_ns: Ns
    end_ns: Ns
    exposed_ns: Length
    queued_ns: Length | None
    lag_ns: Ns | None
    start_delay_ns: Ns | None
    tail: bool
    tail_ns: Length | None
    layout: LayoutKind
    backward_start_ns: Ns | None
    backward_end_ns: Ns | None


class Layout(TypedDict):
    """One choice of bucket sizes and what it is predicted to give, per step."""

    first_bucket_bytes: Bytes
    bucket_cap_bytes: Bytes
    buckets: Count
    tail_ns: Length
    comm_ns: Length
    step_ns: Length | None


class BucketAdvice(TypedDict):
    """Predicted tail of other bucket sizes of one group; ``advised`` is null where none is worth a change."""

    group_id: Count
    op: Operation
    size_bytes: Bytes
    backward_ns: Length
    step_ns: Length | None
    measured_tail_ns: Ns
    current: Layout
    advised: Layout | None
    gain_ns: Length
    extrapolated: bool
    layouts: list[Layout]


class TensorBlock(TypedDict):
    """One block of tensor parallelism: its collectives over all steps and ranks."""

    group_id: Count | None
    direction: Direction
    index: Count
    ops: list[Operation]
    count: Count
    comm_ns: Length
    exposed_ns: Length
    structural_ns: Length


class Unit(TypedDict):
    """One gather or reduction of a sharded layer in one step of one rank."""

    rank: int
    group_id: Count | None
    step: str | None
    module: str | None
    op: Operation
    direction: Direction | None
    issued_ns: Ns | None
    start_ns: Ns
    end_ns: Ns
    needed_ns: Ns | None
    slack_ns: Ns | None
    exposed_ns: Length
    cause: Cause | None


class Exposure(TypedDict):
    """Exposed time of one window by one property; the rows of one ``by`` add up to its ``exposed_comm_ns``."""

    rank: int
    device: int
    step: str | None
    by: By
    name: str | None
    group_id: Count | None
    calls: Count
    comm_ns: Length
    hidden_ns: Length
    exposed_ns: Length


class Idle(TypedDict):
    """Idle time of one window by cause; the rows add up to its ``idle_ns``."""

    rank: int
    device: int
    step: str | None
    cause: IdleCause
    idle_ns: Length
    count: Count
    op: str | None


class Contention(TypedDict):
    """Kernels of one name that run slower beside communication than alone."""

    kernel: str
    blocks: Count | None
    calls_alone: Count
    mean_alone_ns: Length
    calls_beside: Count
    mean_beside_ns: Length
    factor: float | None
    cost_ns_per_step: Ns


class Matching(TypedDict):
    """How many calls were found again on the other ranks, and by which clocks."""

    matched: Count
    unmatched: Count
    unmatched_by_reason: dict[str, Count]
    unmatched_calls: list[dict[str, Any]]
    clock_offsets_ns: dict[str, Ns | None]
    clock_drifts_ppb: dict[str, int | None]
    clock_uncertainty_ns: Length | None
    message_clock_offsets_ns: dict[str, Ns] | None
    message_clock_uncertainty_ns: Length | None
    group_assumed: bool
    last_by: LastBy | None


class Waits(TypedDict):
    """One rank in one step: how long it waited, and what it cost the others."""

    rank: int
    step: str | None
    wait_ns: Length
    charged_ns: Length
    last: Count
    matched: Count


class Imbalance(TypedDict):
    """One all-to-all with unequal amounts."""

    match: Count | None
    group_id: Count | None
    step: str | None
    sent_bytes: dict[str, Bytes | None]
    received_bytes: dict[str, Bytes | None]
    members: Annotated[list[int] | None, Meta(description="global ranks, the order of rows and columns of per_peer")]
    per_peer: list[list[Bytes]] | None
    per_peer_missing: Annotated[str | None, Meta(description="why per_peer is null")]
    ratio: float | None
    ratio_received: float | None


class Bubble(TypedDict):
    """The bubble of one stage in one step; ``share`` is of the pipeline's part of the step."""

    stage: Count
    step: str | None
    idle_ns: Length
    receive_wait_ns: Length | None
    part_ns: Length
    share: Share | None


class Pipeline(TypedDict):
    """Pipeline stages and their bubbles."""

    stages: Count
    microbatches: Count | None
    chunks: Count | None
    boundary: list[int] | None
    ideal_share: Share | None
    stage_imbalance_ns: Length | None
    longest_stage: Count | None
    longest_stage_excess: float | None
    longest_stage_ranks: list[int] | None
    bubble: list[Bubble]
