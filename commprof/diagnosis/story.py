"""Whether verdict and findings tell one story: the verdict is a mean over ranks, findings are of the rank that loses
the most in each step, so the first finding may speak of something else. Then the verdict names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from commprof.analysis.combine import ranks_text
from commprof.analysis.model import Analysis
from commprof.diagnosis.catalogue import COMPUTE_SIDE
from commprof.diagnosis.model import Finding
from commprof.diagnosis.thresholds import Thresholds
from commprof.units import format_share

_SPEAKS_FOR: dict[str, frozenset[str]] = {
    "straggler": frozenset({"straggler"}),
    "all-to-all-imbalance": frozenset({"imbalance"}),
    "pipeline-bubble": frozenset({"pipeline"}),
    "input-bound": frozenset({"input"}),
    "host-bound": frozenset({"host"}),
    "allocator-retries": frozenset({"host"}),
    "device-synchronisation": frozenset({"host"}),
    "blocking-wait": frozenset({"host", "communication"}),
    "copy-bound": frozenset({"copy"}),
    "bucket-copies": frozenset({"copy"}),
}
"""Bottlenecks that a finding is a reason for; all other findings are about communication."""
_LATE = {"host": "host", "input": "input", "more-work": "imbalance"}
"""What a late rank is a reason for beside lateness, by its cause."""


def first_of(findings: Sequence[Finding]) -> Finding | None:
    """The finding that a reader sees first: entries of severity ``info`` are none, nor those that would give nothing
    back."""
    return next((finding for finding in findings if finding.severity != "info" and finding.stated_share), None)


def speaks_for(analysis: Analysis, finding: Finding, bottleneck: str) -> bool:
    """Whether a finding is a reason for this bottleneck."""
    if bottleneck == "unknown" or finding.id in COMPUTE_SIDE:
        return True
    reasons = set(_SPEAKS_FOR.get(finding.id, {"communication"}))
    if finding.id == "straggler":
        reasons.add(_LATE.get(finding.cause or "", "straggler"))
    # What a late rank lacks itself is why the others wait for it.
    named = [row for row in analysis.stragglers if _LATE.get(row.cause) in reasons]
    if any(set(finding.ranks) & set(row.members) for row in named):
        reasons.add("straggler")
    return bottleneck in reasons


def beside(analysis: Analysis, findings: Sequence[Finding], bottleneck: str, limits: Thresholds, base: str) -> str:
    """A sentence on the first finding where it is no reason for the bottleneck; empty where both tell one story, or
    where it gives back too little for a sentence.

    Where the device is busy computing only what is not ``quiet`` (a share of the step) says otherwise.
    """
    first = first_of(findings)
    if first is None or first.share_of_step is None or speaks_for(analysis, first, bottleneck):
        return ""
    if (first.stated_share or 0.0) < limits.little:
        return ""
    if bottleneck in ("compute", "balanced") and first.share_of_step < limits.quiet:
        return ""
    title = first.title.partition(": ")[0]
    name = title if title[:2].isupper() else title[:1].lower() + title[1:]
    return (
        f" The largest single cause is another one: {name} ({format_share(first.stated_share)} of {base}"
        f"{_on(analysis, first)})."
    )


def _on(analysis: Analysis, first: Finding) -> str:
    """On whom, of several ranks: findings are of those that lose the most."""
    if len(analysis.ranks) < 2:
        return ""
    if first.id == "straggler" or not first.ranks:
        return " on the rank that loses the most"
    who = f"{'rank' if len(first.ranks) == 1 else 'ranks'} {ranks_text(first.ranks)}"
    return f" on {who}, which lose{'s' if len(first.ranks) == 1 else ''} the most"
