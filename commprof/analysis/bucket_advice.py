"""Which bucket sizes would leave the least communication after the backward pass.

The gradients of a step become available along the backward pass as its buckets show: from the start of the pass to the
first bucket, from one bucket to the next, evenly in between. A layout cuts that flow of bytes into buckets; each starts
when it is complete and the one before has ended, and lasts what the group's measured latency and bandwidth say. What
ends after the last backward compute is the tail. Tails are means over the recorded steps. A bucket closes with the
gradient that fills it, so it is larger than its cap: by as much as the recorded buckets are, where these show the cap.

``torch.nn.parallel.DistributedDataParallel`` takes ``bucket_cap_mb`` for all buckets alike; only its default has a
first bucket of 1 MiB, and ``bucket_cap_mb_list`` sets the first apart from the others. Both count in MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.bandwidth import GroupBandwidth
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.where_model import Bucket
from commprof.trace.operations import OPERATIONS

MIB = 1 << 20
MOST_BUCKETS = 50_000
"""Layouts with more buckets are left out: 50 GB of gradients in buckets of 1 MiB, or sizes of a damaged file."""

DEFAULT_CAP = 25 * MIB
CAPS_MIB = (1, 2, 3, 4, 6, 8, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100, 150, 200, 300, 400, 600, 1000)
FIRST_MIB = (1, 2, 4, 8)
WORTH = 0.01
"""A predicted gain below this share of the step is within the error of the prediction: then nothing is to change."""
MOST = 0.85
"""Of layouts with at least this share of the largest predicted gain the one with the fewest buckets is advised: the
prediction knows nothing of what more messages cost the CPU, nor of single large gradients."""

Floats = NDArray[np.float64]
Duration = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Layout:
    """One choice of caps and what it is predicted to give per step; ``first`` and ``cap`` are bytes."""

    first: int
    cap: int
    buckets: int
    tail: int
    comm: int


@dataclass(frozen=True, slots=True)
class BucketAdvice:
    """Advice for one process group: ``current`` is the layout that was recorded, as the prediction sees it.

    ``measured_tail`` is the mean from the last backward compute to the end of the last bucket: how well ``current``
    agrees with it says how far to trust the others. ``step`` is the mean step; all nanoseconds. ``best`` is ``current``
    where no layout is predicted to be worth a change.
    """

    group: int
    operation: str
    size: int
    backward: int
    step: int | None
    measured_tail: int
    current: Layout
    layouts: tuple[Layout, ...]
    best: Layout
    extrapolated: bool

    @property
    def gain(self) -> int:
        """By how much the step is predicted to shrink."""
        return max(0, self.current.tail - self.best.tail)

    def step_of(self, layout: Layout) -> int | None:
        """Predicted length of the step with a layout."""
        return None if self.step is None else self.step + layout.tail - self.current.tail


@dataclass(slots=True, eq=False)
class _Flow:
    """Bytes of gradients against time in one step: ``bytes`` are complete at ``at``, both from 0 on."""

    at: Floats
    bytes: Floats
    sizes: Floats
    backward: float
    tail: float


def advise_buckets(analysis: Analysis) -> list[BucketAdvice]:
    """Advice for every group whose gradients are reduced in buckets and whose bandwidth was measured."""
    out = []
    seen: set[int] = set()
    for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True):
        for local in sorted({int(rank.calls.group[bucket.call]) for bucket in rank.buckets} - {-1}):
            if groups[local] not in seen:
                seen.add(groups[local])
                out += _of_group(analysis, rank, local, groups[local])
    return out


def _of_group(analysis: Analysis, rank: RankAnalysis, local: int, group: int) -> list[BucketAdvice]:
    mine = [b for b in rank.buckets if int(rank.calls.group[b.call]) == local and b.layout != "first-iteration"]
    operations = {OPERATIONS[int(rank.calls.operation[bucket.call])] for bucket in mine}
    flows = _flows(mine)
    measured = analysis.bandwidth.get((group, next(iter(operations)))) if len(operations) == 1 else None
    if not flows or measured is None:
        return []
    duration = _duration(measured)
    over = _overshoot(flows[0].sizes)
    current = _predict(flows, duration, [flow.sizes for flow in flows], 0, 0)
    total = float(np.mean([flow.bytes[-1] for flow in flows]))
    layouts = [
        _predict(
            flows, duration, [_cut(flow.bytes[-1], first * MIB + over, cap * MIB + over) for flow in flows], first, cap
        )
        for cap in CAPS_MIB
        if cap * MIB < 1.5 * total and total < MOST_BUCKETS * cap * MIB
        for first in (cap, *(first for first in FIRST_MIB if first < cap))
    ]
    if not layouts:
        return []
    steps = [step.split.duration for device in rank.devices for step in device.steps if not step.open]
    step = round(sum(steps) / len(steps)) if steps else None
    backward = round(float(np.mean([flow.backward for flow in flows])))
    best = _best(layouts, current, step or backward + current.tail)
    smallest = min(best.first, best.cap)
    return [
        BucketAdvice(
            group=group,
            operation=measured.operation,
            size=round(total),
            backward=backward,
            step=step,
            measured_tail=round(float(np.mean([max(0, flow.tail) for flow in flows]))),
            current=current,
            layouts=tuple(layouts),
            best=best,
            extrapolated=measured.predict(smallest)[1] or measured.predict(best.cap)[1],
        )
    ]


def _flows(buckets: Sequence[Bucket]) -> list[_Flow]:
    """The flow of gradients of every backward pass whose buckets are all known."""
    by_pass: dict[tuple[int, int], list[Bucket]] = {}
    for bucket in buckets:
        by_pass.setdefault((bucket.step, bucket.series), []).append(bucket)
    out = []
    for mine in by_pass.values():
        mine = sorted(mine, key=lambda bucket: bucket.index)
        start, end = mine[0].backward_start, mine[0].backward_end
        ready = [max(b.ready, b.launched) for b in mine if b.ready is not None and b.launched is not None]
        sizes = [bucket.size for bucket in mine if bucket.size]
        if start is None or end is None or not len(mine) == len(ready) == len(sizes):
            continue
        at = np.maximum.accumulate(np.array([0, *(max(0, time - start) for time in ready)], np.float64))
        moved = np.cumsum([0, *sizes]).astype(np.float64)
        out.append(_Flow(at, moved, np.array(sizes, np.float64), end - start, max(bucket.end for bucket in mine) - end))
    return out


def _overshoot(sizes: Floats) -> float:
    """By how much buckets exceed PyTorch's default cap, 0 where the recorded ones were not made with that."""
    closed = sizes[1:-1]
    if len(closed) and (closed >= DEFAULT_CAP).all() and (closed < 2 * DEFAULT_CAP).all():
        return float(closed.mean()) - DEFAULT_CAP
    return 0.0


