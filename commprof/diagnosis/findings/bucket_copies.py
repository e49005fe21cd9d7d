"""Copies of gradients into the buckets that are reduced, which views of the buckets make needless."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.where_model import BucketCopies
from commprof.diagnosis.findings.case import Case, Claim
from commprof.diagnosis.ground import Ground, ReferenceStep
from commprof.diagnosis.model import Evidence
from commprof.units import format_ns


def bucket_copies(ground: Ground) -> Iterator[Case]:
    """Gradients are copied into their buckets, or back, while nothing else runs.

    What of the copies runs beside compute or communication is told and charged to nobody here.
    """
    if _has_views(ground):
        return
    found = [_of_step(step) for step in ground.steps]
    exposed = np.array([sum(row.exposed for row in rows) for rows in found], np.int64)
    if not exposed.any():
        return
    count = len(ground.steps)
    total = sum(row.ns for rows in found for row in rows) // count
    chosen = [step for step, rows in zip(ground.steps, found, strict=True) if any(row.exposed for row in rows)]
    yield Case(
        "bucket-copies",
        f"Gradients are copied into their buckets before they are reduced: bucket copies of {format_ns(total)} per "
        "step",
        Claim(copy=exposed),
        (
            "Let gradients be views of their buckets: torch.nn.parallel.DistributedDataParallel("
            "gradient_as_bucket_view=True); it also saves the memory of one set of gradients, and detach_() on "
            "gradients is then refused.",
            "With buckets of the program's own, accumulate into the flat buffer (contiguous gradients) instead of "
            "copying before every reduction.",
        ),
        (
            Evidence("bucket copies per step", total, "ns"),
            Evidence("of them beside nothing else", int(exposed.sum()) // count, "ns"),
            Evidence("copies per step", round(sum(row.count for rows in found for row in rows) / count, 1), "copies"),
        ),
        cause="copy", ranks=tuple(sorted({step.rank.rank for step in chosen})),
        steps=tuple(name for step in chosen for name in step.unit.names),
    )  # fmt: skip


def _of_step(step: ReferenceStep) -> list[BucketCopies]:
    """The bucket copies of one reference step."""
    names = step.rank.shares.step_names
    windows = {number for number, name in enumerate(names) if name in step.unit.names}
    return [row for row in step.rank.bucket_copies if row.step in windows and row.device == step.device.device]


def _has_views(ground: Ground) -> bool:
    """Whether the capture says that gradients are views of their buckets already."""
    options = [module.options for manifest in ground.analysis.manifests for module in manifest.ddp]
    return bool(options) and all(int(known.get("gradient_as_bucket_view", 0) or 0) for known in options)
