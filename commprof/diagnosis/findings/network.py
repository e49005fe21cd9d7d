"""Networks: bandwidth against what the hardware reaches, one link against its siblings, and links that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from commprof.analysis.slow_links import OUTLIER, SLOWER
from commprof.diagnosis.findings.case import Case, Claim, ranks_of, steps_of
from commprof.diagnosis.findings.shorter import given_back, transfers
from commprof.diagnosis.findings.straggler import late_by_transfer, late_ranks
from commprof.diagnosis.findings.tensor import crossing
from commprof.diagnosis.ground import Ground, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS
from commprof.units import format_gbps


def low_bandwidth(ground: Ground) -> Iterator[Case]:
    """A group's clean transfers take much longer than its machine needs for messages of their size.

    What it needs is ``S f`` at the peak and an allowance for latency, which small messages are not blamed for.
    """
    limits = ground.limits
    for (group, operation), entry in sorted(ground.analysis.bandwidth.items()):
        if entry.ceiling is None or not entry.undisturbed:
            continue
        large = entry.fit.moved >= limits.large_message * entry.factor
        if not large.any():
            continue
        needed = limits.latency_ns + entry.fit.moved[large] / entry.ceiling.low
        efficiency = float((needed / entry.fit.ns[large]).max())
        rows = (ground.exposed.group == group) & (ground.exposed.operation == OPERATIONS.index(operation))
        rows &= ground.exposed.size >= limits.large_message
        if efficiency >= limits.efficiency or not rows.any():
            continue
        reached = float((entry.fit.moved[large] / entry.fit.ns[large]).max())
        what, rate = operation.replace("_", "-"), format_gbps(reached)
        between = group in crossing(ground.analysis)
        yield Case(
            "low-bandwidth",
            f"Network bound: {what} between hosts reaches {rate}, little for messages of this size"
            if between
            else f"Low bandwidth for messages of this size: {what} reaches {rate}",
            Claim(rest=given_back(ground, _excess(ground, group, operation, 1 - efficiency, limits.large_message))),
            (
                "Check the path that NCCL chose (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH,TUNING): NVLink or PCIe, "
                "GPUDirect RDMA, number of adapters and channels (NCCL_IB_HCA, NCCL_MIN_NCHANNELS); run nccl-tests on "
                "the same ranks.",
            ),
            (
                Evidence("best bus bandwidth of large messages", reached, "GB/s"),
                Evidence("what the hardware reaches", entry.ceiling.low, "GB/s"),
                Evidence("needed against taken, at best", round(efficiency, 3), "share of the transfer"),
                Evidence("calls without contention", entry.clean, "calls"),
            ),
            ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=group, calls=ground.calls_in(rows),
            confidence="estimate" if entry.contended else "bound",
            threshold=Threshold(limits.efficiency, "share of the transfer", entry.ceiling.source),
        )  # fmt: skip


def slow_link(ground: Ground) -> Iterator[Case]:
    """One group is slower than its siblings, whoever comes late."""
    for row in ground.slow_links:
        rows = (ground.exposed.group == row.group) & (ground.exposed.operation == row.operation)
        shorter = _excess(ground, row.group, OPERATIONS[row.operation], 1 - 1 / row.factor)
        claim = Claim(rest=given_back(ground, shorter))
        # Others wait for the ranks that the slow group holds up.
        held = np.isin(late_ranks(ground), sorted(late_by_transfer(ground) & set(row.ranks)))
        claim.wait = np.where(held, ground.exposed.wait, 0)
        if not (claim.wait.any() or (claim.rest is not None and claim.rest.any())):
            continue
        operation = OPERATIONS[row.operation].replace("_", "-")
        yield Case(
            "slow-link",
            f"The link or adapter of one group is slow: its {operation} takes {row.factor:.1f} times as long as that "
            "of "
            "its siblings",
            claim,
            (
                "Look at links and adapters of these ranks (nvidia-smi nvlink -s, ibstat, ethtool: width, speed, error "
                "and "
                "retry counters), cables and switch ports; move the ranks to other machines to see whether it moves "
                "along.",
            ),
            (
                Evidence("transfer against its siblings", round(row.factor, 3), "times as long"),
                Evidence("groups of the same kind", row.siblings, "groups"),
                Evidence("calls", row.calls, "calls"),
            ),
            ranks=tuple(row.ranks), steps=steps_of(ground, rows | held), group_id=row.group,
            calls=ground.calls_in(rows | held),
            threshold=Threshold(SLOWER, "times as long", "default: more than the spread of healthy links"),
        )  # fmt: skip


def network_intermittent(ground: Ground) -> Iterator[Case]:
    """The same messages take much longer now and then."""
    for row in ground.intermittent:
        factor = dict(zip(row.matches.tolist(), row.factors.tolist(), strict=True))
        rows = np.isin(ground.exposed.match, row.matches)
        claim = Claim(rest=given_back(ground, _excess_of(ground, factor)))
        # Others wait for the ranks that the slow calls hold up.
        held = np.isin(late_ranks(ground), sorted(late_by_transfer(ground) & set(row.ranks)))
        claim.wait = np.where(held, ground.exposed.wait, 0)
        if not (claim.wait.any() or (claim.rest is not None and claim.rest.any())):
            continue
        operation = OPERATIONS[row.operation].replace("_", "-")
        yield Case(
            "network-intermittent",
            f"The network is slow now and then: {len(row.matches)} of {row.calls} {operation} calls take up to "
            f"{float(row.factors.max()):.0f} times as long as most",
            claim,
            (
                "Look for what shares the network at those times (checkpoints, other jobs, congestion), for flapping "
                "links "
                "(error counters, link downs) and for retries (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT).",
            ),
            (
                Evidence("slow calls", len(row.matches), "calls"),
                Evidence("median of them against most", round(float(np.median(row.factors)), 3), "times as long"),
            ),
            ranks=tuple(row.ranks), steps=steps_of(ground, rows | held), group_id=row.group,
            calls=ground.calls_in(rows | held),
            threshold=Threshold(OUTLIER, "times as long", "default: twice what is usual"),
        )  # fmt: skip


def _excess(
    ground: Ground, group: int, operation: str, share: float, least: int = 0
) -> Callable[[ReferenceStep], Int64Array]:
    """By how much the calls of one operation of a group (an index into the analysis) last too long: a share of their
    transfers, of messages from ``least`` bytes on."""

    def of_step(step: ReferenceStep) -> Int64Array:
        calls = step.rank.calls
        groups = np.array([*ground.analysis.group_of[step.where], -1], np.int64)
        mine = (groups[calls.group] == group) & (calls.operation == OPERATIONS.index(operation)) & ~calls.fused
        mine &= calls.size_bytes >= least if least else mine
        return np.where(mine, transfers(ground, step) * share, 0).astype(np.int64)

    return of_step


def _excess_of(ground: Ground, factor: dict[int, float]) -> Callable[[ReferenceStep], Int64Array]:
    """By how much single calls last too long; ``factor`` by match."""

    def of_step(step: ReferenceStep) -> Int64Array:
        if not ground.analysis.waiting:
            return np.zeros(len(step.rank.calls), np.int64)
        match = ground.analysis.waiting[step.where].match
        share = np.array([1 - 1 / factor.get(number, 1.0) for number in match.tolist()], np.float64)
        return np.asarray(transfers(ground, step) * share, np.int64)

    return of_step
