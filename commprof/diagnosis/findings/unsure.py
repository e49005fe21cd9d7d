"""Late ranks that nobody is sure of, but that the critical path goes through.

Who waits for them may have sent meanwhile, so that it is not known how much of the waiting comes back
(:mod:`commprof.analysis.late_on_path`). What they do longer than equal ranks is measured without any waiting: the run
goes through it, and would end earlier by as much at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.findings.case import Claim
from commprof.diagnosis.findings.straggler import late_ranks
from commprof.diagnosis.ground import Ground
from commprof.intervals import Int64Array


@dataclass(frozen=True, slots=True, eq=False)
class Unsure:
    """One of them, ``row``: ``longer`` on the critical path by rank, nanoseconds in all, ``found`` per step of it, and
    the waiting for it up to that as a ``claim``."""

    row: Straggler
    longer: Int64Array
    found: int
    claim: Claim


def unsure(ground: Ground, cause: str, longer_of: Callable[[NDArray[np.bool_]], Int64Array]) -> Iterator[Unsure]:
    """Those late in most steps for this cause whose part of the path is worth a finding; ``longer_of`` is by how much
    the ranks of a mask make the path longer."""
    path = ground.analysis.critical_path
    if path is None:
        return
    numbers = np.array([rank.rank for rank in ground.analysis.ranks])
    for row in ground.analysis.harmless:
        if row.cause != cause or row.kind != "persistent":
            continue
        longer = longer_of(np.isin(numbers, row.members))
        found = int(longer.sum()) // path.steps
        if found * path.steps < ground.limits.finding * path.length:
            continue
        wait = np.where(np.isin(late_ranks(ground), row.members), ground.exposed.wait, 0)
        share = np.minimum(found / np.maximum(ground.per_step(ground.exposed.step, wait), 1), 1.0)
        yield Unsure(row, longer, found, Claim(wait=np.floor(wait * share[ground.exposed.step]).astype(np.int64)))
