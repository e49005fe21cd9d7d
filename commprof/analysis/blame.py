"""Why a rank is late: its largest local reason; for compute, whether the same kernels take longer or there are more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.behaviour import COMM, COMPUTE, COPY, HOST, INPUT, OTHER
from commprof.analysis.charges import Charges
from commprof.analysis.core_wait import is_crowded, waits_for_core
from commprof.analysis.lateness import INHERITED
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.peers import Peers

CAUSE_OF = {
    COMM: "communication",
    COPY: "copy",
    INPUT: "input",
    HOST: "host",
    OTHER: "unknown",
    INHERITED: "inherited",
}
_WORDS = {
    COMPUTE: "compute", COMM: "transfers", COPY: "copies", INPUT: "data loader", HOST: "host gaps",
    OTHER: "gaps that nothing explains", INHERITED: "from before the capture or a missing rank",
}  # fmt: skip

AS_MANY = 0.01
"""Counts of a kind of kernel per step that differ by no more than this part are equal."""

Evidence = tuple[tuple[str, int | float | str, str], ...]


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause in the words of the report, and what speaks for it: (what, value, unit). ``or_else`` is another one that
    the trace cannot tell from it."""

    name: str
    evidence: Evidence
    or_else: str | None = None


@dataclass(frozen=True, slots=True)
class Excess:
    """How a rank's compute per step differs from that of its peers, nanoseconds: ``slower`` from the same kernels
    taking longer, ``more`` from more or other kernels. ``pace`` is how many times as long those kinds take in all that
    it runs as often: operators on a CPU are told by name alone, and with other counts the sizes differ too. ``kernel``
    is the one that differs most, ``factor`` by how much.
    """

    slower: float
    more: float
    pace: float
    kernel: str
    factor: float


def find_cause(
    analysis: Analysis, charges: Charges, peers: Peers, members: Sequence[int], steps: Sequence[str]
) -> Cause:
    """The cause of the own charges of these ranks (indices into the input)."""
    reasons = charges.own[list(members)].sum(axis=(0, 1))
    largest = int(reasons.argmax())
    total = float(reasons.sum())
    share: Evidence = ((f"share of the charge: {_WORDS[largest]}", float(reasons[largest]) / max(total, 1.0), "share"),)
    crowded = all(analysis.ranks[rank].on_cpu and is_crowded(analysis, rank) for rank in members)
    if crowded:
        # Gaps between operators, input and transfers take longer there too, whichever of them is the largest.
        waited = max(waits_for_core(analysis, rank) or 0.0 for rank in members)
        return Cause("slow-device", (*share, ("ready to run, but others used its core", waited, "share")))
    if largest != COMPUTE:
        return Cause(CAUSE_OF[largest], share)
    found = [excess for rank in members if (excess := compute_excess(analysis, peers, rank, steps)) is not None]
    if not found:
        return Cause("unknown", share)
    slower, more = sum(excess.slower for excess in found), sum(excess.more for excess in found)
    top = max(found, key=lambda excess: excess.slower + excess.more)
    detail: Evidence = (
        *_by_kernels(slower, more),
        (f"{top.kernel[:80]} against the median rank", round(top.factor, 3), "times"),
    )
    return Cause("slow-device" if slower >= more else "more-work", (*share, *detail))


def cause_of_long_stage(
    analysis: Analysis, peers: Peers, members: Sequence[int], steps: Sequence[str], excess: float
) -> Cause:
    """Why a stage of a pipeline computes longer than the others by ``excess`` of it: it has more work.

    Replicas of one stage are on different devices, which are not slow together. One rank alone has none to compare
    with, only other stages: kernels that it runs more often are work, but where equal ones last longer, larger tensors
    and a slow device look alike.
    """
    evidence: Evidence = (("more compute than the median stage", round(excess, 4), "share"),)
    found = compute_excess(analysis, peers, members[0], steps) if len(members) == 1 else None
    if found is None or found.slower < found.more:
        return Cause("more-work", evidence)
    return Cause("more-work", (*evidence, *_by_kernels(found.slower, found.more)), or_else="slow-device")


def _by_kernels(slower: float, more: float) -> Evidence:
    return (
        ("the same kernels take longer, per step", round(slower), "ns"),
        ("more or larger kernels, per step", round(more), "ns"),
    )


def compute_excess(analysis: Analysis, peers: Peers, rank: int, steps: Sequence[str]) -> Excess | None:
    """Compute of a rank per step against the median of the other ranks of its role; ``None`` without any."""
    others = peers.others(rank) or [index for index in range(len(analysis.ranks)) if index != rank]
    if not others:
        return None
    mine = kernel_totals(analysis.ranks[rank], steps)
    theirs = [kernel_totals(analysis.ranks[index], steps) for index in others[:64]]
    slower = more = alike = alike_usual = 0.0
    worst, factor, name = 0.0, 1.0, ""
    for kind, (count, ns) in mine.items():
        known = [table[kind] for table in theirs if kind in table]
        if 2 * len(known) < len(theirs):
            more += ns
            continue
        usual_count = float(np.median([n for n, _ in known]))
        usual = float(np.median([total / n for n, total in known]))
        own = ns / count
        longer = min(count, usual_count) * (own - usual)
        slower += longer
        if abs(count - usual_count) <= AS_MANY * usual_count:
            alike, alike_usual = alike + count * own, alike_usual + count * usual
        more += (count - usual_count) * (own if count > usual_count else usual)
        if abs(longer) > worst:
            worst, factor, name = abs(longer), own / usual if usual else 1.0, kind.rpartition("|")[0]
    return Excess(max(slower, 0.0), max(more, 0.0), alike / alike_usual if alike_usual else 1.0, name, factor)


def kernel_totals(rank: RankAnalysis, steps: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Calls and nanoseconds per step of each kind of kernel in these steps."""
    if rank.behaviour is None:
        return {}
    table = rank.behaviour.kernels
    names = rank.shares.step_names
    chosen = np.array([index for index, name in enumerate(names) if name in set(steps)], np.int64)
    rows = np.isin(table.step, chosen)
    kinds = len(table.kinds)
    count = np.bincount(table.kind[rows], table.count[rows].astype(np.float64), minlength=kinds)
    total = np.bincount(table.kind[rows], table.ns[rows].astype(np.float64), minlength=kinds)
    parts = max(1, len(chosen))
    return {
        table.kinds[kind]: (float(count[kind]) / parts, float(total[kind]) / parts)
        for kind in np.flatnonzero(count).tolist()
    }
