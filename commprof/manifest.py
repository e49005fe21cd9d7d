"""The file format between a capture and its analysis.

A capture folder holds, for every recorded rank, one Kineto trace ``rank-00003.pt.trace.json.gz`` and one
manifest ``rank-00003.manifest.json``: strict JSON with a format name and a version. The manifest holds what a
trace alone does not tell: where the rank came from, who is in which process group, DDP's buckets, the time of
every step.

Readers ignore fields they do not know, so a new field leaves ``VERSION`` alone; a field that changes its
meaning or goes away raises it. All times are integer nanoseconds, sizes bytes.
"""

from __future__ import annotations

import os
import statistics
import uuid
from pathlib import Path
from typing import Literal

import msgspec

from commprof.errors import InputRefused

FORMAT = "commprof.capture"
VERSION = 1
SUFFIX = ".manifest.json"

RankSource = Literal["process group", "environment RANK", "default"]
Layout = Literal["rebuilt", "first-iteration", "static", "unknown"]


class ProcessGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One process group that the rank is in: ``ranks`` are global ranks, in group order."""

    name: str
    description: str | None = None
    backend: str | None = None
    ranks: tuple[int, ...] = ()


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One gradient bucket of DDP, ``index`` in launch order.

    ``parameters`` are qualified names, empty if unknown. ``layout``: ``rebuilt`` in the order of ready
    gradients (from the second iteration on), ``first-iteration`` before that, ``static`` where DDP keeps
    the first layout for good (``find_unused_parameters``).
    """

    index: int
    size_bytes: int
    parameters: tuple[str, ...] = ()
    layout: Layout = "unknown"


class DdpModule(msgspec.Struct, frozen=True, kw_only=True):
    """One DistributedDataParallel module: its buckets and its options as DDP itself states them."""

    module: str
    buckets: tuple[Bucket, ...] = ()
    options: dict[str, str | int] = {}


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the model on this rank, in elements and bytes of the dtype that they are stored in.

    Counted as if FSDP, ZeRO-3 and DTensor had split nothing; a shared parameter counts once. What a
    framework splits without telling PyTorch (Megatron), and the other stages of a pipeline, are not in it.
    ``by_dtype`` holds elements, such as ``{"bfloat16": 12185552}``. ``trainable_*`` require a gradient;
    ``local_*`` is what this rank holds between uses; ``buffer_*`` are buffers.
    """

    count: int
    bytes: int
    by_dtype: dict[str, int] = {}
    trainable_count: int = 0
    trainable_bytes: int = 0
    local_count: int = 0
    local_bytes: int = 0
    buffer_count: int = 0
    buffer_bytes: int = 0


class FsdpUnit(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters that FSDP gathers together: ``module`` is the qualified name of their module ("" is the root).

    ``count`` elements and ``bytes`` are those of one gathered copy (of this tensor-parallel rank),
    ``gradient_bytes`` what is reduced; dtypes are those of the communication. ``shard_size`` ranks share a
    copy, ``replicate_size`` copies are kept equal; the groups are named as in ``groups``.
    """

    module: str
    kind: Literal["fsdp1", "fsdp2"]
    count: int
    bytes: int
    gradient_bytes: int
    dtype: str | None = None
    reduce_dtype: str | None = None
    reshard_after_forward: bool | None = None
    shard_size: int | None = None
    replicate_size: int = 1
    shard_group: str | None = None
    replicate_group: str | None = None


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """A device mesh that this rank is in.

    ``names`` and ``groups`` (names as in ``groups``; null: not made) per dimension, ``ranks`` in row-major order.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    ranks: tuple[int, ...]
    groups: tuple[str | None, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """How the parameters of one name pattern (``layers.*.wq.weight``) lie on a device mesh: the tensor-parallel plan.

    ``placements`` as PyTorch writes them, such as ``Shard(dim=0)``, one for each name in ``mesh``.
    """

    pattern: str
    mesh: tuple[str, ...]
    placements: tuple[str, ...]
    parameters: int


class PipelineStage(msgspec.Struct, frozen=True, kw_only=True):
    """One pipeline stage on this rank: stage ``index`` of ``stages``, in the process group ``group``."""

    index: int
    stages: int
    group: str | None = None
    count: int = 0


class Pipeline(msgspec.Struct, frozen=True, kw_only=True):
    """Stages on this rank, the class of their schedule and the micro-batches of one step (null: not found)."""

    stages: tuple[PipelineStage, ...]
    schedule: str | None = None
    microbatches: int | None = None


class Optimizer(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer: its class, of whatever wraps it (``ZeroRedundancyOptimizer``), and its elements on this rank."""

    name: str
    inner: str | None = None
    count: int = 0
    options: dict[str, str | int] = {}


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


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank of a capture says about itself.

    ``trace`` is the file name of its trace in the same folder, null where none was written; then
    ``partial`` is set and ``reason`` says why. ``recorded_steps`` are the steps recorded whole, as they
    are named in the trace; ``cut_step`` is the one that the end of the recording cut, if any.
    What is known of the model is null or empty where there is no such thing, or where it was not found.
    ``environment`` holds the variables that change communication, ``cores`` the number of cores that the
    process may use.
    """

    rank: int
    rank_source: RankSource
    world_size: int
    host: str
    format: str = FORMAT
    version: int = VERSION
    commprof_version: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    trace: str | None = None
    partial: bool = False
    reason: str | None = None
    recorded_steps: tuple[str, ...] = ()
    cut_step: str | None = None
    clock: Clock = Clock()
    steps: StepTimes = StepTimes()
    export_ns: int | None = None
    torch_version: str | None = None
    cuda_version: str | None = None
    nccl_version: str | None = None
    backend: str | None = None
    device: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    ddp: tuple[DdpModule, ...] = ()
    parameters: Parameters | None = None
    fsdp: tuple[FsdpUnit, ...] = ()
    meshes: tuple[Mesh, ...] = ()
    placements: tuple[Placement, ...] = ()
    pipeline: Pipeline | None = None
    optimizers: tuple[Optimizer, ...] = ()
    environment: dict[str, str] = {}
    cores: int | None = None
    flight: tuple[FlightEntry, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def recorded_indices(self) -> tuple[int, ...]:
        """Loop indices of the recorded steps: ``ProfilerStep#5`` is 5."""
        return tuple(int(name.rpartition("#")[2]) for name in self.recorded_steps)

    @property
    def profiled_step_ns(self) -> int | None:
        """Median length of the recorded steps by the hook's clock; null without one."""
        return _median([d for i, d in self._durations() if i in set(self.recorded_indices)])

    @property
    def unprofiled_step_ns(self) -> int | None:
        """Median length of the steps outside the window; null without one.

        The first two steps are left out: memory, caches and DDP's buckets settle in them.
        """
        recorded = set(self.recorded_indices)
        cut = {int(self.cut_step.rpartition("#")[2])} if self.cut_step else set()
        return _median([d for i, d in self._durations() if i >= 2 and i not in recorded | cut])

    def _durations(self) -> list[tuple[int, int]]:
        return [(self.steps.first + k, d) for k, d in enumerate(self.steps.duration_ns)]


