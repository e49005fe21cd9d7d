"""Rows of the report that say where in the step communication is exposed, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from commprof.analysis.bucket_advice import BucketAdvice, Layout
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.places import CAUSES, FLAGS, NOWHERE, PHASES, cause_sums
from commprof.analysis.tensor_parallel import find_tensor_pairs
from commprof.analysis.where_model import Bucket
from commprof.trace.operations import OPERATIONS


def placed(rank: RankAnalysis) -> list[dict[str, Any]]:
    """What a call row says of the place of its call and of the largest cause of its exposed time."""
    places = rank.places
    columns = zip(
        places.phase.tolist(), places.module.tolist(), places.bucket.tolist(), places.flag.tolist(),
        places.hidden_by.tolist(), largest_causes(rank), _operators(rank), strict=True,
    )  # fmt: skip
    return [
        {
            "bucket": None if bucket < 0 else bucket,
            "phase": None if phase < 0 else PHASES[phase],
            "module": None if module < 0 else places.modules[module],
            "hidden_by": None if hider < 0 else places.hiders[hider],
            "flag": None if flag < 0 else FLAGS[flag],
            "cause": cause,
            "cause_op": operator,
        }
        for phase, module, bucket, flag, hider, cause, operator in columns
    ]


def largest_causes(rank: RankAnalysis) -> list[str | None]:
    """For each call the cause of the largest part of its exposed time, ``None`` where nothing of it is exposed."""
    sums = cause_sums(rank.causes, rank.shares.pieces, rank.shares.pieces.call, len(rank.calls))
    largest = np.where(sums.any(axis=1), sums.argmax(axis=1), NOWHERE)
    return [None if cause < 0 else CAUSES[cause] for cause in largest.tolist()]


def _operators(rank: RankAnalysis) -> list[str | None]:
    """For each call the operator or range that made a thread wait, where that is why the call is exposed."""
    causes, pieces = rank.causes, rank.shares.pieces
    found: list[str | None] = [None] * len(rank.calls)
    rows = np.flatnonzero(causes.operator >= 0)
    for row in rows[np.argsort(pieces.ns[rows], kind="stable")].tolist():
        found[int(pieces.call[row])] = causes.operators[int(causes.operator[row])]
    return found


def bucket_rows(analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    """One row per bucket, rank and backward pass, in order of rank and start."""
    return [_bucket(bucket, rank, groups, origin) for rank, groups in _ranks(analysis) for bucket in rank.buckets]


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


def idle_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Idle time by cause; the rows of a step add up to its ``idle_ns``."""
    return [
        {
            "rank": rank.rank,
            "device": row.device,
            "step": rank.shares.step_names[row.step],
            "cause": row.cause,
            "idle_ns": row.ns,
            "count": row.count,
            "op": row.op,
        }
        for rank in analysis.ranks
        for row in rank.idle
    ]


