"""Advice that fits the strategy: only knobs that its framework has.

Rules write for DistributedDataParallel; who shards parameters or optimizer state, or runs model parallelism beside data
parallelism, has other names for the same thing. Settings by their documentation: torch 2.13 (FSDP, DDP), DeepSpeed
(``zero_optimization``; sizes are elements, ``overlap_comm`` is on by default in stage 3 only), Megatron-LM's arguments.
"""

from __future__ import annotations

import re
from dataclasses import replace

from commprof.analysis.codes import operation_is
from commprof.analysis.model import Analysis
from commprof.analysis.purposes import PARAMETERS
from commprof.diagnosis.findings.case import Case

_FULL = frozenset({"fsdp", "zero3"})
_TAIL = "ddp-tail-bucket"
_SEVERAL_LEFT = re.compile(r"^The last \d+ ")
_PARTS = frozenset({"zero1", "zero2"})
_MODEL = frozenset({"tp", "sp", "pp", "ep", "cp"})

_SHARDED = {
    "ddp-tail-bucket": (
        "Make the unit that is reduced last smaller: wrap the embedding and the first layers as units of their own "
        "(more messages).",
        "Send fewer bytes: reduce in bf16 (MixedPrecisionPolicy(reduce_dtype=...), accuracy), or larger micro-batches "
        "with accumulation (memory).",
    ),
    "buckets-too-small": (
        "Wrap larger units (fully_shard or auto_wrap_policy over several layers; more memory per gather), with "
        "DeepSpeed raise reduce_bucket_size and stage3_prefetch_bucket_size.",
    ),
    "bucket-too-large": (
        "Wrap smaller units (fully_shard on every block, embedding and head apart; more messages), with DeepSpeed "
        "lower reduce_bucket_size.",
    ),
    "ddp-no-overlap": (
        "Reduce unit by unit during the backward pass: fully_shard or auto_wrap_policy on every block, not on the "
        "whole model alone (more messages); with DeepSpeed overlap_comm=True (buffers cost memory).",
    ),
    "compiled-backward": (
        "Compile each block on its own and shard it (fully_shard on every block): one graph over all layers returns "
        "its gradients at the end.",
    ),
    "reduction-alternates": (
        "Look for what orders them: CUDA_DEVICE_MAX_CONNECTIONS=1, one buffer for reductions in flight "
        "(set_reduce_scatter_max_input_buffers in FSDP2, memory), overlap_comm=False (DeepSpeed).",
    ),
    "repeated-reduction": (
        "Reduce once: set_requires_gradient_sync(False) (FSDP2) or no_sync() (FSDP1) in all micro-batches but the "
        "last; whole gradients cost memory. DeepSpeed's stage 3 reduces after every micro-batch by design: fewer and "
        "larger micro-batches (memory).",
    ),
}
_HYBRID = {
    _TAIL: (
        _SHARDED[_TAIL][0],
        "Send fewer bytes: reduce in bf16 (MixedPrecisionPolicy(reduce_dtype=...), accuracy). What goes over the "
        "replicas is one part of the gradients: shard over more ranks and it is smaller (gathers then span more of "
        "them); accumulate micro-batches with set_requires_all_reduce(False) in all but the last (FSDP2; sharded "
        "gradients stay in memory).",
    ),
    "fsdp-longer-than-compute": (
        "More compute per gather: larger micro-batches (memory) or parameters that stay gathered between the passes "
        "(reshard_after_forward=False in FSDP2, _HYBRID_SHARD_ZERO2 in FSDP1, memory); keep every shard group inside "
        "one host or NVLink domain (shards are the inner dimension of the mesh), over fewer ranks where memory allows; "
        "bf16 or fp8 all-gather (accuracy).",
    ),
    "repeated-reduction": (
        "Reduce over the replicas once: set_requires_all_reduce(False) in all micro-batches but the last (FSDP2: "
        "gradients are still scattered each time, and stay sharded in memory), or set_requires_gradient_sync(False) "
        "(FSDP2) or no_sync() (FSDP1), which keep whole gradients (memory).",
    ),
}
"""Who shards within a group and replicates over groups has an all-reduce over replicas too, and has HSDP already."""
_PARTITIONED = {
    "ddp-tail-bucket": (
        "Make the last bucket smaller: lower reduce_bucket_size (DeepSpeed, in elements) or --ddp-bucket-size "
        "(Megatron); more messages cost latency.",
        "Send fewer bytes: communication_data_type (DeepSpeed) or --grad-reduce-in-bf16 (Megatron), accuracy; or "
        "compute more per reduction: larger micro-batches (memory).",
    ),
    "buckets-too-small": (
        "Make buckets larger: raise reduce_bucket_size and allgather_bucket_size (DeepSpeed, in elements, default "
        "500,000,000) or --ddp-bucket-size (Megatron); buffers cost memory, and the last bucket then is larger too and "
        "exposes more.",
    ),
    "bucket-too-large": (
        "Make buckets smaller: lower reduce_bucket_size (DeepSpeed, in elements, default 500,000,000) or "
        "--ddp-bucket-size (Megatron); more messages cost latency.",
    ),
    "ddp-no-overlap": (
        "Reduce during the backward pass: overlap_comm=True (DeepSpeed, off by default in stages 1 and 2; buffers cost "
        "memory) or --overlap-grad-reduce (Megatron).",
    ),
    "reduction-alternates": (
        "Look for what orders them: overlap_comm=False or contiguous_gradients with one buffer (DeepSpeed), "
        "CUDA_DEVICE_MAX_CONNECTIONS=1. A second buffer costs memory.",
    ),
    "repeated-reduction": (
        "Stage 2 keeps only its part of the gradients, so that it reduces after every micro-batch: fewer and larger "
        "micro-batches (memory), or stage 1, which keeps whole gradients (memory) and reduces once.",
    ),
    "bucket-copies": (
        "Accumulate into the flat buffer: gradient accumulation fusion (Megatron's default; "
        "--no-gradient-accumulation-fusion turns it off). DeepSpeed's contiguous_gradients is what copies: False saves "
        "the copies and may fragment memory.",
    ),
}
_ADVICE = {"sharded": _SHARDED, "hybrid": {**_SHARDED, **_HYBRID}, "partitioned": _PARTITIONED}
_BESIDE_MODEL_PARALLEL = {
    "ddp-tail-bucket": (
        "In Megatron the knobs are --ddp-bucket-size and --grad-reduce-in-bf16 (accuracy), not those of "
        "DistributedDataParallel.",
    ),
    "buckets-too-small": ("In Megatron the knob is --ddp-bucket-size, not that of DistributedDataParallel.",),
}
"""Added to the advice of a rule."""


