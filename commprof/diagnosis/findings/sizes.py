"""Messages of the wrong size: too large to start in time, or so small that latency decides."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commprof.diagnosis.findings.case import Case, ranks_of, steps_of, whole
from commprof.diagnosis.findings.reductions import NOT_OVERLAP, facts, last_is_large, of_gradients
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.model import Evidence, Threshold
from commprof.trace.operations import OPERATIONS, bus_factor

CAP = "torch.nn.parallel.DistributedDataParallel(bucket_cap_mb=...)"


def bucket_too_large(ground: Ground) -> Iterator[Case]:
    """The last bucket holds so much that its reduction starts late and ends alone."""
    rows, found = of_gradients(ground)
    if not rows.any() or not last_is_large(ground, found):
        return
    last = np.zeros(len(rows), np.bool_)
    for index, step in enumerate(found):
        last |= (ground.exposed.step == index) & np.isin(ground.exposed.call, step.calls[-1:])
    rows &= last & ~ground.cause_is(*NOT_OVERLAP)
    size = max(int(step.size[-1]) for step in found)
    yield Case(
        "bucket-too-large",
        "The last bucket is too large: it is ready late and nothing is left to hide it",
        whole(ground, rows),
        (
            f"Make buckets smaller: lower {CAP}, reduce_bucket_size (DeepSpeed) or --ddp-bucket-size "
            "(Megatron); more "
            "messages cost latency. One very large parameter cannot be split by DDP: place it early in the backward "
            "pass.",
        ),
        (Evidence("bytes of the last bucket", size, "bytes"), *facts(ground, rows, found)),
        cause="tail", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows),
        threshold=Threshold(
            ground.limits.large_bucket, "bytes", "default cap of 25 MiB and one parameter more (torch, reducer.hpp)"
        ),
    )  # fmt: skip


def buckets_too_small(ground: Ground) -> Iterator[Case]:
    """Many small reductions: their latency costs more than their bytes."""
    rows = ground.gradients()
    if rows.any():
        yield from _small(ground, rows, "buckets-too-small", "Gradient buckets are too small: latency decides", (
            f"Make buckets larger: raise {CAP} (default 25), reduce_bucket_size (DeepSpeed); the last bucket "
            "then is "
            "larger too and exposes more.",
        ))  # fmt: skip


def tiny_messages(ground: Ground) -> Iterator[Case]:
    """Many messages that are all latency."""
    rows = ~ground.operation_is("send", "recv", "send_recv", "barrier") & ~ground.flag_is("profiler-start", "first-use")
    if rows.any():
        yield from _small(ground, rows, "tiny-messages", "Many tiny messages: latency decides, not bandwidth", (
            "Join them: bucket small tensors into one call (flatten, all_reduce_coalesced, larger DDP or FSDP units), "
            "or send "
            "them in every n-th step only; larger units cost memory.",
        ))  # fmt: skip


def _small(ground: Ground, rows: Mask, identity: str, title: str, advice: tuple[str, ...]) -> Iterator[Case]:
    """The case of calls that are bound by latency, if there are many per step."""
    limits, exposed = ground.limits, ground.exposed
    saving = _latency(ground)
    tiny = rows & (saving > 0) & (exposed.size >= 0)
    count = ground.calls_in(tiny)
    if count < limits.many_calls:
        return
    back = ground.per_step(exposed.step, np.where(tiny, (exposed.rest * saving).astype(np.int64), 0))
    sizes = ground.column("size_bytes", tiny)
    yield Case(
        identity, title,
        whole(ground, tiny),
        advice,
        (
            Evidence("such calls per step", count, "calls"),
            Evidence("median message", int(np.median(sizes)), "bytes"),
            Evidence("exposed", int(exposed.rest[tiny].sum()) // len(ground.steps), "ns"),
            Evidence("of it latency", int(back.sum()) // len(ground.steps), "ns"),
        ),
        ranks=ranks_of(ground, tiny), steps=steps_of(ground, tiny), group_id=ground.one_group(tiny), calls=count,
        recoverable=back, confidence="estimate",
        threshold=Threshold(limits.latency_share, "share of a call", "default: more latency than bytes"),
    )  # fmt: skip


def _latency(ground: Ground) -> NDArray[np.float64]:
    """Part of the time of each row that joining messages would save; 0 for rows that are not bound by latency.

    A call of ``S`` bytes could take ``S f / best`` at the best bus bandwidth of its group; without one, below the size
    at which messages are tiny, all of it counts as latency.
    """
    exposed, limits = ground.exposed, ground.limits
    bandwidth = getattr(ground.analysis, "bandwidth", None) or {}
    share = np.where((exposed.size >= 0) & (exposed.size < limits.tiny_message), 1.0, 0.0)
    duration = np.ones(len(exposed), np.float64)
    for index, step in enumerate(ground.steps):
        mine = exposed.step == index
        duration[mine] = np.maximum(step.rank.calls.duration[exposed.call[mine]], 1)
    for (group, operation), entry in bandwidth.items():
        mine = (exposed.group == group) & (exposed.operation == OPERATIONS.index(operation)) & (exposed.size >= 0)
        factor = bus_factor(operation, entry.members)
        if not mine.any() or not entry.best or factor is None:
            continue
        needed = exposed.size[mine] * factor / entry.best
        transfer = np.array([max(entry.predict(float(size))[0], 1) for size in exposed.size[mine].tolist()], np.float64)
        transfer = np.minimum(np.maximum(transfer, needed), duration[mine])
        spread = entry.fit.moved[-1] > 4 * entry.fit.moved[0] if len(entry.fit.moved) else False
        latency = np.clip(1 - needed / transfer, 0, 1) if spread else share[mine]
        share[mine] = np.where(latency >= limits.latency_share, latency, np.where(share[mine] > 0, share[mine], 0))
    return share
