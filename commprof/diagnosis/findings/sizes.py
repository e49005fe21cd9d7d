"""Messages of the wrong size: too large to start in time, or so small that latency decides."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commprof.diagnosis.findings.case import Case, delayed, hideable, idle_of, ranks_of, steps_of, whole
from commprof.diagnosis.findings.reductions import (
    NOT_OVERLAP,
    advised_caps,
    facts,
    last_is_large,
    of_gradients,
    one_bucket,
    with_overlap,
)
from commprof.diagnosis.findings.shorter import transfers
from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.intervals import Int64Array

CAP = "torch.nn.parallel.DistributedDataParallel(bucket_cap_mb=...)"


def bucket_too_large(ground: Ground) -> Iterator[Case]:
    """The last bucket holds so much that its reduction starts late and ends alone; or the only one holds it all."""
    rows, found = of_gradients(ground)
    if not rows.any():
        return
    large = last_is_large(ground, found)
    if not large and not one_bucket(ground, found):
        return
    cap = ground.limits.bucket_cap if large else ground.limits.first_bucket
    last = np.zeros(len(rows), np.bool_)
    for index, step in enumerate(found):
        last |= (ground.exposed.step == index) & np.isin(ground.exposed.call, step.calls[-1:])
    rows &= last & ~ground.cause_is(*NOT_OVERLAP)
    size = max(int(step.size[-1]) for step in found)
    told, predicted = advised_caps(ground, rows)
    yield Case(
        "bucket-too-large",
        "The last bucket is too large: it is ready late and nothing is left to hide it"
        if large
        else "All gradients are in one bucket: it is ready when the backward pass is over, and nothing hides it",
        hideable(ground, rows),
        (
            *told,
            f"Make buckets smaller: lower {CAP}, reduce_bucket_size (DeepSpeed) or --ddp-bucket-size "
            "(Megatron); more "
            "messages cost latency. One very large parameter cannot be split by DDP: place it early in the backward "
            "pass.",
        ),
        (Evidence("bytes of the last bucket", size, "bytes"), *facts(ground, rows, found), *predicted),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), recoverable=with_overlap(ground, rows, found, cap),
        threshold=Threshold(
            ground.limits.large_bucket, "bytes", "default cap of 25 MiB and one parameter more (torch, reducer.hpp)"
        )
        if large
        else Threshold(
            2 * ground.limits.first_bucket, "bytes in one bucket", "DDP fills its first at 1 MiB (torch, reducer.hpp)"
        ),
    )  # fmt: skip


def buckets_too_small(ground: Ground) -> Iterator[Case]:
    """Many small reductions: their latency, or launching them, costs more than their bytes."""
    rows, found = of_gradients(ground)
    if not rows.any():
        return
    count, size = _many([len(step.calls) for step in found], [int(step.size[step.size > 0].sum()) for step in found])
    needed = 1 + math.ceil(size / ground.limits.bucket_cap)
    if count < max(ground.limits.many_buckets, 4 * needed):
        return
    yield from _small(ground, rows, 1 - needed / count, "buckets-too-small",
        f"Gradient buckets are too small: {count:.0f} reductions where {needed} would do",
        (
            *advised_caps(ground, rows)[0],
            f"Make buckets larger: raise {CAP} (default 25), reduce_bucket_size (DeepSpeed); the last bucket then is "
            "larger "
            "too and exposes more.",
        ))  # fmt: skip


def tiny_messages(ground: Ground) -> Iterator[Case]:
    """Many messages that are all latency."""
    rows = ~ground.operation_is("send", "recv", "send_recv", "barrier") & ~ground.flag_is("profiler-start", "first-use")
    rows &= _latency(ground) > 0
    counts, sizes = [], []
    for step in ground.steps:
        tiny = np.flatnonzero(_latency_of_calls(ground, step) >= ground.limits.latency_share)
        mine = _in_step(step, tiny)
        counts.append(len(mine))
        sizes.append(int(np.maximum(step.rank.calls.size_bytes[mine], 0).sum()))
    count, size = _many(counts, sizes)
    if count < ground.limits.many_calls or not rows.any():
        return
    needed = max(1, math.ceil(size / ground.limits.bucket_cap))
    yield from _small(ground, rows, max(0.0, 1 - needed / count), "tiny-messages",
        f"Many tiny messages ({count:.0f}): latency decides, not bandwidth",
        (
            "Join them: bucket small tensors into one call (flatten, all_reduce_coalesced, larger DDP or FSDP units), "
            "or send "
            "them in every n-th step only; larger units cost memory.",
        ))  # fmt: skip


def _many(counts: list[int], sizes: list[int]) -> tuple[float, float]:
    """Calls and bytes per step, means over the steps."""
    return sum(counts) / len(counts), sum(sizes) / len(sizes)


def _in_step(step: ReferenceStep, calls: Int64Array) -> Int64Array:
    """Those of the given calls of a rank that belong to the step."""
    shares = step.rank.shares
    windows = [number for number, name in enumerate(shares.step_names) if name in step.unit.names]
    mine: Int64Array = calls[np.isin(shares.step[calls], windows)]
    return mine


def _small(
    ground: Ground, rows: Mask, removable: float, identity: str, title: str, advice: tuple[str, ...]
) -> Iterator[Case]:
    """The case of too many calls: latency of those bound by it, and of the CPU's time to launch what need not be.

    The CPU's part comes back too: it launches these calls, not compute.
    """
    exposed = ground.exposed
    latency = np.where(rows, _latency(ground), 0.0)
    launching = np.floor(delayed(ground, "communication") * removable).astype(np.int64)
    claim = whole(ground, latency > 0, "rest")
    claim.host = launching
    idle = np.floor(idle_of(ground, "communication") * removable).astype(np.int64)
    saved = ground.per_step(exposed.step, (exposed.rest * latency).astype(np.int64))
    wanted = ground.per_step(ground.idle.step, idle)
    by_host = int(launching.sum() + wanted.sum()) > int(saved.sum())
    if not by_host:
        # All findings on communication together never promise more than its exposed time: idle time only as far as
        # exposed time is left that is the CPU's. Where launching costs more than latency it is a finding on the host.
        left = ground.per_step(exposed.step, exposed.host - launching)
        idle = np.floor(idle * np.minimum(left / np.maximum(wanted, 1), 1.0)[ground.idle.step]).astype(np.int64)
    claim.idle = idle
    back = saved + ground.per_step(exposed.step, launching) + ground.per_step(ground.idle.step, idle)
    if not back.any():
        return
    calls = ground.calls_in(rows)
    sizes = ground.column("size_bytes", rows)
    yield Case(
        identity, title, claim, advice,
        (
            Evidence("exposed calls per step", calls, "calls"),
            *((Evidence("median message", int(np.median(sizes)), "bytes"),) if (sizes >= 0).all() else ()),
            Evidence("exposed latency", int(saved.sum()) // len(ground.steps), "ns"),
            Evidence("exposed while the CPU launches them", int(launching.sum()) // len(ground.steps), "ns"),
            Evidence("idle while the CPU launches them", int(wanted.sum()) // len(ground.steps), "ns"),
        ),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows), calls=calls,
        recoverable=back, confidence="estimate", cause="host-bound" if by_host else None,
        threshold=Threshold(ground.limits.latency_share, "share of a call", "default: more latency than bytes"),
    )  # fmt: skip


def _latency(ground: Ground) -> NDArray[np.float64]:
    """Part of the time of each row that joining messages would save; 0 for rows that are not bound by latency.

    A call of ``S`` bytes could take ``S f / best`` at the best bus bandwidth that its group shows with a message at
    least four times as large. Without one, all of a message below the size at which messages are tiny is latency, and
    of one of unknown size if most of its kind last no longer than latency.
    """
    exposed, limits = ground.exposed, ground.limits
    share = np.zeros(len(exposed), np.float64)
    for index, step in enumerate(ground.steps):
        mine = exposed.step == index
        by_call = _latency_of_calls(ground, step)
        share[mine] = by_call[exposed.call[mine]]
    return np.where(share >= limits.latency_share, share, 0.0)


def _latency_of_calls(ground: Ground, step: ReferenceStep) -> NDArray[np.float64]:
    """The same for every call of the rank of a step."""
    share: NDArray[np.float64] = ground.once(("latency", step.where), lambda: _latency_of_rank(ground, step))
    return share


def _latency_of_rank(ground: Ground, step: ReferenceStep) -> NDArray[np.float64]:
    calls, limits = step.rank.calls, ground.limits
    size, lasted = calls.size_bytes, transfers(ground, step)
    share = np.where((size >= 0) & (size < limits.tiny_message), 1.0, 0.0)
    share[_short(step, limits.small_latency_ns)] = 1.0
    usable = (size > 0) & (lasted > 0) & ~np.isin(step.rank.places.flag, (0, 1)) & ~calls.fused
    for key in np.unique(np.stack([calls.group[usable], calls.operation[usable]]), axis=1).T.tolist():
        mine = np.flatnonzero(usable & (calls.group == key[0]) & (calls.operation == key[1]))
        rate = size[mine] / lasted[mine]
        order = np.argsort(-size[mine], kind="stable")
        best = np.maximum.accumulate(rate[order])
        # Rates of messages at least four times as large: how many there are before each one in order of size.
        larger = np.searchsorted(-size[mine][order], -4 * size[mine], side="right")
        known = larger > 0
        needed = size[mine][known] / best[larger[known] - 1]
        share[mine[known]] = np.clip(1 - needed / lasted[mine][known], 0.0, 1.0)
    return share


def _short(step: ReferenceStep, limit: int) -> Mask:
    """Calls of unknown size of a group and operation of which most last no longer than latency.

    The others are then taken to be as small, and to have waited.
    """
    calls = step.rank.calls
    unknown = (calls.size_bytes < 0) & ~calls.fused & ~calls.sync
    short = np.zeros(len(calls), np.bool_)
    for key in np.unique(np.stack([calls.group[unknown], calls.operation[unknown]]), axis=1).T.tolist():
        mine = unknown & (calls.group == key[0]) & (calls.operation == key[1])
        short[mine] = np.median(calls.duration[mine]) <= limit
    return short
