"""What crosses from diagnosis to report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one sentence.

    ``bottleneck`` is a word of the report contract. ``exposed_comm_share`` and ``recoverable_share`` are of step time
    (of the window where there are no steps), ``None`` if they cannot be stated. ``gain`` and ``where`` are sentences.
    """

    bottleneck: str
    summary: str
    exposed_comm_share: float | None
    recoverable_share: float | None
    gain: str | None = None
    where: str | None = None
    confidence: str = "measured"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything judged about one analysis."""

    verdict: Verdict
