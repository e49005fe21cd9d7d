"""The part of the report that judges: strategy, late ranks, findings, bounds, verdict."""

from __future__ import annotations

from typing import Any, TypedDict

from commprof.report.contract.words import (
    Bottleneck,
    Bytes,
    Confidence,
    Count,
    FindingId,
    LateCause,
    LateKind,
    Length,
    Ns,
    Severity,
    Share,
)


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
    evidence: list[Any]
    chain: list[int]


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
    charged_ns: Length | None
    recoverable_ns: Length | None
    share_of_step: float | None
    evidence: list[Evidence]
    advice: list[str]
    threshold: Threshold
    confidence: Confidence
    cause: str | None
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
    """Step time, and what it could at best become."""

    step_ns: Length
    all_hidden_ns: Length | None
    no_waiting_ns: Length | None
    without_top_finding_ns: Length | None


class WhatIf(TypedDict):
    """A replayed step with one thing changed."""

    change: str
    step_ns: Length
    gain_ns: Ns
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
