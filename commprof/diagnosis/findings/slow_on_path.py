"""Devices that take longer for the same kernels and that the critical path goes through, where waiting does not tell.

Who waits for a slow device may have sent meanwhile, so that it is not sure how much of the waiting comes back: then
nobody is named for it (:mod:`commprof.analysis.late_on_path`). Kernels that others run faster are measured without any
waiting: the run goes through them, and would end earlier by what they take longer at most.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.device_pace import excess_on_path
from commprof.diagnosis.findings.case import Case, Claim, all_steps
from commprof.diagnosis.findings.straggler import LATE_BY, late_ranks
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath


def slow_on_path(ground: Ground) -> Iterator[Case]:
    """Devices that are slower in most steps and not named as late, but make the critical path longer."""
    path, ranks = ground.analysis.critical_path, ground.analysis.ranks
    if path is None:
        return
    numbers = np.array([rank.rank for rank in ranks])
    for row in ground.analysis.harmless:
        if row.cause != "slow-device" or row.kind != "persistent":
            continue
        longer = excess_on_path(path, ranks, np.isin(numbers, row.members))
        found = int(longer.sum()) // path.steps
        if found * path.steps < ground.limits.finding * path.length:
            continue
        wait = np.where(np.isin(late_ranks(ground), row.members), ground.exposed.wait, 0)
        share = np.minimum(found / np.maximum(ground.per_step(ground.exposed.step, wait), 1), 1.0)
        why, advice = LATE_BY["slow-device"]
        who = f"{'Rank' if len(row.members) == 1 else 'Ranks'} {ranks_text(row.members)}"
        yield Case(
            "straggler",
            f"{who}: {why}, and the critical path goes through them",
            Claim(wait=np.floor(wait * share[ground.exposed.step]).astype(np.int64)),
            advice,
            (
                Evidence("longer on the critical path than devices of equal ranks, per step", found, "ns"),
                *(Evidence(what, value, unit) for what, value, unit in row.evidence[:5]),
            ),
            cause="slow-device", host_back=True, ranks=tuple(row.members), steps=all_steps(ground), confidence="bound",
            path=OnPath({"own": longer}, None, len(row.members)),
            alone=np.full(len(ground.steps), found, np.int64),
        )  # fmt: skip
