"""What crosses from analysis to diagnosis and report: numbers only, exact integers, times on each rank's own clock.

``None`` means "cannot be measured from this trace", never zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from commprof.analysis.attribution import Pieces
from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.named_spans import SpanTimes
from commprof.analysis.places import CallPlaces, PieceCauses
from commprof.analysis.rollup import ExposureRow
from commprof.analysis.where_model import Bucket, BucketCopies, Contention, IdleTime, Unit
from commprof.intervals import Int64Array
from commprof.manifest import Manifest
from commprof.trace.model import Calls, FileFacts, GroupFacts

if TYPE_CHECKING:
    from commprof.analysis.bandwidth import GroupBandwidth
    from commprof.analysis.behaviour import Behaviour
    from commprof.analysis.bucket_advice import BucketAdvice
    from commprof.analysis.charges import Charges
    from commprof.analysis.clocks import Clocks
    from commprof.analysis.critical_path import CriticalPath
    from commprof.analysis.hardware_table import Hardware
    from commprof.analysis.host_delays import HostDelays
    from commprof.analysis.imbalance import Imbalance
    from commprof.analysis.matching import Matching
    from commprof.analysis.pipeline import Pipeline
    from commprof.analysis.roles import Role
    from commprof.analysis.stage_facts import StageFacts
    from commprof.analysis.stragglers import Straggler
    from commprof.analysis.strategy import Strategy
    from commprof.analysis.trail import Trail
    from commprof.analysis.wait_chain import WaitChain
    from commprof.analysis.waiting import CallWaits, MatchTimes
    from commprof.analysis.what_if import WhatIf


@dataclass(frozen=True, slots=True)
class Split:
    """The exact split of one window (``compute + exposed_comm + exposed_copy + idle == duration``), nanoseconds.

    Start and end are absolute on the rank's clock. The ``*_host`` parts and ``exposed_blocking`` are ``None`` where
    nothing links device work to its launch, ``overlap_thin`` where the size of the device is not known.
    """

    start: int
    end: int
    compute: int
    fused: int
    comm: int
    overlap: int
    overlap_comm_copies: int
    overlap_thin: int | None
    exposed_comm: int
    copy: int
    exposed_copy: int
    idle: int
    exposed_host: int | None
    idle_host: int | None
    fused_wait: int | None = None
    """Waiting for other ranks inside ``fused``; ``None`` where other ranks do not tell."""

    @property
    def duration(self) -> int:
        """Length of the window."""
        return self.end - self.start

    @property
    def overlap_ratio(self) -> float | None:
        """Share of communication time hidden behind compute; ``None`` without communication."""
        return self.overlap / self.comm if self.comm else None

    @property
    def comm_share(self) -> float | None:
        """Share of the window in which communication is exposed; ``None`` for an empty window."""
        return self.exposed_comm / self.duration if self.duration else None

    @property
    def exposed_blocking(self) -> int | None:
        """Exposed communication that the host did not cause."""
        return None if self.exposed_host is None else self.exposed_comm - self.exposed_host


@dataclass(frozen=True, slots=True)
class Step:
    """One step window: ``open`` if nothing tells where it ends, ``incomplete`` if the capture cut its kernels.
    ``compute_end`` is the end of its last compute on the rank's clock, ``None`` without any."""

    name: str
    split: Split
    open: bool = False
    incomplete: bool = False
    compute_end: int | None = None


@dataclass(slots=True, eq=False)
class DeviceAnalysis:
    """One device of one rank: split of every window, and the share of each call in its exposed time.

    ``windows`` is ``launch``, ``annotation`` or ``none``. ``marks`` are the indices of the step
    marks that belong to ``steps``. ``compute_stream`` is the main compute stream.
    """

    device: int
    windows: str
    whole: Split
    steps: list[Step]
    marks: list[int]
    without_window: list[tuple[str, str]]
    compute_stream: int | None = None


@dataclass(slots=True, eq=False)
class CallShares:
    """Exposed time of the calls of one rank, all of shape ``(calls,)`` unless said otherwise, nanoseconds.

    ``sole <= exposed <= touched`` and ``touched + hidden == duration``. ``step`` is the index of the label in
    ``step_names`` (-1: none). The parts per window are sparse: call ``part_call[i]`` has ``part_ns[i]`` exposed in
    step ``part_step[i]``. ``pieces`` are the stretches that all of these are sums of; there ``window`` is an index into
    ``step_names`` too.
    """

    exposed: Int64Array
    sole: Int64Array
    touched: Int64Array
    step: Int64Array
    part_call: Int64Array
    part_step: Int64Array
    part_ns: Int64Array
    step_names: list[str]
    pieces: Pieces


@dataclass(slots=True)
class Coverage:
    """How much of a rank's device work was understood."""

    device_events: int = 0
    linked_device_events: int = 0
    comm_without_metadata: int = 0
    unknown_dtype: int = 0
    unknown_collective: int = 0
    group_unknown: int = 0
    fused_calls: int = 0
    clamped_launches: int = 0
    graph_kernels: int = 0
    graph_calls_noted: int = 0
    graph_calls_unnamed: int = 0
    possible_comm_calls: int = 0
    possible_comm_ns: int = 0
    kernel_ns: int = 0
    unnamed_ns: dict[str, int] = field(default_factory=dict)
    limits: frozenset[str] = frozenset()
    gloo_calls: int = 0
    gloo_ns: int = 0


