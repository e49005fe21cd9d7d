"""The gradient reductions of the reference steps: what several rules look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from commprof.analysis.bucket_advice import BucketAdvice, Layout
from commprof.analysis.places import NOWHERE
from commprof.diagnosis.ground import REDUCTIONS, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED
from commprof.trace.operations import OPERATIONS
from commprof.units import format_ns

NOT_OVERLAP = (
    "blocking-wait", "device-synchronisation", "on-compute-stream", "serialised", "first-use", "profiler-start",
)  # fmt: skip
"""Causes for which no schedule of reductions is to blame."""

_GATHER = "all_gather"


@dataclass(slots=True, eq=False)
class Reductions:
    """Gradient reductions of one reference step in order of launch: rows of the rank's calls, their sizes, and how
    much of them was hidden, nanoseconds."""

    calls: Int64Array
    size: Int64Array
    duration: int
    hidden: int


def reductions(ground: Ground, rows: Mask) -> list[Reductions]:
    """The gradient reductions of every step, also those that nothing exposes; ``rows`` are the exposed ones."""
    return [_of_step(ground, step, np.unique(ground.exposed.call[rows & (ground.exposed.step == index)]))
            for index, step in enumerate(ground.steps)]  # fmt: skip


def _of_step(ground: Ground, step: ReferenceStep, exposed: Int64Array) -> Reductions:
    """Calls of the step of the same operation and groups as the exposed gradient reductions."""
    calls, shares, places = step.rank.calls, step.rank.shares, step.rank.places
    windows = [number for number, name in enumerate(shares.step_names) if name in step.unit.names]
    mine = np.isin(shares.step, windows) & (calls.device == step.device.device) & ~calls.fused
    mine &= np.isin(calls.operation, [OPERATIONS.index(name) for name in REDUCTIONS])
    if len(exposed):
        mine &= np.isin(calls.group, calls.group[exposed]) & np.isin(places.purpose, places.purpose[exposed])
        mine &= ~np.isin(places.phase, (0, 3))
    found = np.flatnonzero(mine)
    order = np.where(calls.launched[found] == NOT_LAUNCHED, calls.start[found], calls.launched[found])
    found = found[np.argsort(order, kind="stable")]
    return _reductions_of(step, found)


def _reductions_of(step: ReferenceStep, found: Int64Array) -> Reductions:
    calls, shares = step.rank.calls, step.rank.shares
    duration = calls.duration[found]
    return Reductions(
        found, calls.size_bytes[found], int(duration.sum()), int((duration - shares.touched[found]).sum())
    )


def all_gradients(ground: Ground) -> tuple[Mask, list[Reductions]]:
    """Exposed rows of gradient reductions, and all gradient reductions of every step."""
    rows: Mask = ground.once("gradients", ground.gradients)
    return rows.copy(), list(ground.once("reductions", lambda: reductions(ground, rows)))


def of_gradients(ground: Ground) -> tuple[Mask, list[Reductions]]:
    """The same without those that are repeated later in the step: the last series alone tells about the schedule."""
    rows, found = ground.once("last gradients", lambda: _last_series(ground))
    return rows.copy(), list(found)


def _last_series(ground: Ground) -> tuple[Mask, list[Reductions]]:
    rows, found = all_gradients(ground)
    times = repeats(ground, found)
    if min(times, default=1) < 2:
        return rows, found
    last = []
    for index, (step, count) in enumerate(zip(found, times, strict=True)):
        kept = step.calls[-(len(step.calls) // count) :]
        rows &= (ground.exposed.step != index) | np.isin(ground.exposed.call, kept)
        last.append(_reductions_of(ground.steps[index], kept))
    return rows, last


def repeats(ground: Ground, found: list[Reductions]) -> list[int]:
    """How many times the same series of reductions comes in each optimizer step."""
    return [_repeats(ground, index, step) for index, step in enumerate(found)]


def _repeats(ground: Ground, index: int, step: Reductions) -> int:
    """By the backward passes that the buckets belong to, where phases are known; else by sizes that recur."""
    rank = ground.steps[index].rank
    if (rank.places.phase[step.calls] != NOWHERE).any():
        series = ground.once(("series", id(rank)), lambda: {bucket.call: bucket.series for bucket in rank.buckets})
        mine = [series[call] for call in step.calls.tolist() if call in series]
        counts = np.unique(mine, return_counts=True)[1]
        return len(counts) if len(mine) == len(step.calls) and len(set(counts.tolist())) == 1 else 1
    sizes, total = step.size, len(step.size)
    for period in range(2, total // 2 + 1):
        if total % period == 0 and len(set(sizes[:period].tolist())) > 1:
            recurring = sizes.reshape(-1, period)
            if (recurring == recurring[0]).all():
                return total // period
    return 1


def unhidden(ground: Ground, found: list[Reductions]) -> bool:
    """Whether next to nothing of the reductions runs beside compute."""
    duration = sum(step.duration for step in found)
    return bool(duration) and sum(step.hidden for step in found) < ground.limits.no_overlap * duration


def facts(ground: Ground, rows: Mask, found: list[Reductions]) -> tuple[Evidence, ...]:
    """What findings on gradient reductions rest on."""
    duration, hidden = sum(s.duration for s in found), sum(s.hidden for s in found)
    sized = [int(step.size[step.size >= 0].sum()) for step in found]
    return (
        Evidence("exposed", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
        Evidence("reductions per step", round(sum(len(s.calls) for s in found) / len(found), 1), "calls"),
        Evidence("bytes reduced per step", sum(sized) // len(found), "bytes"),
        Evidence("hidden behind compute", hidden / duration if duration else None, "share of communication time"),
    )  # fmt: skip


def last_is_large(ground: Ground, found: list[Reductions]) -> bool:
    """Whether the last reduction holds so many of the gradients that hardly anything could run before it."""
    limits = ground.limits
    return all(
        len(step.size)
        and int(step.size[-1]) >= limits.large_bucket
        and int(step.size[-1]) >= limits.large_bucket_share * int(step.size[step.size >= 0].sum())
        for step in found
    )


def one_bucket(ground: Ground, found: list[Reductions]) -> bool:
    """Whether one all-reduce holds all gradients of every step though they would fill several buckets, and starts
    when the backward pass has nothing left to hide it."""
    at_least = 2 * ground.limits.first_bucket
    single = all(len(step.size) == 1 and int(step.size[0]) >= at_least for step in found)
    if not single or not found or not unhidden(ground, found):
        return False
    operations = {
        OPERATIONS[int(step.rank.calls.operation[mine.calls[0]])]
        for step, mine in zip(ground.steps, found, strict=True)
    }
    return operations == {"all_reduce"}


def tail_of(ground: Ground, rows: Mask) -> Mask:
    """Of the given reductions those that nothing is left to hide.

    Where the phases of the step are not known, these are the ones after the last compute of the window, and the ones in
    the stretch of exposed time in which the last reduction ends: whatever computes then has waited for it.
    """
    exposed = ground.exposed
    told = rows & ground.cause_is("tail")
    guess = rows & ground.cause_is("unknown", "queued") & ~(rows & ground.phase_is("backward") & ~exposed.last)
    final = guess & exposed.last
    for step in np.unique(exposed.step[guess]).tolist():
        mine = np.flatnonzero(guess & (exposed.step == step))
        mine = mine[np.argsort(-exposed.end[mine], kind="stable")]
        reached = int(exposed.end[mine[0]])
        for row in mine.tolist():
            if exposed.end[row] < reached:
                break
            final[row] = True
            reached = min(reached, int(exposed.start[row]))
    tail: Mask = told | final
    return tail


def gaps(ground: Ground) -> Int64Array:
    """Time of every step between its first and its last gradient reduction in which none of them runs.

    However fast the CPU is, the reductions take as long as they take: no more than this can come back between them.
    """
    out = np.zeros(len(ground.steps), np.int64)
    for index, found in enumerate(all_gradients(ground)[1]):
        calls = ground.steps[index].rank.calls
        if len(found.calls):
            span = int(calls.end[found.calls].max() - calls.start[found.calls].min())
            out[index] = max(0, span - found.duration)
    return out


def advised_caps(ground: Ground, rows: Mask) -> tuple[tuple[str, ...], tuple[Evidence, ...]]:
    """What the prediction for other bucket sizes adds to the advice and to the evidence; nothing where no other size is
    predicted to be worth a change, or where one rank alone cannot tell transfers from waiting."""
    if len(ground.analysis.ranks) < 2:
        return (), ()
    group = ground.one_group(rows)
    found = next((entry for entry in ground.analysis.bucket_advice if entry.group == group), None)
    if found is None or found.best == found.current or not found.gain:
        return (), ()
    option = _option(found.best)
    sure = " (outside of the measured sizes)" if found.extrapolated else ""
    text = (
        f"Predicted from the measured latency and bandwidth{sure}: {option} leaves {format_ns(found.best.tail)} after "
        "the "
        f"backward pass instead of {format_ns(found.current.tail)}."
    )
    return (text,), (Evidence(f"predicted gain of {option}", found.gain, "ns"),)


def _option(layout: Layout) -> str:
    """A layout in the words of DDP, in MiB."""
    cap, first = (round(size / (1 << 20)) for size in (layout.cap, layout.first))
    return f"bucket_cap_mb={cap}" if first == cap else f"bucket_cap_mb_list=[{first}, {cap}]"


@dataclass(frozen=True, slots=True)
class Fewer:
    """A layout with at most half as many buckets, and the words for it; nanoseconds per step.

    ``gain`` is what it is predicted to leave less after the last backward pass, ``others`` after those of the other
    micro-batches, and ``gathers`` by how much sooner the parameters of all buckets are gathered.
    """

    layout: Layout
    gain: int
    others: int
    gathers: int
    told: str

    @property
    def whole(self) -> int:
        """All of it."""
        return self.gain + self.others + self.gathers

    @classmethod
    def of(cls, advice: BucketAdvice, passes: int, gathers: Callable[[Layout], int]) -> Fewer:
        """The layout that costs least of those with at most half as many buckets; there is one."""
        halved = [layout for layout in advice.layouts if 2 * layout.buckets <= advice.current.buckets]
        best = min(halved, key=lambda layout: (passes * layout.tail - gathers(layout), layout.buckets))
        tail, sooner = advice.current.tail - best.tail, gathers(best)
        told = (
            f"Predicted from the measured latency and bandwidth: {_option(best)} leaves {format_ns(best.tail)} after "
            f"the backward pass instead of {format_ns(advice.current.tail)}."
        )
        if sooner:
            told += f" Parameters, gathered bucket by bucket, are there {format_ns(sooner)} sooner."
        return cls(best, tail, (passes - 1) * tail, sooner, told)


def fewer_buckets(ground: Ground, rows: Mask) -> Fewer | None:
    """The best of the layouts with at most half as many buckets, if it is predicted to gain enough for a finding.

    Reference ranks of several replicas have groups of their own: what the one that gains least would gain.
    """
    groups = set(ground.exposed.group[rows].tolist())
    passes = min(repeats(ground, all_gradients(ground)[1]), default=1)
    advice = [entry for entry in ground.analysis.bucket_advice if entry.group in groups]
    found = [
        Fewer.of(entry, passes, partial(_gathered_sooner, ground, entry))
        for entry in advice
        if any(2 * one.buckets <= entry.current.buckets for one in entry.layouts)
    ]
    if len(ground.analysis.ranks) < 2 or not found or len(found) < len(groups):
        return None
    least = min(found, key=lambda one: one.whole)
    worth = least.whole * len(ground.steps) >= ground.limits.finding * ground.duration
    return least if least.gain > 0 and worth else None


def gathers_at_end(ground: Ground) -> Mask:
    """Exposed rows of all-gathers of the optimizer step."""
    return ground.phase_is("optimizer") & ground.operation_is(_GATHER)


def _gathered_sooner(ground: Ground, advice: BucketAdvice, layout: Layout) -> int:
    """By how much sooner all parameters are gathered after the optimizer with the buckets of a layout, nanoseconds per
    step; 0 where they are not gathered one call per bucket, beside nothing. As many bytes in fewer calls."""
    measured = ground.analysis.bandwidth.get((advice.group, _GATHER))
    gathers = gathers_at_end(ground) & (ground.exposed.group == advice.group)
    times = []
    for index in range(len(ground.steps)):
        mine = gathers & (ground.exposed.step == index)
        sizes = ground.steps[index].rank.calls.size_bytes[np.unique(ground.exposed.call[mine])]
        if measured is None or len(sizes) != advice.current.buckets or (sizes <= 0).any():
            return 0
        now = sum(measured.predict(float(size))[0] for size in sizes)
        then = layout.buckets * measured.predict(float(sizes.sum()) / layout.buckets)[0]
        times.append(min(now - then, int(ground.exposed.rest[mine].sum())))
    return max(0, sum(times) // len(times)) if times else 0
