"""Rows of gradient buckets (DDP) and sharded units (FSDP, ZeRO): when each was ready, ran and was needed."""

from __future__ import annotations

from typing import Any

from commprof.analysis.bucket_advice import BucketAdvice, Layout
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.where_model import Bucket
from commprof.report.where_rows import largest_causes
from commprof.trace.operations import OPERATIONS


def bucket_rows(analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    """One row per bucket, rank and backward pass, in order of rank and start."""
    return [
        _bucket(bucket, rank, groups, origin)
        for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True)
        for bucket in rank.buckets
    ]


def _bucket(bucket: Bucket, rank: RankAnalysis, groups: list[int], origin: int) -> dict[str, Any]:
    shift = rank.base_ns - origin
    local = int(rank.calls.group[bucket.call])
    return {
        "rank": rank.rank,
        "device": int(rank.calls.device[bucket.call]),
        "step": rank.shares.step_names[bucket.step] if bucket.step >= 0 else None,
        "series": bucket.series,
        "index": bucket.index,
        "group_id": groups[local] if local >= 0 else None,
        "op": OPERATIONS[int(rank.calls.operation[bucket.call])],
        "size_bytes": bucket.size,
        "parameters": None if bucket.parameters is None else list(bucket.parameters),
        "ready_ns": _shifted(bucket.ready, shift),
        "launched_ns": _shifted(bucket.launched, shift),
        "start_ns": bucket.start + shift,
        "end_ns": bucket.end + shift,
        "exposed_ns": bucket.exposed,
        "queued_ns": bucket.queued,
        "lag_ns": bucket.lag,
        "start_delay_ns": bucket.start_delay,
        "tail": bool(bucket.tail),
        "tail_ns": bucket.tail,
        "layout": bucket.layout,
        "backward_start_ns": _shifted(bucket.backward_start, shift),
        "backward_end_ns": _shifted(bucket.backward_end, shift),
    }


def unit_rows(analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    """One row per gather or reduction of a unit of FSDP or ZeRO-3, in order of rank and start."""
    out = []
    for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True):
        shift, causes = rank.base_ns - origin, largest_causes(rank)
        for unit in rank.units:
            local = int(rank.calls.group[unit.call])
            out.append(
                {
                    "rank": rank.rank,
                    "step": rank.shares.step_names[unit.step] if unit.step >= 0 else None,
                    "module": unit.module,
                    "op": unit.op,
                    "direction": unit.direction,
                    "group_id": groups[local] if local >= 0 else None,
                    "issued_ns": _shifted(unit.issued, shift),
                    "start_ns": unit.start + shift,
                    "end_ns": unit.end + shift,
                    "needed_ns": _shifted(unit.needed, shift),
                    "slack_ns": unit.slack,
                    "exposed_ns": unit.exposed,
                    "cause": causes[unit.call],
                }
            )
    return out


def bucket_advice_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Predicted tail and step for each candidate layout of DDP's buckets, one row per process group."""
    return [
        {
            "group_id": advice.group,
            "op": advice.operation,
            "size_bytes": advice.size,
            "backward_ns": advice.backward,
            "step_ns": advice.step,
            "measured_tail_ns": advice.measured_tail,
            "current": _layout(advice, advice.current),
            "advised": None if advice.best == advice.current else _layout(advice, advice.best),
            "gain_ns": advice.gain,
            "extrapolated": advice.extrapolated,
            "layouts": [_layout(advice, layout) for layout in advice.layouts],
        }
        for advice in analysis.bucket_advice
    ]


def _layout(advice: BucketAdvice, layout: Layout) -> dict[str, Any]:
    return {
        "first_bucket_bytes": layout.first,
        "bucket_cap_bytes": layout.cap,
        "buckets": layout.buckets,
        "tail_ns": layout.tail,
        "comm_ns": layout.comm,
        "step_ns": advice.step_of(layout),
    }


def _shifted(time: int | None, shift: int) -> int | None:
    return None if time is None else time + shift
