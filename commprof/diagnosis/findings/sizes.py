"""Messages of the wrong size: too large to start in time, or so small that latency decides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import RankAnalysis
from commprof.analysis.purposes import GRADIENTS, PARAMETERS
from commprof.diagnosis.findings.case import Case, Claim, delayed, idle_of, ranks_of, steps_of
from commprof.diagnosis.findings.needless import LatencyOf, latency_of_buckets, needless_on_path
from commprof.diagnosis.findings.overlapping import schedule
from commprof.diagnosis.findings.reductions import (
    NOT_OVERLAP,
    Fewer,
    advised_caps,
    facts,
    fewer_buckets,
    gathers_at_end,
    last_is_large,
    of_gradients,
    one_bucket,
    tail_of,
)
from commprof.diagnosis.findings.shorter import transfers_of
from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.diagnosis.on_path import OnPath
from commprof.intervals import Int64Array
from commprof.trace.model import Calls
from commprof.trace.operations import OPERATIONS

_NEVER_JOINED = ("send", "recv", "send_recv", "barrier")
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
    rows &= ~ground.cause_is(*NOT_OVERLAP)
    better = schedule(ground, rows & last, found, cap, beside=tail_of(ground, rows))
    rows = better.rows
    size = max(int(step.size[-1]) for step in found)
    told, predicted = advised_caps(ground, rows)
    yield Case(
        "bucket-too-large",
        "The last bucket is too large: it is ready late and nothing is left to hide it"
        if large
        else "All gradients are in one bucket: it is ready when the backward pass is over, and nothing hides it",
        better.claim,
        (
            *told,
            f"Make buckets smaller: lower {CAP}, reduce_bucket_size (DeepSpeed) or --ddp-bucket-size "
            "(Megatron); more "
            "messages cost latency. One very large parameter cannot be split by DDP: place it early in the backward "
            "pass.",
        ),
        (Evidence("bytes of the last bucket", size, "bytes"), *facts(ground, rows, found), *predicted),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), recoverable=better.back,
        threshold=Threshold(
            ground.limits.large_bucket, "bytes", "default cap of 25 MiB and one parameter more (torch, reducer.hpp)"
        )
        if large
        else Threshold(
            2 * ground.limits.first_bucket, "bytes in one bucket", "DDP fills its first at 1 MiB (torch, reducer.hpp)"
        ),
    )  # fmt: skip


def buckets_too_small(ground: Ground) -> Iterator[Case]:
    """Many small reductions: their latency, or launching them, costs more than their bytes; or a layout with half as
    many is predicted to leave much less after the backward pass."""
    buckets = _small_buckets(ground)
    if buckets is None:
        return
    rows, needed, fewer = buckets.rows, buckets.needed, buckets.fewer
    latency, told = np.where(rows, _latency(ground), 0.0), advised_caps(ground, rows)[0]
    saved = (ground.exposed.rest * latency).astype(np.int64)
    if fewer is not None:
        saved = np.maximum(saved, _of_tail(ground, rows, fewer.gain)) + of_gathers(ground)
        needed, told = (needed if buckets.removable else fewer.layout.buckets), (fewer.told,)
    path, elsewhere = None, 0 if fewer is None else fewer.others
    if buckets.removable:
        path = _on_path(ground, buckets.calls, buckets.removable, latency_of_buckets(ground, rows))
    yield from _small(ground, rows, buckets.calls, (latency, saved, buckets.removable), "buckets-too-small",
        f"Gradient buckets are too small: {buckets.count:.0f} reductions where {needed} would do",
        (
            *told,
            f"Make buckets larger: raise {CAP} (default 25), reduce_bucket_size (DeepSpeed); the last bucket then is "
            "larger "
            "too and exposes more.",
        ), path, elsewhere)  # fmt: skip


@dataclass(slots=True, eq=False)
class _Buckets:
    """Buckets that are too small: the exposed rows of their reductions, how many there are per step and how many would
    do, or the layout with fewer that is predicted to do better.

    ``calls`` are all calls of each step that come once per bucket; the part ``removable`` of them need not be.
    """

    rows: Mask
    count: float
    needed: int
    fewer: Fewer | None
    calls: list[Int64Array]
    removable: float


def _small_buckets(ground: Ground) -> _Buckets | None:
    buckets: _Buckets | None = ground.once("small buckets", lambda: _find_small_buckets(ground))
    return buckets


def _find_small_buckets(ground: Ground) -> _Buckets | None:
    rows, found = of_gradients(ground)
    if not rows.any() or _in_units(ground, rows):
        return None
    count, size = _many([len(step.calls) for step in found], [int(step.size[step.size > 0].sum()) for step in found])
    needed = 1 + math.ceil(size / ground.limits.bucket_cap)
    fewer = fewer_buckets(ground, rows)
    small = count >= 4 * needed
    if count < ground.limits.many_buckets or not (small or fewer):
        return None
    calls = [_of_buckets(step, reductions.calls) for step, reductions in zip(ground.steps, found, strict=True)]
    return _Buckets(rows, count, needed, fewer, calls, 1 - needed / count if small else 0.0)


def of_gathers(ground: Ground) -> Int64Array:
    """What of every exposed row is there because buckets that are too small are gathered one by one after the
    optimizer; 0 where the critical path tells what fewer of them give back."""
    buckets = _small_buckets(ground)
    if buckets is None or buckets.fewer is None or buckets.removable:
        return np.zeros(len(ground.exposed), np.int64)
    return _out_of(ground, gathers_at_end(ground), buckets.fewer.gathers)


def _of_tail(ground: Ground, rows: Mask, gain: int) -> Int64Array:
    """``gain`` ns of every step, out of what the given reductions expose after the backward pass."""
    return _out_of(ground, tail_of(ground, rows), gain)


def _out_of(ground: Ground, rows: Mask, gain: int) -> Int64Array:
    """``gain`` ns of every step, out of what these rows expose, in proportion."""
    rest = np.where(rows, ground.exposed.rest, 0)
    share = np.minimum(gain / np.maximum(ground.per_step(ground.exposed.step, rest), 1), 1.0)
    back: Int64Array = np.floor(rest * share[ground.exposed.step]).astype(np.int64)
    return back


def tiny_messages(ground: Ground) -> Iterator[Case]:
    """Many messages that are all latency."""
    rows = ~ground.operation_is(*_NEVER_JOINED) & ~ground.flag_is("profiler-start", "first-use")
    rows &= _latency(ground) > 0
    counts, sizes, calls = [], [], []
    for step in ground.steps:
        tiny = np.flatnonzero(_latency_of_calls(ground, step.where) >= ground.limits.latency_share)
        mine = _in_step(step, tiny)
        calls.append(mine)
        counts.append(len(mine))
        sizes.append(int(np.maximum(step.rank.calls.size_bytes[mine], 0).sum()))
    count, size = _many(counts, sizes)
    if count < ground.limits.many_calls or not rows.any():
        return
    needed = max(1, math.ceil(size / ground.limits.bucket_cap))
    latency = np.where(rows, _latency(ground), 0.0)
    saved = (ground.exposed.rest * latency).astype(np.int64)
    removable = max(0.0, 1 - needed / count)
    yield from _small(ground, rows, calls, (latency, saved, removable), "tiny-messages",
        ground.worded(f"Many tiny messages ({count:.0f} per step): latency decides, not bandwidth"),
        (
            "Join them: bucket small tensors into one call (flatten, all_reduce_coalesced, larger DDP or FSDP units), "
            "or send "
            "them in every n-th step only; larger units cost memory.",
        ), _path_of_tiny(ground, calls, removable))  # fmt: skip


def _path_of_tiny(ground: Ground, calls: list[Int64Array], removable: float) -> OnPath | None:
    """What of the path goes without these calls; those of buckets that are too small are told of there."""
    buckets = _small_buckets(ground)
    if buckets is None or not buckets.removable:
        return _on_path(ground, calls, removable, lambda where: _latency_of_tiny(ground, where))
    others = [np.setdiff1d(mine, known) for mine, known in zip(calls, buckets.calls, strict=True)]
    of_buckets = latency_of_buckets(ground, buckets.rows)
    return _on_path(
        ground, others, removable, lambda where: np.where(of_buckets(where) > 0, 0, _latency_of_tiny(ground, where))
    )


def _many(counts: list[int], sizes: list[int]) -> tuple[float, float]:
    """Calls and bytes per step, means over the steps."""
    return sum(counts) / len(counts), sum(sizes) / len(sizes)


def _in_step(step: ReferenceStep, calls: Int64Array) -> Int64Array:
    """Those of the given calls of a rank that belong to the step."""
    shares = step.rank.shares
    windows = [number for number, name in enumerate(shares.step_names) if name in step.unit.names]
    mine: Int64Array = calls[np.isin(shares.step[calls], windows)]
    return mine


def _of_buckets(step: ReferenceStep, reductions: Int64Array) -> Int64Array:
    """All calls of a step that come once per bucket of these: in every micro-batch, and to gather the parameters."""
    calls, purpose = step.rank.calls, step.rank.places.purpose
    alike = np.isin(purpose, (GRADIENTS, PARAMETERS)) & np.isin(calls.group, calls.group[reductions])
    return _in_step(step, np.union1d(np.flatnonzero(alike), reductions))


def _in_units(ground: Ground, rows: Mask) -> bool:
    """Whether these reductions are of units of sharded parameters: a module decides on their size, no bucket."""
    strategy = ground.analysis.strategy
    parts = [] if strategy is None else [part for part in strategy.parts if part.name in ("fsdp", "hsdp", "zero3")]
    return bool(np.isin(ground.exposed.group[rows], [group for part in parts for group in part.groups]).any())


def _small(
    ground: Ground, rows: Mask, calls_of: list[Int64Array],
    saved: tuple[NDArray[np.float64], Int64Array, float], identity: str, title: str, advice: tuple[str, ...],
    path: OnPath | None = None, elsewhere: int = 0,
) -> Iterator[Case]:  # fmt: skip
    """The case of too many calls: latency of those bound by it, and of the CPU's time to launch what need not be.

    The CPU's part comes back too: it launches these calls, not compute. ``calls_of`` are the calls of every step,
    ``saved`` the latency as a share of each row, what of its rest comes back, and which part of the calls need not be.
    ``elsewhere`` comes back of other calls that others are charged with, nanoseconds per step.
    """
    exposed = ground.exposed
    latency, back_of_rest, removable = saved
    needless = np.array(_launch_parts(ground, calls_of)) * removable
    launching = np.floor(delayed(ground, "communication") * needless[exposed.step]).astype(np.int64)
    claim = Claim(host=launching, rest=np.where(latency > 0, exposed.rest, back_of_rest))
    idle = np.floor(idle_of(ground, "communication") * needless[ground.idle.step]).astype(np.int64)
    by_latency = ground.per_step(exposed.step, back_of_rest)
    wanted = ground.per_step(ground.idle.step, idle)
    by_host = int(launching.sum() + wanted.sum()) > int(by_latency.sum())
    if not by_host:
        # All findings on communication together never promise more than its exposed time: idle time only as far as
        # exposed time is left that is the CPU's. Where launching costs more than latency it is a finding on the host.
        left = ground.per_step(exposed.step, exposed.host - launching)
        idle = np.floor(idle * np.minimum(left / np.maximum(wanted, 1), 1.0)[ground.idle.step]).astype(np.int64)
    claim.idle = idle
    back = by_latency + ground.per_step(exposed.step, launching) + ground.per_step(ground.idle.step, idle)
    if not back.any():
        return
    calls = ground.calls_in(rows)
    sizes = ground.column("size_bytes", rows)
    yield Case(
        identity, title, claim, advice,
        (
            Evidence("exposed calls per step", calls, "calls"),
            *((Evidence("median message", int(np.median(sizes)), "bytes"),) if (sizes >= 0).all() else ()),
            Evidence("exposed latency", int(by_latency.sum()) // len(ground.steps), "ns"),
            Evidence("exposed while the CPU launches them", int(launching.sum()) // len(ground.steps), "ns"),
            Evidence("idle while the CPU launches them", int(wanted.sum()) // len(ground.steps), "ns"),
            *((Evidence("and of calls that other findings are charged with", elsewhere, "ns"),) if elsewhere else ()),
        ),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows), calls=calls,
        recoverable=back, path=path, alone=back + elsewhere, confidence="estimate",
        cause="host-bound" if by_host else None,
        threshold=Threshold(ground.limits.latency_share, "share of a call", "default: more latency than bytes"),
    )  # fmt: skip


def _on_path(ground: Ground, calls_of: list[Int64Array], removable: float, latency_of: LatencyOf) -> OnPath | None:
    """What of the path goes if the part ``removable`` of these calls of every step is not made.

    They are as large a part of all launches on every rank; what a rank with a slower CPU needs more is its own.
    """
    purposes = _purposes(ground, calls_of)
    medians = np.array([_median_launch(rank, purposes) for rank in ground.analysis.ranks])
    usual = min(medians[medians > 0], default=0.0) / np.where(medians > 0, medians, np.inf)
    parts = [_launch_part(step, calls) for step, calls in zip(ground.steps, calls_of, strict=True)]
    return needless_on_path(ground, float(np.mean(parts)) * usual, removable, latency_of)


def _launch_parts(ground: Ground, calls_of: list[Int64Array]) -> list[float]:
    """By step the part of the time spent on launching communication that these calls take at the usual cost of one.

    Usual is what they cost on the rank of the job whose CPU is the fastest: what a slower one needs more is its own.
    """
    medians = [_median_launch(rank, _purposes(ground, calls_of)) for rank in ground.analysis.ranks]
    usual = min((median for median in medians if median), default=0.0)
    return [_launch_part(step, calls, usual) for step, calls in zip(ground.steps, calls_of, strict=True)]


def _launch_part(step: ReferenceStep, calls: Int64Array, usual: float = math.inf) -> float:
    """The part of the time for launching communication in a step that these calls take, each at most ``usual`` ns."""
    if step.rank.delays is None or not len(calls):
        return 0.0
    windows = [number for number, name in enumerate(step.rank.shares.step_names) if name in step.unit.names]
    costs = step.rank.delays.launching
    total = int(costs[np.isin(step.rank.shares.step, windows)].sum())
    return float(np.minimum(costs[calls], usual).sum()) / total if total else 0.0


def _purposes(ground: Ground, calls_of: list[Int64Array]) -> NDArray[np.int8]:
    """What these calls of every step move."""
    moved = [step.rank.places.purpose[calls] for step, calls in zip(ground.steps, calls_of, strict=True)]
    return np.unique(np.concatenate(moved))


def _median_launch(rank: RankAnalysis, purposes: NDArray[np.int8]) -> float:
    """Median cost of a launch of calls of a rank that move these things, nanoseconds; 0 where that is not known."""
    if rank.delays is None:
        return 0.0
    costs = rank.delays.launching[np.isin(rank.places.purpose, purposes)]
    return float(np.median(costs[costs > 0])) if (costs > 0).any() else 0.0


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
        by_call = _latency_of_calls(ground, step.where)
        share[mine] = by_call[exposed.call[mine]]
    return np.where(share >= limits.latency_share, share, 0.0)


def _latency_of_calls(ground: Ground, where: int) -> NDArray[np.float64]:
    """The same for every call of a rank, by its place in the analysis."""
    share: NDArray[np.float64] = ground.once(("latency", where), lambda: _latency_of_rank(ground, where))
    return share


def _latency_of_tiny(ground: Ground, where: int) -> Int64Array:
    """The latency of all calls of a rank that are bound by it and could be joined, nanoseconds."""
    share, calls = _latency_of_calls(ground, where), ground.analysis.ranks[where].calls
    apart = np.isin(calls.operation, [OPERATIONS.index(name) for name in _NEVER_JOINED])
    share = np.where((share >= ground.limits.latency_share) & ~apart, share, 0.0)
    return np.floor(share * transfers_of(ground, where)).astype(np.int64)


def _latency_of_rank(ground: Ground, where: int) -> NDArray[np.float64]:
    rank, limits = ground.analysis.ranks[where], ground.limits
    calls = rank.calls
    size, lasted = calls.size_bytes, transfers_of(ground, where)
    share = np.where((size >= 0) & (size < limits.tiny_message), 1.0, 0.0)
    share[_short(calls, limits.small_latency_ns)] = 1.0
    usable = (size > 0) & (lasted > 0) & ~np.isin(rank.places.flag, (0, 1)) & ~calls.fused
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


def _short(calls: Calls, limit: int) -> Mask:
    """Calls of unknown size of a group and operation of which most last no longer than latency.

    The others are then taken to be as small, and to have waited.
    """
    unknown = (calls.size_bytes < 0) & ~calls.fused & ~calls.sync
    short = np.zeros(len(calls), np.bool_)
    for key in np.unique(np.stack([calls.group[unknown], calls.operation[unknown]]), axis=1).T.tolist():
        mine = unknown & (calls.group == key[0]) & (calls.operation == key[1])
        short[mine] = np.median(calls.duration[mine]) <= limit
    return short
