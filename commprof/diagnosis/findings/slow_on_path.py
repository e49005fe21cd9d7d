"""Devices slower for the same kernels, which the critical path goes through, where waiting does not tell."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.device_pace import excess_on_path
from commprof.diagnosis.findings.case import Case, all_steps
from commprof.diagnosis.findings.straggler import LATE_BY
from commprof.diagnosis.findings.unsure import unsure
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath


def slow_on_path(ground: Ground) -> Iterator[Case]:
    """Devices that are slower in most steps and not named as late, but make the critical path longer."""
    path, ranks = ground.analysis.critical_path, ground.analysis.ranks
    if path is None:
        return
    for one in unsure(ground, "slow-device", lambda late: excess_on_path(path, ranks, late)):
        row = one.row
        why, advice = LATE_BY["slow-device"]
        who = f"{'Rank' if len(row.members) == 1 else 'Ranks'} {ranks_text(row.members)}"
        yield Case(
            "straggler",
            f"{who}: {why}, and the critical path goes through them",
            one.claim,
            advice,
            (
                Evidence("longer on the critical path than devices of equal ranks, per step", one.found, "ns"),
                *(Evidence(what, value, unit) for what, value, unit in row.evidence[:5]),
            ),
            cause="slow-device", host_back=True, ranks=tuple(row.members), steps=all_steps(ground), confidence="bound",
            path=OnPath({"own": one.longer}, None, len(row.members)),
            alone=np.full(len(ground.steps), one.found, np.int64),
        )  # fmt: skip