@dataclass(slots=True, eq=False)
class RankAnalysis:
    """Everything measured on one rank."""

    file: FileFacts
    base_ns: int
    first_ns: int
    devices: list[DeviceAnalysis]
    calls: Calls
    shares: CallShares
    coverage: Coverage
    timeline: list[dict[str, Any]]
    on_cpu: bool
    world_size: int | None
    backend: str | None
    device_name: str | None
    patterns_used: set[str]
    warnings: list[str]
    exposure: list[ExposureRow]
    optimizer_marks: list[int]
    """Indices of the step marks in which an optimizer stepped."""
    places: CallPlaces
    causes: PieceCauses
    frameworks: FrameworkMarks = field(default_factory=FrameworkMarks)
    spans: dict[str, SpanTimes] = field(default_factory=dict)
    """Ranges of the program by kind, see :mod:`commprof.analysis.named_spans`."""
    delays: HostDelays | None = None
    """Why the CPU was late."""
    trail: Trail | None = None
    """What the CPU did, for the critical path; ``None`` where the trace does not tell."""
    buckets: list[Bucket] = field(default_factory=list)
    bucket_copies: list[BucketCopies] = field(default_factory=list)
    idle: list[IdleTime] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    contention: list[Contention] = field(default_factory=list)
    stage: StageFacts | None = None
    """What the bubble is measured from; ``None`` for a rank that exchanges no messages."""
    behaviour: Behaviour | None = None
    configured_groups: int = 0
    """Process groups of several ranks that the file or its manifest lists, whatever the calls name."""
    sm_counts: dict[int, int] = field(default_factory=dict)
    """Multiprocessors of the devices, by number, where known."""

    @property
    def rank(self) -> int:
        return self.file.rank


NoteCode = Literal[
    "before-bucket-rebuild", "cannot-be-hidden", "capture-incomplete", "captures-apart", "clocks-aligned",
    "clocks-by-messages",
    "core-noise", "cpu-communication", "events-apart", "few-cores", "first-use", "gloo-beside-device",
    "graph-calls", "group-assumed", "incomplete-step", "missing-ranks", "no-communication", "no-event",
    "no-launch-links", "no-step-marks", "not-built", "older-captures", "partly-linked", "possible-communication",
    "profiler-start", "rank-assumed", "rank-conflict", "repaired", "sequence-untrusted", "single-rank", "skipped",
    "slow-step", "steps-without-window", "truncated", "unclassified-kernels", "unmatched", "waits-cost-nothing",
]  # fmt: skip
"""Every code of a note; ``report.note_words`` explains each."""


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader must know about the numbers."""

    code: NoteCode
    message: str


@dataclass(slots=True, eq=False)
class Analysis:
    """All ranks of one run. ``groups`` are the process groups over all ranks, by identity; ``group_of[r][g]`` is the
    global index of group ``g`` of the calls of ``ranks[r]``."""

    path: str
    ranks: list[RankAnalysis]
    ignored: list[tuple[str, str]]
    world_size: int | None
    missing_ranks: list[int]
    groups: list[GroupFacts]
    group_of: list[list[int]]
    group_assumed: bool
    notes: list[Note]
    warnings: list[str]
    capture: dict[str, Any]
    manifests: list[Manifest] = field(default_factory=list)
    """What the captures of the ranks wrote about the run, in order of rank; empty for other traces."""
    matching: Matching | None = None
    clocks: Clocks | None = None
    message_clocks: Clocks | None = None
    """The clocks that the critical path rests on where messages join ranks that no collective connects."""
    times: MatchTimes | None = None
    waiting: list[CallWaits] = field(default_factory=list)
    """Waiting of the calls of each rank, in order of ``ranks``."""
    charges: Charges | None = None
    stragglers: list[Straggler] = field(default_factory=list)
    harmless: list[Straggler] = field(default_factory=list)
    """Late ranks that others wait for, but without whom the run would not end earlier: nobody is accused."""
    wait_chain: WaitChain | None = None
    """From the longest wait of the worst step back to where it began."""
    critical_path: CriticalPath | None = None
    """What each instant of the steps waited for, over all ranks."""
    what_if: WhatIf | None = None
    """The run replayed without slow ranks."""
    imbalance: list[Imbalance] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    """Host of every rank of which one is known, missing ranks too."""
    hardware: Hardware | None = None
    roles: list[Role] = field(default_factory=list)
    """Role of each group, in the order of ``groups``."""
    bandwidth: dict[tuple[int, str], GroupBandwidth] = field(default_factory=dict)
    """By index of the group and operation."""
    strategy: Strategy | None = None
    pipeline: Pipeline | None = None
    bucket_advice: list[BucketAdvice] = field(default_factory=list)

    @property
    def origin_ns(self) -> int:
        """Earliest device start over all ranks, on the traces' own clocks: zero of the report's times."""
        return min(rank.base_ns + rank.first_ns for rank in self.ranks)
