"""What crosses from reading to analysis: the columns of one rank, and the trace of all ranks.

Columns are NumPy arrays of one length per table. Names are stored once: a ``name`` column holds indices into
:attr:`RankTrace.names`. Times are int64 nanoseconds on the file's own clock, relative to :attr:`RankTrace.base_ns`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array
from commprof.manifest import CudaGraph, FlightEntry
from commprof.trace.events import Args

Int32Array = NDArray[np.int32]

NO_ID = -1
"""Correlation or external id of an event that has none."""

COMPUTE, COMM, COPY = 0, 1, 2
"""Kinds of device work (``kind`` column of :class:`DeviceEvents`)."""


@dataclass(slots=True, eq=False)
class DeviceEvents:
    """Everything that occupied an accelerator, in file order: kernels, memory copies and fills."""

    name: Int32Array
    start: Int64Array
    end: Int64Array
    device: Int64Array
    stream: Int64Array
    correlation: Int64Array
    external_id: Int64Array
    blocks: Int64Array
    is_copy_row: NDArray[np.bool_]
    graph_node_id: Int64Array
    args: dict[int, Args]
    """Metadata of the rows that carry any about a collective."""

    def __len__(self) -> int:
        return len(self.is_copy_row)

    def forget(self) -> None:
        """Let go of all columns but ``is_copy_row``, and so of the length; whoever asks for another gets an error."""
        for column in fields(self):
            if column.name != "is_copy_row":
                delattr(self, column.name)

    @property
    def graph_node(self) -> NDArray[np.bool_]:
        """Whether a CUDA graph replayed the row, as its ``graph node id`` says."""
        found: NDArray[np.bool_] = self.graph_node_id != 0
        return found


@dataclass(slots=True, eq=False)
class RuntimeCalls:
    """Calls of the CUDA, HIP or other runtime and driver on CPU threads, in file order."""

    name: Int32Array
    start: Int64Array
    end: Int64Array
    pid: Int64Array
    tid: Int64Array
    correlation: Int64Array
    external_id: Int64Array

    def __len__(self) -> int:
        return len(self.start)

    def forget_ids(self) -> None:
        """Let go of what links calls to device events and operators; whoever asks for it gets an error."""
        del self.correlation, self.external_id


@dataclass(slots=True, eq=False)
class CpuSpans:
    """Operators or annotations on CPU threads, in file order."""

    name: Int32Array
    start: Int64Array
    end: Int64Array
    pid: Int64Array
    tid: Int64Array
    external_id: Int64Array
    args: dict[int, Args]
    """Arguments of the rows that speak of a collective."""

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One entry of ``distributedInfo.pg_config``."""

    name: str
    description: str
    size: int | None
    ranks: tuple[int, ...] | None


@dataclass(slots=True)
class FileFacts:
    """What ``input.files`` of the report says of one file."""

    path: str
    bytes: int
    rank: int = 0
    rank_source: str = "default"
    events: int = 0
    device_events: int = 0
    events_ignored: int = 0
    truncated: bool = False
    host: str | None = None
    repaired: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, eq=False)
class RankTrace:
    """The trace of one rank."""

    file: FileFacts
    names: list[str]
    base_ns: int
    device: DeviceEvents
    runtime: RuntimeCalls
    operators: CpuSpans
    annotations: CpuSpans
    metadata: dict[str, Any]
    world_size: int | None = None
    backend: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    device_names: tuple[str, ...] = ()
    sm_counts: tuple[int | None, ...] = ()
    warnings: list[str] = field(default_factory=list)
    flight: tuple[FlightEntry, ...] = ()
    cuda_graphs: tuple[CudaGraph, ...] = ()

    @property
    def rank(self) -> int:
        return self.file.rank


@dataclass(slots=True)
class Trace:
    """All ranks of one run that were given, in order of rank."""

    path: str
    ranks: list[RankTrace]
    ignored: list[tuple[str, str]] = field(default_factory=list)
    world_size: int | None = None
    warnings: list[str] = field(default_factory=list)

    def to_hta(self) -> Any:
        """The same events as a ``TraceAnalysis`` of Holistic Trace Analysis, without parsing again (extra ``hta``)."""
        from commprof.trace.hta import to_hta

        return to_hta(self)


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A process group as one rank's calls name it: its identity is its name together with its members.

    ``members`` says how far ``ranks`` is known: ``known``, ``partly`` (the profiler shortened the list and nothing
    completed it; ``shown`` are the members left in it) or ``unknown``. ``name`` is ``None`` where calls name no group.
    """

    name: str | None
    description: str | None
    ranks: tuple[int, ...] | None
    size: int | None
    members: str
    shown: tuple[int, ...] = ()


SOURCES = ("metadata", "link", "name", "pattern", "annotation")
"""Where the operation of a call came from; :attr:`Calls.source` holds an index."""

UNKNOWN_SIZE = -1
NOT_LAUNCHED = np.iinfo(np.int64).min


@dataclass(slots=True, eq=False)
class Calls:
    """Collectives and point-to-point calls of one rank, one row per call, in order of start.

    Columns of shape ``(n,)``: ``operation`` and ``source`` are indices into ``OPERATIONS`` and ``SOURCES``, ``group``
    and ``dtype`` into the lists here (-1: none). ``size_bytes`` is ``S`` of the bandwidth definitions, -1 unknown.
    ``first``/``last`` delimit the kernels of a call in ``kernel_start``/``kernel_end``. ``sent_bytes`` and
    ``received_bytes`` are what the rank gives and gets, its own part included (-1 unknown). ``unequal`` says of an
    all-to-all whether its splits differ on this rank: 1 yes, 0 no (or no all-to-all), -1 unknown; ``splits`` holds, for
    the calls that state their split sizes, the bytes to and from each member in group order (``None`` where not
    told), and ``shortened`` those calls of which the profiler cut the lists.
    ``partners`` holds, for a batch of point-to-point calls in one kernel, the peer and the bytes given to it and gotten
    from it of each (-1 unknown). ``peer`` and ``root`` are global ranks (-1 none or unknown).
    """

    operation: NDArray[np.int8]
    source: NDArray[np.int8]
    group: Int32Array
    dtype: Int32Array
    size_bytes: Int64Array
    group_size: Int64Array
    sequence: Int64Array
    peer: Int64Array
    root: Int64Array
    start: Int64Array
    end: Int64Array
    duration: Int64Array
    device: Int64Array
    stream: Int64Array
    channels: Int64Array
    launched: Int64Array
    issued: Int64Array
    thread: Int64Array
    copy_engine: NDArray[np.bool_]
    sync: NDArray[np.bool_]
    fused: NDArray[np.bool_]
    graph: NDArray[np.bool_]
    first: Int64Array
    last: Int64Array
    sent_bytes: Int64Array
    received_bytes: Int64Array
    unequal: NDArray[np.int8]
    kernel_start: Int64Array
    kernel_end: Int64Array
    splits: dict[int, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = field(default_factory=dict)
    shortened: set[int] = field(default_factory=set)
    partners: dict[int, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    groups: list[GroupFacts] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    without_metadata: int = 0
    unknown_dtype: int = 0
    noted_in_graphs: int = 0
    unnamed_in_graphs: int = 0

    def __len__(self) -> int:
        return len(self.start)
