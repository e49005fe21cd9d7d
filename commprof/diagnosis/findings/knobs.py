"""Advice that fits the strategy: whoever shards parameters has no DDP buckets to size, and the other way round."""

from __future__ import annotations

from dataclasses import replace

from commprof.analysis.model import Analysis
from commprof.diagnosis.findings.case import Case

_SHARDS = frozenset({"fsdp", "hsdp", "zero3"})
_LAST_UNIT = (
    "Make the unit that is reduced last smaller: wrap the embedding and the first layers as units of their own (more "
    "messages).",
    "Send fewer bytes: reduce in bf16 (MixedPrecisionPolicy(reduce_dtype=...), accuracy), or larger micro-batches with "
    "accumulation (memory).",
)
_UNITS = (
    "Wrap larger units (fully_shard or auto_wrap_policy over several layers; more memory per gather), with DeepSpeed "
    "raise reduce_bucket_size and stage3_prefetch_bucket_size.",
)
_SMALLER_UNITS = (
    "Wrap smaller units (fully_shard on every block, embedding and head apart; more messages), with DeepSpeed lower "
    "reduce_bucket_size.",
)
_SHARDED = {
    "ddp-tail-bucket": _LAST_UNIT, "buckets-too-small": _UNITS, "bucket-too-large": _SMALLER_UNITS,
}  # fmt: skip


def shards(analysis: Analysis) -> bool:
    """Whether parameters are sharded, and no part of the run is plain DDP."""
    names = set() if analysis.strategy is None else set(analysis.strategy.name.split("+"))
    return bool(names & _SHARDS) and "ddp" not in names


def advised_for_shards(case: Case) -> Case:
    """The same case in the words, and with the knobs, of sharded parameters; without a cause there is no knob yet."""
    advice = _SHARDED.get(case.id)
    if advice is None or case.cause == "unknown":
        return case
    return replace(case, advice=advice, title=case.title.replace("gradient bucket", "gradient reduction"))
