"""Gradient reduction of data parallel: when it starts, in how many pieces, how often, and what is left at the end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.findings.case import Case, Claim, ranks_of, reference_ranks, steps_of, whole
from commprof.diagnosis.findings.overlapping import schedule
from commprof.diagnosis.findings.reductions import (
    NOT_OVERLAP,
    Reductions,
    advised_caps,
    all_gradients,
    facts,
    last_is_large,
    of_gradients,
    repeats,
    tail_of,
    unhidden,
)
from commprof.diagnosis.findings.sizes import CAP
from commprof.diagnosis.ground import Ground, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.units import format_ns

_NEARLY_ALL = 0.9
"""Part of the exposed reductions that must come after the backward pass to say that they start only then."""
_WORTH = 0.5
"""Part of what makes a finding: what overlap would bring is known to a factor of two."""


def repeated_reduction(ground: Ground) -> Iterator[Case]:
    """Gradients are reduced after every micro-batch, though only the last reduction before the optimizer is needed."""
    rows, found = all_gradients(ground)
    times = repeats(ground, found)
    count = min(times, default=1)
    if count < 2:
        return
    early = np.zeros(len(rows), np.bool_)
    for index, step in enumerate(found):
        early |= (ground.exposed.step == index) & np.isin(
            ground.exposed.call, step.calls[: -(len(step.calls) // times[index])]
        )
    rows &= early
    alone = ground.per_step(ground.exposed.step, np.where(rows, ground.exposed.wait + ground.exposed.rest, 0))
    yield Case(
        "repeated-reduction",
        f"Gradients are reduced {count} times per optimizer step",
        whole(ground, rows, "wait", "rest"),
        (
            "Reduce once: run all micro-batches but the last under no_sync() (DDP), set_requires_gradient_sync(False) "
            "(FSDP2; "
            "unsharded gradients cost memory) or gradient_accumulation_steps of the framework.",
        ),
        (Evidence("reductions of the same gradients per optimizer step", count, "times"), *facts(ground, rows, found)),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), alone=alone,
        threshold=Threshold(1, "reductions per optimizer step", "one reduction gives the same gradients"),
    )  # fmt: skip


def compiled_backward(ground: Ground) -> Iterator[Case]:
    """A compiled backward pass returns all gradients at its end: the reductions come in one burst after it."""
    rows, found = of_gradients(ground)
    if not rows.any() or not unhidden(ground, found) or not _is_compiled(ground):
        return
    better = schedule(ground, rows, found)
    rows = better.rows
    yield Case(
        "compiled-backward",
        "The compiled backward pass returns all gradients at once: reduction starts only after backward",
        better.claim,
        (
            "Let the compiler split the graph at buckets (torch._dynamo.config.optimize_ddp, DDPOptimizer: compile the "
            "DDP "
            "module, not the module inside it) or use compiled autograd (torch._dynamo.config.compiled_autograd=True).",
        ),
        facts(ground, rows, found),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), recoverable=better.back,
    )  # fmt: skip


def _is_compiled(ground: Ground) -> bool:
    return any("compiled-backward" in step.rank.spans for step in ground.steps)


def ddp_no_overlap(ground: Ground) -> Iterator[Case]:
    """Several reductions, none beside compute, all after the backward pass."""
    rows, found = of_gradients(ground)
    if min((len(step.calls) for step in found), default=0) < 2 or not unhidden(ground, found):
        return
    rows &= ~ground.cause_is(*NOT_OVERLAP)
    tail = tail_of(ground, rows)
    if ground.exposed.ns[tail].sum() < _NEARLY_ALL * ground.exposed.ns[rows].sum() or last_is_large(ground, found):
        return
    better = schedule(ground, rows, found)
    if better.back.sum() < _WORTH * ground.limits.finding * ground.duration:
        return  # overlap would bring next to nothing: what is left after the backward pass is left in any case
    rows = better.rows
    yield Case(
        "ddp-no-overlap",
        "Gradient reduction starts only after backward: nothing hides it",
        better.claim,
        (
            "Let DDP reduce during the backward pass: no manual all-reduce after backward(), delay_all_reduce=False "
            "(apex), "
            "overlap_comm=True (DeepSpeed; buffers cost memory), --overlap-grad-reduce (Megatron).",
            "If DDP is used as it is: the first iteration, a bucket order that does not match the backward pass, or "
            "find_unused_parameters may delay the first bucket.",
        ),
        facts(ground, rows, found),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), recoverable=better.back,
    )  # fmt: skip


def reduction_alternates(ground: Ground) -> Iterator[Case]:
    """Compute and reduction take turns: each waits for the other."""
    rows, found = of_gradients(ground)
    if min((len(step.calls) for step in found), default=0) < 2 or not unhidden(ground, found):
        return
    if _all_latency(ground, found):
        return  # in whatever order they come: joined they would not take turns
    rows &= ~ground.cause_is(*NOT_OVERLAP)
    early = rows & ~tail_of(ground, rows)
    if ground.exposed.rest[early].sum() <= (1 - _NEARLY_ALL) * ground.exposed.rest[rows].sum():
        return
    if ground.exposed.host[early].sum() > ground.exposed.rest[early].sum():
        return  # compute was not launched meanwhile: it is the CPU that takes turns with the reductions
    if np.isin(ground.exposed.group[rows], ground.exposed.group[ground.cause_is("no-prefetch")]).any():
        return  # compute waits for a gather, which was not launched before the reduction that it queues behind
    yield Case(
        "reduction-alternates",
        "Compute and reduction alternate: while one runs the other waits",
        whole(ground, rows),
        (
            "Look for what orders them: overlap_comm=False or contiguous_gradients with one buffer (DeepSpeed ZeRO-1 "
            "and 2), a "
            "stream that is waited for after every bucket, CUDA_DEVICE_MAX_CONNECTIONS=1. A second buffer costs "
            "memory.",
        ),
        facts(ground, rows, found),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows),
    )  # fmt: skip


def _all_latency(ground: Ground, found: list[Reductions]) -> bool:
    """Whether most of many reductions are so small that latency decides how long they take."""
    sizes = np.concatenate([step.size for step in found])
    many = min(len(step.calls) for step in found) >= ground.limits.many_calls
    return many and bool((sizes >= 0).all()) and float(np.median(sizes)) < ground.limits.tiny_message


def ddp_tail_bucket(ground: Ground) -> Iterator[Case]:
    """The last bucket ends after the backward pass: no later compute exists to hide it."""
    rows, found = of_gradients(ground)
    rows = tail_of(ground, rows)
    if not rows.any() or not ground.exposed.rest[rows].any() or _may_be_anything(ground, found):
        return
    exposed = ground.exposed
    index, sizes, numbers, tails = 0, [], [], []
    for index, step in enumerate(found):
        mine = exposed.call[rows & (exposed.step == index)]
        if len(mine) and len(step.calls):
            places = np.flatnonzero(np.isin(step.calls, mine))
            if not len(places):  # the tail of a step whose gradients were not recorded whole
                continue
            tails.append(len(places))
            place = int(places[-1])
            bucket = int(ground.steps[index].rank.places.bucket[step.calls[place]])
            numbers.append(bucket if bucket >= 0 else place)
            sizes.append(int(step.size[place]))
    number = f" (bucket {numbers[0]})" if numbers and len(set(numbers)) == 1 else ""
    told, predicted = advised_caps(ground, rows)
    yield Case(
        "ddp-tail-bucket",
        f"The last {min(tails)} gradient buckets are reduced after the backward pass has ended"
        if min(tails, default=1) > 1
        else f"The last gradient bucket{number} is reduced after the backward pass has ended",
        whole(ground, rows),
        _against_tail(min(tails, default=1) > 1, told),
        (
            *((Evidence("number of the last bucket", numbers[0], ""),) if numbers else ()),
            *((Evidence("bytes of the last bucket", max(sizes), "bytes"),) if sizes and max(sizes) >= 0 else ()),
            *facts(ground, rows, found),
            *predicted,
        ),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
        group_id=ground.one_group(rows), calls=ground.calls_in(rows), structural=True,
    )  # fmt: skip


def _against_tail(several: bool, told: tuple[str, ...]) -> tuple[str, ...]:
    """What shortens the tail: where several buckets are left, the size of the last one alone decides little."""
    smaller = (
        f"Make the last bucket smaller: lower {CAP} (more messages), or give the parameters that are ready last a "
        "bucket of their own; overlap it with the optimizer (step-in-backward) where the optimizer allows."
    )
    if not several:
        return (
            *told,
            smaller,
            "Send fewer bytes: bf16_compress_hook or gradient compression (accuracy), larger micro-batches with "
            "accumulation.",
        )
    return (
        "Send fewer bytes: bf16_compress_hook or gradient compression (accuracy); several buckets are left: the "
        "size of the last one decides little.",
        "Compute more per reduction: larger micro-batches (memory), or several of them under no_sync() (larger batch).",
        *told,
        smaller,
    )


def _may_be_anything(ground: Ground, found: list[Reductions]) -> bool:
    """Whether one rank without launches shows a single reduction a step: nothing says that it is of gradients."""
    linked = any(step.rank.coverage.linked_device_events or step.rank.on_cpu for step in ground.steps)
    return not linked and not ground.knows_waiting() and max((len(step.calls) for step in found), default=0) < 2


def find_unused(ground: Ground) -> Iterator[Case]:
    """DDP walks the autograd graph before every backward pass to find parameters that go unused."""
    if not _asks_for_unused(ground):
        return
    ns = np.array([_searching(step) for step in ground.steps], np.int64)
    if not ns.any():
        return
    cost = int(ns.sum()) // len(ns)
    yield Case(
        "find-unused",
        f"find_unused_parameters=True searches the graph for unused parameters: {format_ns(cost)} per step",
        Claim(),
        (
            "Set find_unused_parameters=False where every parameter gets a gradient, or static_graph=True where the "
            "unused ones "
            "never change; buckets can then also follow the backward pass.",
        ),
        (
            Evidence("search on the CPU per step", cost, "ns"),
            Evidence("parameters without a gradient", "none known", ""),
        ),
        ranks=reference_ranks(ground), nothing_back=True, cost_ns=cost,
    )  # fmt: skip


def _searching(step: ReferenceStep) -> int:
    """Time of the search in one step, on the CPU."""
    spans = step.rank.spans.get("unused-search")
    if spans is None:
        return 0
    windows = zip(step.device.marks, step.device.steps, strict=True)
    marks = [mark for mark, window in windows if window.name in step.unit.names]
    return (
        sum(int(spans.ns[mark]) for mark in marks if mark < len(spans.ns)) if max(marks) >= 0 else int(spans.ns.sum())
    )


def _asks_for_unused(ground: Ground) -> bool:
    """Whether the search runs for nothing: no module is known to leave parameters unused."""
    options = [module.options for manifest in ground.analysis.manifests for module in manifest.ddp]
    unused = any(int(known.get("unused_parameter_size", 0) or 0) for known in options)
    return not unused
