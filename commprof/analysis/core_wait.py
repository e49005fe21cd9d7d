"""Ranks whose training thread has to wait for its core: what the operating system counted while they were recorded."""

from __future__ import annotations

import statistics

from commprof.analysis.model import Analysis

CROWDED = 0.25
"""One other busy program on a core takes half of it. Without one, threads of the same process and of the system made a
thread wait for 1 to 20 % of its time, and two ranks differed by up to 18 % (on two cores, 170 runs); with one it waited
for 51 to 54 % (45 runs)."""


def waits_for_core(analysis: Analysis, rank: int) -> float | None:
    """Share of its time for which the training thread of a rank (an index) was ready to run and had no core; ``None``
    where the capture does not tell."""
    share = analysis.capture.get("core_wait", {}).get(str(analysis.ranks[rank].rank))
    return None if share is None else float(share)


def is_crowded(analysis: Analysis, rank: int) -> bool:
    """Whether others use the core of a rank so much more than those of the other ranks that this makes it late."""
    own = waits_for_core(analysis, rank)
    others = [waits_for_core(analysis, index) for index in range(len(analysis.ranks)) if index != rank]
    known = [share for share in others if share is not None]
    return own is not None and bool(known) and own - statistics.median(known) >= CROWDED