def unit_rows(analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    """One row per gather or reduction of a unit of FSDP or ZeRO-3, in order of rank and start."""
    out = []
    for rank, groups in _ranks(analysis):
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


def contention_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Kernels that run beside communication and alone, over all ranks; largest cost first.

    Only ranks with enough calls of both count. ``cost_ns_per_step`` is the mean over them and their steps.
    """
    sums: dict[tuple[str, int], list[int]] = {}
    for rank in analysis.ranks:
        steps = max(1, sum(len(device.steps) for device in rank.devices))
        for row in rank.contention:
            entry = sums.setdefault((row.kernel, row.blocks), [0] * 6)
            values = (row.calls_alone, row.ns_alone, row.calls_beside, row.ns_beside, row.cost, steps)
            sums[row.kernel, row.blocks] = [old + new for old, new in zip(entry, values, strict=True)]
    rows = [
        {
            "kernel": kernel,
            "blocks": None if blocks < 0 else blocks,
            "calls_alone": alone,
            "mean_alone_ns": ns_alone // alone,
            "calls_beside": beside,
            "mean_beside_ns": ns_beside // beside,
            "factor": (ns_beside * alone) / (ns_alone * beside) if ns_alone else None,
            "cost_ns_per_step": cost // steps,
        }
        for (kernel, blocks), (alone, ns_alone, beside, ns_beside, cost, steps) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row["cost_ns_per_step"], row["kernel"], row["blocks"] or 0))


def pipeline_row(analysis: Analysis) -> dict[str, Any] | None:
    """The pipeline with the bubble of every stage and step; ``None`` without one."""
    found = analysis.pipeline
    if found is None:
        return None
    return {
        "stages": found.stages,
        "microbatches": found.microbatches,
        "chunks": found.chunks,
        "boundary": None if found.boundary is None else list(found.boundary),
        "ideal_share": found.ideal_share,
        "stage_imbalance_ns": found.imbalance,
        "longest_stage": found.longest,
        "longest_stage_excess": found.excess,
        "bubble": [
            {
                "stage": row.stage,
                "step": row.step,
                "idle_ns": row.idle,
                "receive_wait_ns": row.receive_wait,
                "part_ns": row.part,
                "share": row.share,
            }
            for row in found.bubble
        ],
    }


def tensor_pair_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per block of tensor parallelism: its collectives over all steps and ranks."""
    return [
        {
            "group_id": pair.group,
            "direction": pair.direction,
            "index": pair.index,
            "ops": list(pair.operations),
            "count": pair.count,
            "comm_ns": pair.comm,
            "exposed_ns": pair.exposed,
            "structural_ns": pair.structural,
        }
        for pair in find_tensor_pairs(analysis)
    ]


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


def _ranks(analysis: Analysis) -> Iterator[tuple[RankAnalysis, list[int]]]:
    return zip(analysis.ranks, analysis.group_of, strict=True)


def exposure_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Roll-ups by what calls are and where they stand; the rows of one ``by`` add up to ``exposed_comm_ns``."""
    return [
        row
        for rank, groups in _ranks(analysis)
        for row in (*_summed(rank, groups, analysis), *_by_cause(rank), *_by_stage(rank, analysis))
    ]


def _summed(rank: RankAnalysis, groups: list[int], analysis: Analysis) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank.rank,
            "device": row.device,
            "step": row.step,
            "by": row.by,
            "name": _name(rank, row.by, row.key, groups, analysis),
            "group_id": groups[row.key] if row.by == "group" and row.key >= 0 else None,
            "calls": row.calls,
            "comm_ns": row.comm_ns,
            "hidden_ns": row.hidden_ns,
            "exposed_ns": row.exposed_ns,
        }
        for row in rank.exposure
    ]


def _name(rank: RankAnalysis, by: str, key: int, groups: list[int], analysis: Analysis) -> str | None:
    if by == "op":
        return OPERATIONS[key]
    if by == "stream":
        return str(key)
    if key < 0:
        return None
    if by == "group":
        return analysis.groups[groups[key]].name
    return {"phase": lambda: PHASES[key], "module": lambda: rank.places.modules[key], "bucket": lambda: str(key)}[by]()


def _by_stage(rank: RankAnalysis, analysis: Analysis) -> list[dict[str, Any]]:
    """All communication of a rank as that of its pipeline stage: added over ranks, the table by stage."""
    stage = analysis.pipeline.stage_of.get(rank.rank) if analysis.pipeline is not None else None
    if stage is None:
        return []
    calls = rank.calls
    return [
        {
            "rank": rank.rank,
            "device": device.device,
            "step": step.name,
            "by": "stage",
            "name": str(stage),
            "group_id": None,
            "calls": int(
                (
                    (calls.device == device.device)
                    & ~calls.fused
                    & (calls.start < step.split.end)
                    & (calls.end > step.split.start)
                ).sum()
            ),
            "comm_ns": step.split.comm,
            "hidden_ns": step.split.overlap,
            "exposed_ns": step.split.exposed_comm,
        }
        for device in rank.devices
        for step in device.steps
    ]


def _by_cause(rank: RankAnalysis) -> list[dict[str, Any]]:
    """Exposed time by cause: nothing of it is hidden, so communication and exposed time are the same here."""
    pieces, calls = rank.shares.pieces, rank.calls
    device = calls.device[pieces.call] if len(pieces) else pieces.call
    rows: list[dict[str, Any]] = []
    for facts in rank.devices:
        mine = np.flatnonzero((pieces.window >= 0) & (device == facts.device))
        width = len(rank.shares.step_names)
        sums = cause_sums(rank.causes, pieces, pieces.window, width, mine)
        for step, cause in zip(*(index.tolist() for index in np.nonzero(sums)), strict=True):
            ns = int(sums[step, cause])
            inside = mine[pieces.window[mine] == step]
            rows.append(
                {
                    "rank": rank.rank,
                    "device": facts.device,
                    "step": rank.shares.step_names[step],
                    "by": "cause",
                    "name": CAUSES[cause],
                    "group_id": None,
                    "calls": len(np.unique(pieces.call[inside][_has(rank, inside, cause)])),
                    "comm_ns": ns,
                    "hidden_ns": 0,
                    "exposed_ns": ns,
                }
            )
    return rows


def _has(rank: RankAnalysis, rows: Any, cause: int) -> Any:
    """Which pieces hold any time of that cause."""
    causes = rank.causes
    if CAUSES[cause] == "host-bound":
        return causes.host[rows] > 0
    if CAUSES[cause] == "peer-wait":
        return causes.wait[rows] > 0
    rest = rank.shares.pieces.ns[rows] - causes.host[rows] - causes.wait[rows]
    return (causes.cause[rows] == cause) & (rest > 0)
