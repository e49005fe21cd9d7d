"""Is communication the bottleneck (``spec``: section 11), in a sentence that a person can act on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from commprof.analysis.model import Analysis
from commprof.analysis.steps import units
from commprof.diagnosis.model import Finding, Verdict
from commprof.diagnosis.sentences import base_of, summary_of, where_of
from commprof.diagnosis.story import beside
from commprof.diagnosis.thresholds import DEFAULTS, Thresholds
from commprof.diagnosis.totals import Totals, totals_of
from commprof.diagnosis.waiting import Lost
from commprof.units import format_share

_CUT = " The trace is cut, so this may not hold for the whole run (low confidence)."
_START = (
    " At least half of that lies in calls that only the start of the recording or of a communicator made long: an "
    "artefact, no cost of the run (low confidence)."
)
_PROFILER = " Profiled steps took longer than unprofiled ones: the profiler itself may be the cause (low confidence)."


def verdict_of(
    analysis: Analysis,
    lost: Lost,
    findings: Sequence[Finding] = (),
    thresholds: Thresholds = DEFAULTS,
    gain: tuple[str | None, float] = (None, 0.0),
) -> Verdict:
    """The verdict on an analysis; ``lost`` says what of its exposed time is waiting, bubble and so on.

    ``findings``, the largest first, decide nothing: where the first of them is about something else, that is said.
    ``gain`` is what hiding all communication would bring, as a sentence and as a share of the step.
    """
    totals = totals_of(analysis)
    if totals is None or not totals.duration:
        summary = "Cannot tell from this trace: it holds no step with device work."
        return Verdict("unknown", summary, None, None)
    bottleneck = _bottleneck(totals, lost, thresholds)
    communicates = any((~rank.calls.fused).any() for rank in analysis.ranks)
    blind = _blind(analysis, totals, bottleneck, thresholds)
    doubt = _doubt(analysis, totals, lost, bottleneck, thresholds)
    gain_text, recoverable = gain if communicates else (None, 0.0)
    said = summary_of(analysis, totals, lost, bottleneck, communicates)
    other = beside(analysis, findings, bottleneck, thresholds, base_of(analysis))
    return Verdict(
        "unknown" if blind else bottleneck,
        blind or said + other + doubt,
        totals.share(totals.exposed_comm),
        recoverable,
        gain_text,
        where_of(analysis) if communicates else None,
        "low" if doubt or blind else "measured",
    )


def _bottleneck(totals: Totals, lost: Lost, limits: Thresholds) -> str:
    share = totals.share
    if share(totals.blocking) >= limits.communication and totals.blocking >= limits.share_of_idle * totals.idle:
        half = limits.late_half * totals.blocking
        if lost.late >= half and lost.late:
            return "straggler"
        if lost.bubble and lost.bubble >= limits.late_half * (totals.blocking + totals.idle):
            return "pipeline"
        return "imbalance" if lost.uneven >= half and lost.uneven else "communication"
    if share(totals.exposed_comm + totals.exposed_copy + totals.idle) < limits.quiet:
        return "compute"
    host, copies = share(totals.idle + totals.host), share(totals.exposed_copy)
    if abs(host - copies) <= limits.balanced:
        return "balanced"
    if copies > host:
        return "copy"
    return max(
        (lost.input, "input"), (lost.bubble, "pipeline"), (totals.idle + totals.host - lost.input - lost.bubble, "host")
    )[1]


def _blind(analysis: Analysis, totals: Totals, bottleneck: str, limits: Thresholds) -> str | None:
    """Why nothing can be said, as a sentence with what it would take; ``None`` where something can."""
    alone = len(analysis.ranks) == 1
    if alone and totals.share(totals.fused) >= limits.fused and bottleneck not in ("communication", "straggler"):
        return (
            f"Cannot tell from this trace: {format_share(totals.share(totals.fused))} of {base_of(analysis)} is in "
            "kernels that "
            "compute and communicate at once, and one rank cannot see how long they wait. Give the traces of all ranks."
        )
    if bottleneck in ("communication", "straggler") and _below_noise(analysis, limits):
        return (
            "Cannot tell from this trace: exposed communication differs more between steps than it amounts to on "
            "average. "
            "Record more steps."
        )
    return None


def _below_noise(analysis: Analysis, limits: Thresholds) -> bool:
    """Whether the mean of what communication can be blamed for is within twice its standard error over steps."""
    steps: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for rank in analysis.ranks:
        for device in rank.devices:
            for unit in units(device, rank.optimizer_marks):
                known = unit.total("exposed_blocking")
                steps[unit.names].append((unit.total("exposed_comm") or 0) if known is None else known)
    means = [sum(values) / len(values) for values in steps.values()]
    if len(means) < limits.enough_steps:
        return False
    error = float(np.std(means, ddof=1)) / len(means) ** 0.5
    return bool(np.mean(means) <= limits.standard_errors * error)


def _doubt(analysis: Analysis, totals: Totals, lost: Lost, bottleneck: str, limits: Thresholds) -> str:
    """Why the verdict may not hold, as a sentence; empty where nothing speaks against it."""
    if any(rank.file.truncated for rank in analysis.ranks):
        return _CUT
    if bottleneck == "communication" and lost.artefact >= limits.late_half * totals.blocking:
        return _START
    profiled, plain = analysis.capture.get("profiled_step_ns"), analysis.capture.get("unprofiled_step_ns")
    if bottleneck == "host" and profiled and plain and profiled > (1 + limits.profiler_cost) * plain:
        return _PROFILER
    return ""
