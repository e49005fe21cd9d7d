"""Waiting for ranks that were late already where the recording begins: no property of the run.

Calls that the start of a recording made ten times as long stand out by themselves (:mod:`commprof.analysis.flags`).
Where ranks begin less far apart, what a late rank did since it began explains nothing of its lateness in the first
calls: that is inherited (``spec``: section 10), and with all ranks at hand nothing but the start is left to cause it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.lateness import INHERITED
from commprof.diagnosis.findings.case import Case, Claim, steps_of
from commprof.diagnosis.findings.straggler import late_ranks
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.intervals import Int64Array


def late_start(ground: Ground) -> Iterator[Case]:
    """What ranks wait in the first steps for others that began later, where that is worth a finding in these steps."""
    wait = _inherited(ground)
    found = ground.per_step(ground.exposed.step, wait)
    length = np.array([step.total("duration") for step in ground.steps], np.int64)
    worth = found >= np.maximum(ground.limits.finding * length, 1)
    wait = np.where(worth[ground.exposed.step], wait, 0)
    rows = wait > 0
    if not rows.any():
        return
    yield Case(
        "profiler-start",
        "Ranks began late: where the recording begins others waited for them: an artefact, not a cost of the run",
        Claim(wait=wait),
        ("Record after a few warm-up steps, and leave out the first steps of the recording.",),
        (Evidence("waiting for ranks that began late, in all", int(wait.sum()), "ns"),),
        cause="inherited", ranks=tuple(np.unique(late_ranks(ground)[rows]).tolist()), steps=steps_of(ground, rows),
        group_id=ground.one_group(rows), calls=ground.calls_in(rows), nothing_back=True, most="info",
    )  # fmt: skip


def _inherited(ground: Ground) -> Int64Array:
    """The part of the waiting of every exposed row that a rank makes others wait which was late from the beginning.

    Who is late again and again was so for its usual reason in the first step too, begun before the recording.
    """
    analysis, charges = ground.analysis, ground.analysis.charges
    if charges is None or analysis.matching is None or analysis.missing_ranks:
        return np.zeros(len(ground.exposed), np.int64)
    total = charges.own.sum(axis=2)
    part = np.where(total > 0, charges.own[:, :, INHERITED] / np.maximum(total, 1.0), 0.0)
    step_of = {name: number for number, name in enumerate(analysis.matching.calls.step_names)}
    index = {rank.rank: number for number, rank in enumerate(analysis.ranks)}
    out = np.zeros(len(ground.exposed), np.int64)
    late = late_ranks(ground)
    named = [member for straggler in analysis.stragglers for member in straggler.members]
    for row in np.flatnonzero((late >= 0) & ~np.isin(late, named) & (ground.exposed.wait > 0)).tolist():
        name = ground.steps[int(ground.exposed.step[row])].rank.shares.step_names[int(ground.exposed.window[row])]
        out[row] = int(ground.exposed.wait[row] * part[index[int(late[row])], step_of[name]])
    return out
