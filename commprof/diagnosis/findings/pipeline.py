"""Pipelines: the bubble, which is idle time and waiting for the neighbour together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.findings.case import Case, Claim, idle_of, reference_ranks, steps_of
from commprof.diagnosis.findings.stages_apart import late_hosts, slow_kernels
from commprof.diagnosis.findings.unblocked import handed_over
from commprof.diagnosis.ground import P2P, Ground
from commprof.diagnosis.model import Evidence


def pipeline_bubble(ground: Ground) -> Iterator[Case]:
    """A stage has nothing to do: idle inside the pipeline's part of the step, and waiting for its receives."""
    rows = ground.role_is("pp") & ground.operation_is(*P2P)
    idle = idle_of(ground, "bubble")
    if not rows.any() and not idle.any():
        return
    claim = Claim(wait=np.where(rows, ground.exposed.wait, 0), idle=idle)
    late = handed_over(ground)
    if late is not None:
        # What stages that wait for their collectives add is told of them.
        claim = Claim(wait=np.where(rows, ground.exposed.wait, 0) - late.wait, idle=idle - late.idle)
    found = ground.analysis.pipeline
    evidence = [
        Evidence("idle inside the pipeline", int(idle.sum()) // len(ground.steps), "ns"),
        Evidence("waiting for receives", int(ground.exposed.wait[rows].sum()) // len(ground.steps), "ns"),
    ]
    if found is not None:
        evidence += [
            Evidence("stages", found.stages, "stages"),
            Evidence("micro-batches", found.microbatches, "micro-batches"),
            Evidence("ideal bubble", found.ideal_share, "share of the pipeline's part of the step"),
        ]
    evidence += [*late_hosts(ground), *slow_kernels(ground)]
    yield Case(
        "pipeline-bubble",
        "Pipeline bubble: stages wait for their micro-batches",
        claim,
        (
            "More micro-batches (smaller ones cost efficiency, more of them memory), interleaved stages "
            "(--num-layers-per-virtual-pipeline-stage in Megatron, ScheduleInterleaved1F1B in torch; more messages) or "
            "a zero-bubble schedule (ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble; memory).",
            "Even out the stages: the longest one sets the pace of all.",
        ),
        tuple(evidence),
        ranks=reference_ranks(ground), steps=steps_of(ground, rows),
        group_id=ground.one_group(rows), calls=ground.calls_in(rows) or None, structural=True, confidence="bound",
    )  # fmt: skip
