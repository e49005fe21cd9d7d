"""Analysis and diagnosis to the one dict that every renderer reads.

``view["report"]`` is the machine-readable report, key by key as its contract says; the rest is for people: the
headline, the timeline of one step, the time of creation.
"""

from __future__ import annotations

import datetime
from typing import Any

from commprof.analysis.combine import ranks_text
from commprof.analysis.coverage import coverage_row
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.diagnosis.model import Diagnosis
from commprof.report.bucket_rows import bucket_advice_rows, bucket_rows, unit_rows
from commprof.report.exposure_rows import exposure_rows
from commprof.report.findings_rows import accounting_row, bounds_row, finding_rows, with_waiting
from commprof.report.group_rows import group_rows
from commprof.report.rows import call_rows, overall_row, rank_row
from commprof.report.step_rows import per_step_rows
from commprof.report.strategy_rows import strategy_row
from commprof.report.waiting_rows import (
    harmless_rows,
    imbalance_rows,
    matching_row,
    straggler_rows,
    wait_chain_row,
    wait_rows,
    what_if_rows,
)
from commprof.report.where_rows import contention_rows, idle_rows, pipeline_row, tensor_pair_rows
from commprof.version import __version__

SCHEMA = "commprof.report/1"

REPAIRED = ("invalid_escape", "control_character", "raw_quote", "non_finite", "encoding", "duplicate_key", "clipped")
SKIPPED = ("bad_event", "no_duration", "negative_duration", "non_finite", "zero_timestamp", "bad_metadata")


def build_view(analysis: Analysis, diagnosis: Diagnosis, *, created: str | None = None) -> dict[str, Any]:
    """The view of one run; ``created`` is the time to show, now if none is given."""
    origin = analysis.origin_ns
    return {
        "report": build_report(analysis, diagnosis),
        "timeline": [_shifted(lane, rank.base_ns - origin) for rank in analysis.ranks for lane in rank.timeline],
        "headline": _headline(analysis, diagnosis),
        "created": created or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def build_report(analysis: Analysis, diagnosis: Diagnosis) -> dict[str, Any]:
    """The machine-readable report: plain dicts, lists, integers, floats and strings, nothing that is not finite."""
    origin = analysis.origin_ns
    verdict = diagnosis.verdict
    return {
        "schema": SCHEMA,
        "commprof_version": __version__,
        "input": _input(analysis),
        "ranks": [rank_row(rank, device, origin) for rank in analysis.ranks for device in rank.devices],
        "overall": with_waiting(overall_row(analysis), diagnosis),
        "per_step": per_step_rows(analysis),
        "collectives": call_rows(analysis, origin),
        "groups": group_rows(analysis),
        "buckets": bucket_rows(analysis, origin),
        "bucket_advice": bucket_advice_rows(analysis),
        "matching": matching_row(analysis),
        "waits": wait_rows(analysis),
        "stragglers": straggler_rows(analysis),
        "late_but_harmless": harmless_rows(analysis),
        "wait_chain": wait_chain_row(analysis),
        "strategy": strategy_row(analysis),
        "exposure": exposure_rows(analysis),
        "idle": idle_rows(analysis),
        "imbalance": imbalance_rows(analysis),
        "pipeline": pipeline_row(analysis),
        "units": unit_rows(analysis, origin),
        "contention": contention_rows(analysis),
        "tensor_parallel": tensor_pair_rows(analysis),
        "bounds": bounds_row(diagnosis.bounds),
        "whatif": what_if_rows(analysis),
        "checks": [],
        "findings": finding_rows(diagnosis),
        "accounting": accounting_row(diagnosis.accounting),
        "verdict": {
            "bottleneck": verdict.bottleneck,
            "summary": verdict.summary,
            "exposed_comm_share": verdict.exposed_comm_share,
            "recoverable_share": verdict.recoverable_share,
            "confidence": verdict.confidence,
            "gain": verdict.gain,
            "where": verdict.where,
        },
        "notes": [{"code": note.code, "message": note.message} for note in analysis.notes]
        + [{"code": code, "message": message} for code, message in diagnosis.notes],
        "coverage": coverage_row(analysis),
    }


def _headline(analysis: Analysis, diagnosis: Diagnosis) -> dict[str, Any]:
    verdict = diagnosis.verdict
    return {
        "question": "Is communication my bottleneck?",
        "answer": verdict.summary,
        "gain": verdict.gain,
        "where": verdict.where,
        "ranks": ranks_line(analysis),
    }


def ranks_line(analysis: Analysis) -> str:
    """``ranks 0–5, 7 of 8; rank 6 missing``."""
    have = [rank.rank for rank in analysis.ranks]
    text = f"{'rank' if len(have) == 1 else 'ranks'} {ranks_text(have)}"
    if analysis.world_size is None:
        return f"{text}; world size unknown"
    missing = analysis.missing_ranks
    if not missing:
        return f"{text} of {analysis.world_size}"
    word = "rank" if len(missing) == 1 else "ranks"
    return f"{text} of {analysis.world_size}; {word} {ranks_text(missing)} missing"


def _shifted(lane: dict[str, Any], by: int) -> dict[str, Any]:
    """Times of a timeline from the rank's clock to those of the report."""
    out = {**lane, "start_ns": lane["start_ns"] + by, "end_ns": lane["end_ns"] + by}
    for key in ("exposed", "exposed_copy", "idle"):
        out[key] = [[start + by, end + by] for start, end in lane[key]]
    out["lanes"] = [
        {
            **row,
            "segments": [
                {**segment, "start_ns": segment["start_ns"] + by, "end_ns": segment["end_ns"] + by}
                for segment in row["segments"]
            ],
        }
        for row in lane["lanes"]
    ]
    return out


def _input(analysis: Analysis) -> dict[str, Any]:
    ranks = analysis.ranks
    return {
        "path": analysis.path,
        "files": [_file(rank) for rank in ranks],
        "ignored": [{"path": path, "reason": reason} for path, reason in analysis.ignored],
        "capture": analysis.capture,
        "hardware": _hardware(analysis),
        "world_size": analysis.world_size,
        "ranks": [rank.rank for rank in ranks],
        "missing_ranks": analysis.missing_ranks,
        "backend": next((rank.backend for rank in ranks if rank.backend), None),
        "devices": sorted({rank.device_name for rank in ranks if rank.device_name}),
    }


def _hardware(analysis: Analysis) -> dict[str, Any]:
    found = analysis.hardware
    return {"name": found.name if found else None, "source": found.source if found else None}


def _file(rank: RankAnalysis) -> dict[str, Any]:
    facts = rank.file
    return {
        "path": facts.path,
        "rank": facts.rank,
        "rank_source": facts.rank_source,
        "bytes": facts.bytes,
        "events": facts.events,
        "device_events": facts.device_events,
        "truncated": facts.truncated,
        "host": facts.host,
        "events_ignored": facts.events_ignored,
        "repaired": {kind: facts.repaired[kind] for kind in REPAIRED},
        "skipped": {kind: facts.skipped[kind] for kind in SKIPPED},
    }