def strategy_kind(analysis: Analysis) -> str | None:
    """``sharded``: parameters are split, ``hybrid``: within groups that are replicated; ``partitioned``: optimizer
    state and gradients are; ``model-parallel``: plain data parallelism beside tensor, pipeline, expert or context
    parallelism; ``None`` where DDP's knobs fit."""
    names = set() if analysis.strategy is None else set(analysis.strategy.name.split("+"))
    if "ddp" in names:
        return "model-parallel" if names & _MODEL else None
    if "hsdp" in names:
        return "hybrid"
    if names & _FULL:
        return "sharded"
    # torch's ZeroRedundancyOptimizer broadcasts what it updated, and DDP reduces the gradients beside it.
    return "partitioned" if names & _PARTS and not _broadcasts(analysis) else None


def _broadcasts(analysis: Analysis) -> bool:
    return any(
        bool(((rank.places.purpose == PARAMETERS) & operation_is(rank.calls.operation, "broadcast")).any())
        for rank in analysis.ranks
    )


def advised_for(case: Case, kind: str | None) -> Case:
    """The same case with the knobs of the strategy; without a cause there is no knob yet."""
    if kind is None or case.cause == "unknown":
        return case
    if kind == "model-parallel":
        return replace(case, advice=(*case.advice, *_BESIDE_MODEL_PARALLEL.get(case.id, ())))
    advice = _ADVICE[kind].get(case.id)
    if advice is None:
        return case
    if case.id == _TAIL and _SEVERAL_LEFT.match(case.title):
        # The size of the last one alone decides little then.
        advice = advice[::-1]
    # Predictions are of the sizes that DDP takes.
    evidence = tuple(entry for entry in case.evidence if "bucket_cap_mb" not in entry.what)
    return replace(case, advice=advice, evidence=evidence, title=_titled(case.title, kind))


def _titled(title: str, kind: str) -> str:
    """What is reduced together is a unit, or part of one, where parameters are sharded."""
    if kind == "partitioned":
        return title
    title = re.sub(r" \(bucket \d+\)", "", title).replace("bucket", "reduction")
    return title.replace("reductions are reduced", "reductions run").replace("reduction is reduced", "reduction runs")
