"""What a manifest says about the model and its groups; a fact that does not exist or was not found is empty or null."""

from __future__ import annotations

from typing import Literal

import msgspec

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
