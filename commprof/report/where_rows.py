"""Rows of the report about the place of calls in the step, idle time, and what overlap and pipelines cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.places import CAUSES, FLAGS, NOWHERE, PHASES, cause_sums
from commprof.analysis.tensor_parallel import find_tensor_pairs


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
        "longest_stage_ranks": None
        if found.longest is None
        else sorted(rank.rank for rank in analysis.ranks if found.stage_of.get(rank.rank) == found.longest),
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
