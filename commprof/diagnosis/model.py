"""What crosses from diagnosis to report."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.analysis.model import NoteCode

SEVERITIES = ("high", "medium", "low", "info")
"""From most to least; an ``info`` entry says something worth knowing and is no bottleneck."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in one sentence.

    ``bottleneck`` is a word of the report contract. ``exposed_comm_share`` and ``recoverable_share`` are of step time
    (of the window where there are no steps), ``None`` if they cannot be stated; the second is the share that ``gain``
    states. ``gain`` and ``where`` are sentences.
    """

    bottleneck: str
    summary: str
    exposed_comm_share: float | None
    recoverable_share: float | None
    gain: str | None = None
    where: str | None = None
    confidence: str = "measured"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured value of a finding; ``unit`` is ``ns``, ``bytes``, ``GB/s``, ``share of ...`` or a word."""

    what: str
    value: float | str | None
    unit: str


@dataclass(frozen=True, slots=True)
class Threshold:
    """The limit that a finding exceeds, and where its default comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of lost time (``spec``: section 11).

    ``charged_ns`` and ``recoverable_ns`` are per step, means over the reference ranks of the steps; ``None`` where no
    time can be stated. ``share_of_step`` is the charge (of contention: its cost) as a share of step time,
    ``recoverable_share`` what would come back as one; :attr:`stated_share` is the one that sentences give.
    ``or_cause`` is another cause that the trace cannot tell from ``cause``. ``confidence`` is ``measured``, ``bound``
    or ``estimate``. ``structural`` findings are in the program, not a fault.
    """

    id: str
    severity: str
    title: str
    charged_ns: int | None
    recoverable_ns: int | None
    share_of_step: float | None
    evidence: tuple[Evidence, ...]
    advice: tuple[str, ...]
    threshold: Threshold
    confidence: str
    cause: str | None = None
    ranks: tuple[int, ...] = ()
    steps: tuple[str, ...] = ()
    group_id: int | None = None
    calls: int | None = None
    structural: bool = False
    recoverable_share: float | None = None
    or_cause: str | None = None

    @property
    def stated_share(self) -> float | None:
        """Share of the step of what a headline states: what would come back where that is known, else the charge."""
        return self.share_of_step if self.recoverable_share is None else self.recoverable_share


@dataclass(frozen=True, slots=True)
class Share:
    """One part of the step: ``name`` is ``compute``, the id of a finding, ``unexplained-exposed``,
    ``unexplained-idle`` or ``exposed-copy``; ``finding`` is the index of the finding, if it is one.

    ``exposed + idle + copy == ns`` for every part but compute.
    """

    name: str
    ns: int
    finding: int | None = None
    exposed: int = 0
    idle: int = 0
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Accounting:
    """The step of the reference rank, summed over ``steps`` steps: ``parts`` add up to ``duration_ns`` exactly.

    ``overlap_ns`` of the part ``compute`` hide communication.
    """

    steps: int
    duration_ns: int
    overlap_ns: int
    ranks: tuple[int, ...]
    parts: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Step of the rank that loses the most, and what it would be at least: lower bounds, ``None`` where not known."""

    step_ns: int
    all_hidden_ns: int | None
    no_waiting_ns: int | None
    without_top_finding_ns: int | None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything judged about one analysis; ``findings`` the largest first, entries of severity ``info`` last.

    ``waiting_ns`` is the exposed time in which ranks waited for late ones, summed over the ranks and steps that means
    are taken over; ``None`` where waiting is not known.
    """

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    accounting: Accounting | None = None
    bounds: Bounds | None = None
    waiting_ns: int | None = None
    notes: tuple[tuple[NoteCode, str], ...] = ()
    """Codes and messages for the notes of the report."""
