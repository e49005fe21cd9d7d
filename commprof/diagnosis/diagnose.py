"""From an analysis to a diagnosis: findings, accounting, bounds, verdict."""

from __future__ import annotations

from collections.abc import Iterator

from commprof.analysis.model import Analysis, NoteCode
from commprof.diagnosis.accounting import Ledger, account, judge, ranked
from commprof.diagnosis.bounds import bounds
from commprof.diagnosis.findings import cases
from commprof.diagnosis.gain import gain_of
from commprof.diagnosis.ground import lay_ground
from commprof.diagnosis.model import Diagnosis, Evidence, Finding, Threshold, Verdict
from commprof.diagnosis.sentences import too_large
from commprof.diagnosis.thresholds import DEFAULTS, Thresholds
from commprof.diagnosis.totals import totals_of
from commprof.diagnosis.verdict import verdict_of
from commprof.diagnosis.waiting import lost_time


def diagnose(analysis: Analysis, thresholds: Thresholds = DEFAULTS) -> Diagnosis:
    """Judge an analysis: what costs time, what would come back, and whether communication is the bottleneck."""
    lost = lost_time(analysis)
    ground = lay_ground(analysis, thresholds)
    if ground is None:
        return Diagnosis(verdict_of(analysis, lost, (), thresholds))
    ledger = Ledger(ground)
    found = ranked(judge(ground, cases(ground), ledger))
    limits = bounds(ground, [finding for finding, _ in found])
    verdict = verdict_of(analysis, lost, [finding for finding, _ in found], thresholds, gain_of(ground, limits))
    findings = tuple(finding for finding, _ in found) + tuple(_acquittal(analysis, verdict, thresholds))
    return Diagnosis(
        verdict=verdict,
        findings=findings,
        accounting=account(ground, found, ledger),
        bounds=limits,
        waiting_ns=lost.waiting,
        notes=_notes(analysis),
    )


def _acquittal(analysis: Analysis, verdict: Verdict, limits: Thresholds) -> Iterator[Finding]:
    """That communication is not the bottleneck, where the verdict is about something else."""
    totals = totals_of(analysis)
    communicates = any((~rank.calls.fused).any() for rank in analysis.ranks)
    if totals is None or not communicates or verdict.bottleneck not in ("compute", "host", "input", "copy", "balanced"):
        return
    yield Finding(
        id="not-communication",
        severity="info",
        title="Communication is not your bottleneck",
        charged_ns=None,
        recoverable_ns=None,
        share_of_step=None,
        evidence=(
            Evidence("exposed communication", totals.share(totals.exposed_comm), "share of step"),
            Evidence("of it what communication can be blamed for", totals.share(totals.blocking), "share of step"),
        ),
        advice=("Faster links, other bucket sizes or compression would not shorten the step by more than that.",),
        threshold=Threshold(limits.communication, "share of step", limits.source),
        confidence="bound",
    )


def _notes(analysis: Analysis) -> tuple[tuple[NoteCode, str], ...]:
    """What a reader must know about the judgement, as codes and messages of the report's notes."""
    totals = totals_of(analysis)
    limit = None if totals is None else too_large(analysis, totals)
    return () if limit is None else (("cannot-be-hidden", limit),)