def _cut(total: float, first: float, cap: float) -> Floats:
    """Sizes of the buckets of one layout."""
    rest = max(0.0, total - first)
    whole = int(rest // cap)
    sizes = [min(first, total), *([cap] * whole)]
    left = rest - whole * cap
    if left > 0:
        sizes.append(left)
    return np.array(sizes, np.float64)


def _predict(flows: list[_Flow], duration: Duration, sizes: list[Floats], first: int, cap: int) -> Layout:
    """Tail and communication of one layout, mean over the flows; caps in MiB, 0 for what was recorded."""
    tails, comms = np.empty(len(flows)), np.empty(len(flows))
    for mine, bytes_, rows in _alike(flows, sizes):
        moved, lasts = np.cumsum(mine), duration(mine)
        done = np.cumsum(lasts)
        ready = _interpolated(moved, bytes_, np.array([flows[row].at for row in rows]))
        # Each bucket ends its own time after it is complete or the one before has ended, whichever is later.
        end = (done + np.maximum.accumulate(ready - (done - lasts), axis=1))[:, -1]
        tails[rows] = np.maximum(0.0, end - [flows[row].backward for row in rows])
        comms[rows] = lasts.sum()
    largest = max(float(mine.max()) for mine in sizes)
    return Layout(
        first=first * MIB or round(float(sizes[0][0])),
        cap=cap * MIB or round(largest),
        buckets=len(sizes[0]),
        tail=round(float(np.mean(tails))),
        comm=round(float(np.mean(comms))),
    )


def _alike(flows: list[_Flow], sizes: list[Floats]) -> list[tuple[Floats, Floats, list[int]]]:
    """The flows with the same gradients and the same buckets together: these two, and their places."""
    found: dict[tuple[bytes, bytes], tuple[Floats, Floats, list[int]]] = {}
    for row, (flow, mine) in enumerate(zip(flows, sizes, strict=True)):
        found.setdefault((mine.tobytes(), flow.bytes.tobytes()), (mine, flow.bytes, []))[2].append(row)
    return list(found.values())


def _interpolated(x: Floats, known: Floats, values: Floats) -> Floats:
    """What :func:`numpy.interp` gives at ``x`` for each row of ``values``, shape ``(rows, len(x))``."""
    place = np.clip(np.searchsorted(known, x, side="right") - 1, 0, len(known) - 2)
    left, right = values[:, place], values[:, place + 1]
    found: Floats = (right - left) / (known[place + 1] - known[place]) * (x - known[place]) + left
    found[:, x >= known[-1]] = values[:, -1:]
    found[:, x <= known[0]] = values[:, :1]
    return found


def _best(layouts: list[Layout], current: Layout, step: int) -> Layout:
    """The layout with the fewest buckets among those that gain most; plain caps before lists, and no change before any
    that is not worth it."""
    gain = current.tail - min(layout.tail for layout in layouts)
    if gain < WORTH * step:
        return current
    near = [layout for layout in layouts if current.tail - layout.tail >= MOST * gain]
    return min(near, key=lambda layout: (layout.buckets, layout.first != layout.cap, layout.tail))


def _duration(measured: GroupBandwidth) -> Duration:
    """Nanoseconds for messages of any size: the group's fit, else a line through its points, else in proportion."""
    fit, factor = measured.fit, measured.factor
    if fit.lines:
        return lambda sizes: np.array([fit.predict(size * factor)[0] for size in sizes.tolist()], np.float64)
    moved, ns = fit.moved, fit.ns
    slope = alpha = 0.0
    if len(moved) > 1 and moved[-1] > moved[0]:
        slope = max(0.0, float((ns[-1] - ns[0]) / (moved[-1] - moved[0])))
        alpha = float(ns[0] - slope * moved[0])
    if slope <= 0 or alpha < 0:
        slope, alpha = float(ns[-1] / max(moved[-1], 1.0)), 0.0
    return lambda sizes: alpha + slope * factor * sizes
