"""What comes back when gradient reductions run beside the backward pass, and what of them stays after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.places import NOWHERE
from commprof.diagnosis.findings.case import PARTS, Claim, hideable
from commprof.diagnosis.findings.reductions import NOT_OVERLAP, Reductions, all_gradients, repeats, unhidden
from commprof.diagnosis.findings.shorter import transfers
from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED

_NEAR_NS = 5_000
"""Reductions that follow each other so closely leave the device no time to idle."""
_MOST_PARTS = 10_000
"""Into more buckets no reduction is cut: a quarter of a terabyte in the usual ones, or the size of a damaged file."""

_FORWARD_OF_BACKWARD = 0.5
"""A forward pass multiplies each matrix once, a backward pass twice: for the inputs and for the weights."""


def with_overlap(ground: Ground, rows: Mask, found: list[Reductions], cap: int | None = None) -> Int64Array:
    """What would come back per step if reductions ran beside the backward pass in buckets of the usual size, or of
    ``cap`` bytes.

    Gradients are taken to be ready in proportion to their bytes, even where the kernel that makes them would have to be
    cut for that: which kernel makes which is not known, and what comes back is a bound. What is reduced after the
    backward pass then stays exposed: the last bucket at least, and what queues before it. Some of that may run while
    the CPU launches what comes next, which does not start sooner then. Where the device also idles between reductions
    until the next one is launched, it is the end of the last one that comes sooner.
    """
    exposed = ground.exposed
    late = ground.per_step(exposed.step, np.where(rows, exposed.rest + exposed.wait, 0))
    launching = ground.per_step(exposed.step, np.where(rows & exposed.awaited, exposed.host, 0))
    ends = np.array([_goes_on(ground, index, step) for index, step in enumerate(found)], np.int64)
    now = np.maximum(late + launching, ends)
    back: Int64Array = np.clip(now - _after_overlap(ground, found, cap), 0, late)
    return back


@dataclass(slots=True, eq=False)
class Schedule:
    """What a better schedule of the reductions would change: the rows that it is about, those of every series of
    reductions where all come after their backward pass, what is claimed of them, and what comes back, ns per step."""

    rows: Mask
    claim: Claim
    back: Int64Array


def schedule(
    ground: Ground, last: Mask, found: list[Reductions], cap: int | None = None, beside: Mask | None = None
) -> Schedule:
    """What overlap would bring; ``last`` are the rows of the last series, ``found`` its reductions. What other rows
    ``beside`` them expose would go with them: reductions of several groups share the time in which none is hidden.

    Where gradients are reduced after the backward pass of every micro-batch and none of that is hidden, overlap hides
    as much of each series. What it leaves exposed of the earlier ones is there because they are repeated.
    """
    rows, claim = last.copy(), hideable(ground, last)
    back = with_overlap(ground, last if beside is None else last | beside, found, cap)
    early, series = all_gradients(ground)
    early &= ~last & ~ground.cause_is(*NOT_OVERLAP)
    times = np.array(repeats(ground, series), np.int64)
    if (times < 2).any() or not early.any() or not unhidden(ground, series) or not _of_passes(ground, series):
        return Schedule(rows, claim, back)
    exposed = ground.exposed
    earlier = hideable(ground, early)
    total = ground.per_step(exposed.step, sum(getattr(earlier, part) for part in PARTS))
    hidden = np.maximum(total - (times - 1) * _after_overlap(ground, found, cap), 0)
    share = (hidden / np.maximum(total, 1))[exposed.step]
    for part in PARTS:
        of_part = np.floor(getattr(earlier, part) * share).astype(np.int64)
        setattr(claim, part, getattr(claim, part) + of_part)
    return Schedule(rows | early, claim, back + hidden)


def _of_passes(ground: Ground, series: list[Reductions]) -> bool:
    """Whether it is known that every series belongs to a backward pass of its own."""
    return all(
        (step.rank.places.phase[found.calls] != NOWHERE).any() for step, found in zip(ground.steps, series, strict=True)
    )


def exposed_anyway(ground: Ground, found: list[Reductions]) -> Int64Array:
    """How long the reductions of every step go on after the backward pass if they run beside it."""
    cap = ground.limits.bucket_cap
    return np.array([_stays(ground, index, step, cap) for index, step in enumerate(found)], np.int64)


def _after_overlap(ground: Ground, found: list[Reductions], cap: int | None) -> Int64Array:
    """The same for reductions that are launched after the backward pass now: the CPU needs its time for both, in
    whatever order, and the last of them is launched no sooner than now."""
    size = ground.limits.bucket_cap if cap is None else cap
    return np.array([_stays(ground, index, step, size, launched=True) for index, step in enumerate(found)], np.int64)


def _goes_on(ground: Ground, index: int, found: Reductions) -> int:
    """How long reductions go on after the backward pass as they are, where the device idles between them; 0 where it
    does not, or where it is not known when the pass ends."""
    end = _backward(ground, ground.steps[index], found)[1] if len(found.calls) else None
    if end is None:
        return 0
    calls = ground.steps[index].rank.calls
    order = found.calls[np.argsort(calls.start[found.calls], kind="stable")]
    reached = np.maximum.accumulate(calls.end[order])
    gaps = np.maximum(calls.start[order][1:] - reached[:-1], 0).sum()
    return max(0, int(reached[-1]) - end) if gaps > _NEAR_NS else 0


def _stays(ground: Ground, index: int, found: Reductions, cap: int, *, launched: bool = False) -> int:
    """How long reductions go on after the backward pass if each starts as soon as its gradients are ready.

    Those on streams of their own, as of groups of other ranks, run side by side: the stream that ends last decides.
    """
    if not len(found.calls):
        return 0
    step = ground.steps[index]
    lasted, size = transfers(ground, step)[found.calls], np.maximum(found.size, 0)
    parts = np.clip(-(-size // cap), 1, _MOST_PARTS)
    stream = np.repeat(step.rank.calls.stream[found.calls], parts)
    lasted, size = np.repeat(lasted / parts, parts), np.repeat(size / parts, parts)
    total = float(size.sum())
    share = np.cumsum(size) / total if total else np.arange(1, len(size) + 1) / len(size)
    backward, end = _backward(ground, step, found)
    begin = (share - 1) * backward
    if launched and end is not None:
        at = step.rank.calls.launched[found.calls]
        begin = np.maximum(
            begin, np.repeat(np.where(at == NOT_LAUNCHED, end - backward, at) - end, parts) + (share - 1) * backward
        )
    # Each bucket ends no sooner than any before it on its stream is ready and all from there on are through.
    stays = 0.0
    for one in np.unique(stream).tolist():
        mine = stream == one
        stays = max(stays, float((begin[mine] + np.cumsum(lasted[mine][::-1])[::-1]).max()))
    return round(stays)


def _backward(ground: Ground, step: ReferenceStep, found: Reductions) -> tuple[int, int | None]:
    """How long the backward pass of a rank lasts without the reductions that it waits for, its host and its other
    communication included: what can hide reductions; and when it ends. Where that is not known all compute of the step.

    Of several micro-batches it is the pass of one: from the first of them to the end of the last there lie as many
    passes as micro-batches, and forward passes between those that are apart.
    """
    mine = set(found.calls.tolist())
    for bucket in step.rank.buckets:
        if bucket.call in mine and bucket.backward_start is not None and bucket.backward_end is not None:
            pieces = step.rank.shares.pieces
            inside = (pieces.start >= bucket.backward_start) & (pieces.end <= bucket.backward_end)
            inside &= np.isin(pieces.call, [other.call for other in step.rank.buckets])
            waited = int((pieces.ns - step.rank.causes.host)[inside].sum())
            apart = _passes_apart(step)
            passes = max(apart, _in_pipeline(ground, step))
            length = passes + (apart - 1) * _FORWARD_OF_BACKWARD
            return round(max(0, bucket.backward_end - bucket.backward_start - waited) / length), bucket.backward_end
    return step.total("compute"), None


def _passes_apart(step: ReferenceStep) -> int:
    """How many backward passes a step of a rank has with other work between them, by the numbers of those that reduce
    gradients; 1 where that is not known."""
    last: dict[int, int] = {}
    for bucket in step.rank.buckets:
        if bucket.step >= 0:
            last[bucket.step] = max(last.get(bucket.step, bucket.series), bucket.series)
    if len(last) < 2:
        return 1
    first, final = min(last), max(last)
    return max(1, round((last[final] - last[first]) / (final - first)))


def _in_pipeline(ground: Ground, step: ReferenceStep) -> int:
    """Micro-batches of a rank's step where it is a stage of a pipeline: it may run their backward passes in a row."""
    pipeline = ground.analysis.pipeline
    if pipeline is None or step.rank.rank not in pipeline.stage_of:
        return 1
    return (pipeline.microbatches or 1) * (pipeline.chunks or 1)
