"""Findings, accounting and bounds as rows of the report."""

from __future__ import annotations

from typing import Any

from commprof.diagnosis.model import Accounting, Bounds, Diagnosis, Evidence, Finding


def with_waiting(overall: dict[str, Any] | None, diagnosis: Diagnosis) -> dict[str, Any] | None:
    """The overall split with the exposed time in which ranks waited for late ones; ``None`` where that is unknown."""
    if overall is None:
        return None
    wait = None if diagnosis.waiting_ns is None else diagnosis.waiting_ns // overall["steps"]
    share = wait / overall["duration_ns"] if wait is not None and overall["duration_ns"] else None
    return {**overall, "exposed_wait_ns": wait, "wait_share": share}


def finding_rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """One row per finding, the largest first."""
    return [_finding(finding) for finding in diagnosis.findings]


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "severity": finding.severity,
        "title": finding.title,
        "charged_ns": finding.charged_ns,
        "recoverable_ns": finding.recoverable_ns,
        "share_of_step": finding.share_of_step,
        "recoverable_share": finding.recoverable_share,
        "evidence": [_evidence(entry) for entry in finding.evidence],
        "advice": list(finding.advice),
        "threshold": {
            "value": finding.threshold.value, "unit": finding.threshold.unit, "source": finding.threshold.source,
        },
        "confidence": finding.confidence,
        "cause": finding.cause,
        "or_cause": finding.or_cause,
        "ranks": list(finding.ranks),
        "steps": list(finding.steps),
        "group_id": finding.group_id,
        "calls": finding.calls,
        "structural": finding.structural,
    }  # fmt: skip


def _evidence(entry: Evidence) -> dict[str, Any]:
    return {"what": entry.what, "value": entry.value, "unit": entry.unit}


def accounting_row(accounting: Accounting | None) -> dict[str, Any] | None:
    """The step of the reference rank as parts that add up to ``duration_ns`` exactly, summed over ``steps`` steps."""
    if accounting is None:
        return None
    return {
        "steps": accounting.steps,
        "duration_ns": accounting.duration_ns,
        "ranks": list(accounting.ranks),
        "overlap_ns": accounting.overlap_ns,
        "parts": [
            {
                "name": part.name,
                "ns": part.ns,
                "share": part.ns / accounting.duration_ns,
                "finding": part.finding,
                "exposed_ns": part.exposed,
                "idle_ns": part.idle,
                "copy_ns": part.copy,
            }
            for part in accounting.parts
        ],
    }


def bounds_row(bounds: Bounds | None) -> dict[str, Any] | None:
    """Bounds of the step time."""
    if bounds is None:
        return None
    return {
        "step_ns": bounds.step_ns,
        "all_hidden_ns": bounds.all_hidden_ns,
        "no_waiting_ns": bounds.no_waiting_ns,
        "without_top_finding_ns": bounds.without_top_finding_ns,
    }
