"""The part of the report that judges: strategy, late ranks, findings, bounds, verdict."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from msgspec import Meta

from commprof.report.contract.words import (
    Bottleneck,
    Bytes,
    Confidence,
    Count,
    FindingId,
    LateCause,
    LateKind,
    LateReason,
    Length,
    Ns,
    Operation,
    Severity,
    Share,
)

OrCause = Annotated[LateCause | None, Meta(description="another cause that this trace cannot tell from cause")]


class Difference(TypedDict):
    """Bytes that the formula does not hold, and what they are."""

    what: str
    bytes: int


class Part(TypedDict):
    """One part of a strategy: bytes that each rank sends, measured and by formula."""

    kind: str
    name: str | None
    degree: Count
    group_ids: list[int]
    formula: str | None
    expected_bytes: Bytes | None
    measured_bytes: Bytes | None
    assumed: str | None
    differences: list[Difference]


class Strategy(TypedDict):
    """The parallel strategy as the trace shows it."""

    name: str
    evidence: list[str]
    expected_bytes_per_step: Bytes | None
    measured_bytes_per_step: Bytes | None
    alternatives: dict[str, list[str]]
    per: str
    parts: list[Part]


class Straggler(TypedDict):
    """A rank, host, stage or replica that the others wait for."""

    rank: int | None
    host: str | None
    role: str | None
    kind: LateKind
    last_share: Share | None
    last: Count
    matched: Count
    members: list[int]
    steps: list[str]
    charged_ns_per_step: Length
    share_of_step: float | None
    cause: LateCause
    or_cause: OrCause
    evidence: list[Any]
    chain: list[int]


class Harmless(Straggler):
    """A rank that the others wait for, but without whom the run would not end earlier: it is not named as late."""

    why_not_named: str


class Reason(TypedDict):
    """What a late rank did before it came, as a share of how late it was."""

    what: LateReason
    share: Share


class Link(TypedDict):
    """``rank`` waited for ``waited_for`` in a call."""

    rank: int
    wait_ns: Length
    op: Operation
    group_id: Count | None
    match: Count
    waited_for: int
    did: list[Reason]


class WaitChain(TypedDict):
    """From the longest wait of the step in which late ranks cost most back to the rank where it began.

    ``lost_ns`` is what they cost every rank of the job in that step. Null where no such wait takes 2 % of the step.
    """

    step: str
    lost_ns: Length
    links: list[Link]
    root_rank: int
    cause: LateCause


class Evidence(TypedDict):
    """One measured value."""

    what: str
    value: int | float | str | None
    unit: str


class Threshold(TypedDict):
    """The limit that a finding exceeds, and where its default comes from."""

    value: float
    unit: str
    source: str


class Finding(TypedDict):
    """One cause of lost time, the largest first."""

    id: FindingId
    severity: Severity
    title: str
    charged_ns: Annotated[Length | None, Meta(description="exposed and idle time charged to this finding alone")]
    recoverable_ns: Annotated[
        Length | None, Meta(description="what a step would shrink by without the cause; may exceed charged_ns")
    ]
    share_of_step: float | None
    recoverable_share: float | None
    evidence: list[Evidence]
    advice: list[str]
    threshold: Threshold
    confidence: Confidence
    cause: str | None
    or_cause: OrCause
    ranks: list[int]
    steps: list[str]
    group_id: Count | None
    calls: Count | None
    structural: bool


class Charged(TypedDict):
    """One part of the step: compute, a finding (by its index), or what nothing explains."""

    name: str
    ns: Length
    share: float
    finding: Count | None
    exposed_ns: Length
    idle_ns: Length
    copy_ns: Length


class Accounting(TypedDict):
    """The step of the rank that lost the most, summed over ``steps`` steps: the parts add up to ``duration_ns``."""

    steps: Count
    duration_ns: Length
    ranks: list[int]
    overlap_ns: Length
    parts: list[Charged]


class Bounds(TypedDict):
    """Step of the rank that loses the most, and what it could at best become."""

    step_ns: Length
    all_hidden_ns: Length | None
    no_waiting_ns: Length | None
    without_top_finding_ns: Length | None


class WhatIf(TypedDict):
    """A replayed step with one thing changed; ``slowdown`` is how many times as long it takes without the change."""

    change: str
    step_ns: Length
    gain_ns: Ns
    slowdown: float
    replay_error: float


class Check(TypedDict):
    """One limit of ``commprof check``; ``ok`` is null where this run cannot answer."""

    limit: str
    key: str
    sign: str
    threshold: float
    value: float | None
    ok: bool | None


class Verdict(TypedDict):
    """The answer, shares of step time (or of the window)."""

    bottleneck: Bottleneck
    summary: str
    exposed_comm_share: float | None
    recoverable_share: float | None
    confidence: str
    gain: str | None
    where: str | None
