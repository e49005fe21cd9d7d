"""Networks: bandwidth against what the hardware reaches, one link against its siblings, and links that come and go."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.findings.case import Case, of_rest, ranks_of, steps_of
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence, Threshold
from commprof.trace.operations import OPERATIONS
from commprof.units import format_gbps


def low_bandwidth(ground: Ground) -> Iterator[Case]:
    """A group's clean transfers of large messages reach little of what its machine can do."""
    limits = ground.limits
    for (group, operation), entry in sorted(ground.analysis.bandwidth.items()):
        if entry.ceiling is None or entry.bound or entry.contended:
            continue
        large = entry.fit.moved >= limits.large_message * entry.factor
        asked, least = (limits.efficiency, limits.large_message)
        if not large.any():
            large = entry.fit.moved >= limits.medium_message * entry.factor
            asked, least = (limits.medium_efficiency, limits.medium_message)
        if not large.any():
            continue
        reached = float((entry.fit.moved[large] / entry.fit.ns[large]).max())
        efficiency = reached / entry.ceiling.low
        rows = (ground.exposed.group == group) & (ground.exposed.operation == OPERATIONS.index(operation))
        rows &= ground.exposed.size >= least
        if efficiency >= asked or not rows.any():
            continue
        yield Case(
            "low-bandwidth",
            f"Low bandwidth for messages of this size: {operation.replace('_', '-')} reaches {format_gbps(reached)}",
            of_rest(ground, rows, 1 - efficiency),
            (
                "Check the path that NCCL chose (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH,TUNING): NVLink or PCIe, "
                "GPUDirect "
                "RDMA, number of adapters and channels (NCCL_IB_HCA, NCCL_MIN_NCHANNELS); run nccl-tests on the same "
                "ranks.",
            ),
            (
                Evidence("best bus bandwidth of large messages", reached, "GB/s"),
                Evidence("what the hardware reaches", entry.ceiling.low, "GB/s"),
                Evidence("calls without contention", entry.clean, "calls"),
            ),
            ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=group, calls=ground.calls_in(rows),
            confidence="bound",
            threshold=Threshold(asked, "share of the peak", entry.ceiling.source),
        )  # fmt: skip


def slow_link(ground: Ground) -> Iterator[Case]:
    """One group is slower than its siblings, with nobody late."""
    for row in ground.known("slow_links"):
        rows = np.isin(ground.exposed.group, [row.group])
        if row.operation is not None:
            rows &= ground.exposed.operation == OPERATIONS.index(row.operation)
        if not rows.any():
            continue
        yield Case(
            "slow-link",
            f"The link or adapter of one group is slow: {row.factor:.1f} times the transfer time of its siblings",
            of_rest(ground, rows, 1 - 1 / row.factor),
            (
                "Look at links and adapters of these ranks (nvidia-smi nvlink -s, ibstat, ethtool: width, speed, error "
                "and "
                "retry counters), cables and switch ports; move the ranks to other machines to see whether it moves "
                "along.",
            ),
            (
                Evidence("transfer against siblings", round(row.factor, 3), "times as long"),
                *(Evidence("seen", text, "") for text in list(row.evidence)[:3]),
            ),
            ranks=tuple(row.ranks), steps=steps_of(ground, rows), group_id=row.group, calls=ground.calls_in(rows),
        )  # fmt: skip


def network_intermittent(ground: Ground) -> Iterator[Case]:
    """The same messages take much longer in some steps than in others."""
    for row in ground.known("intermittent"):
        rows = np.isin(ground.exposed.match, list(row.matches))
        if not rows.any():
            continue
        yield Case(
            "network-intermittent",
            f"The network is slow now and then: single calls take {row.factor:.1f} times as long as the others",
            of_rest(ground, rows, 1 - 1 / row.factor),
            (
                "Look for what shares the network at those times (checkpoints, other jobs, congestion), for flapping "
                "links "
                "(error counters, link downs) and for retries (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT).",
            ),
            (
                Evidence("slow calls", len(row.matches), "calls"),
                Evidence("against the median", round(row.factor, 3), "times as long"),
            ),
            ranks=tuple(row.ranks), steps=steps_of(ground, rows), group_id=row.group, calls=ground.calls_in(rows),
        )  # fmt: skip
