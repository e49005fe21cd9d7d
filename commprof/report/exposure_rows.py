"""Rows of ``exposure``: exposed time added up by what calls are, where they stand, and why it is exposed."""

from __future__ import annotations

from typing import Any

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.places import CAUSES, PHASES, cause_sums
from commprof.trace.operations import OPERATIONS


def exposure_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Roll-ups by what calls are and where they stand; the rows of one ``by`` add up to ``exposed_comm_ns``."""
    return [
        row
        for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True)
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