class _Header(msgspec.Struct):
    format: str = ""
    version: int = 0


def step_name(index: int) -> str:
    """Name of the loop's step ``index`` (the first is 0) in a trace."""
    return f"ProfilerStep#{index}"


def trace_name(rank: int, number: int = 1) -> str:
    """File name of the trace of ``rank``; later captures into one folder are numbered from 2."""
    return f"{_stem(rank, number)}.pt.trace.json.gz"


def manifest_name(rank: int, number: int = 1) -> str:
    """File name of the manifest of ``rank``, numbered like its trace."""
    return f"{_stem(rank, number)}{SUFFIX}"


def write_manifest(folder: str | os.PathLike[str], manifest: Manifest, *, number: int = 1) -> Path:
    """Write ``manifest`` into ``folder`` under its final name in one rename, and return its path.

    Raises ``OSError`` as the file system gives it; then the final name holds what it held before.
    """
    final = Path(folder) / manifest_name(manifest.rank, number)
    scratch = final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")
    try:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        os.replace(scratch, final)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return final


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest in the file ``path``.

    Raises ``InputRefused`` for a file that cannot be read, is not a manifest, or has a version unknown here.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        header = msgspec.json.decode(data, type=_Header)
    except OSError as error:
        raise InputRefused(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: not a manifest: {error}", hint="capture the run again") from error
    if header.format != FORMAT:
        raise InputRefused(f"{path}: not a manifest: format is {header.format!r}, not {FORMAT!r}")
    if header.version != VERSION:
        raise InputRefused(
            f"{path}: version {header.version} of {FORMAT} is unknown, this release reads version {VERSION}",
            hint="update commprof",
        )
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: broken manifest: {error}", hint="capture the run again") from error


def read_manifests(folder: str | os.PathLike[str]) -> list[Manifest]:
    """All manifests of the capture folder, by rank and then by file name; empty where it holds none.

    Raises ``InputRefused`` for a folder that is not there and for a manifest that ``read_manifest`` refuses.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputRefused(f"{folder}: no such folder")
    paths = sorted(p for p in folder.glob(f"rank-*{SUFFIX}") if not p.name.startswith("."))
    return sorted((read_manifest(path) for path in paths), key=lambda manifest: manifest.rank)


def _stem(rank: int, number: int) -> str:
    return f"rank-{rank:05d}" if number == 1 else f"rank-{rank:05d}.{number}"


def _median(values: list[int]) -> int | None:
    return round(statistics.median(values)) if values else None
