"""Expert parallel: all-to-alls in which some ranks have more to send than others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.findings.case import Case, of_rest, ranks_of, steps_of
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence, Threshold


def all_to_all_imbalance(ground: Ground) -> Iterator[Case]:
    """The rank with the most tokens decides how long everybody's exchange and its experts take."""
    ratios = {row.match: row.ratio for row in ground.analysis.imbalance if row.ratio is not None}
    if not ratios:
        return
    ratio = np.array([ratios.get(match, 1.0) for match in ground.exposed.match.tolist()])
    rows = (ratio >= ground.limits.imbalance) & ground.operation_is("all_to_all")
    if not rows.any():
        return
    claim = of_rest(ground, rows, 1 - 1 / ratio)
    claim.wait = np.where(rows, ground.exposed.wait, 0)
    yield Case(
        "all-to-all-imbalance",
        "Unequal all-to-alls: ranks wait for the one with the most tokens",
        claim,
        (
            "Balance the experts: auxiliary loss or bias-based routing, a capacity factor (drops tokens), or place "
            "busy "
            "experts apart; expert parallel over fewer ranks evens loads out.",
        ),
        (
            Evidence("largest over mean of the bytes sent", round(float(ratio.max()), 3), "times"),
            Evidence("waiting in these calls", int(ground.exposed.wait[rows].sum()) // len(ground.steps), "ns"),
        ),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), confidence="estimate",
        threshold=Threshold(ground.limits.imbalance, "largest over mean", "default: a tenth more than the others"),
    )  # fmt: skip
