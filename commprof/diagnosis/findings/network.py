"""Networks: bandwidth against what the hardware reaches."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.bandwidth import GroupBandwidth
from commprof.analysis.messages import message_times
from commprof.analysis.segments import any_of
from commprof.analysis.what_if import left_of_matches
from commprof.diagnosis.findings.case import Case, Claim, ranks_of, steps_of
from commprof.diagnosis.findings.packed import packed_behind
from commprof.diagnosis.findings.shorter import given_back, longer_by_step, transfers
from commprof.diagnosis.findings.tensor import crossing
from commprof.diagnosis.ground import P2P, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.diagnosis.thresholds import Thresholds
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS
from commprof.units import format_gbps

_HALF_OF_THE_LINK = 0.5
_SEVERAL = 3
"""Where bytes take so many times the usual latency it is too small a part to be in doubt."""
_APART = 1.5
"""Messages of sizes so far apart tell latency from bandwidth."""
Found = TypeVar("Found")
Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Transfers of operations of one group: message sizes (rising), bytes on the bus, ns, and the efficiency below
    which they are slow, whatever else ran beside them. ``latency`` is what they can need whatever their size, ns, where
    that shows, and ``by_sizes`` says that it shows in large messages themselves."""

    group: int
    operations: tuple[str, ...]
    entry: GroupBandwidth
    sizes: NDArray[np.float64]
    moved: NDArray[np.float64]
    ns: NDArray[np.float64]
    limit: float
    latency: float = math.inf
    by_sizes: bool = False


def _measured(ground: Ground) -> Iterator[_Measured]:
    """What can be held against the hardware; of messages that no common clock tells, what the later side lasts.

    Where hardly any call ran alone the fastest stands for all; unless one that did was no faster, another call may have
    had half of the link meanwhile.
    """
    analysis, messages, limit = ground.analysis, message_times(ground.analysis), ground.limits.efficiency
    for (group, operation), entry in sorted(analysis.bandwidth.items()):
        if entry.ceiling is None:
            continue
        fit = entry.claimable
        if fit is not None:
            moved, lasted = np.asarray(fit.moved, np.float64), np.asarray(fit.ns, np.float64)
            of_size = moved / entry.factor
            latency = _latency_of(ground.limits, of_size, moved, lasted)
            yield _Measured(
                group, (operation,), entry, of_size, moved, lasted, limit, latency, _apart(ground.limits, of_size)
            )
        elif operation in P2P and group in messages:
            sizes, ns = messages.pop(group)
            yield _Measured(group, P2P, entry, sizes.astype(float), sizes.astype(float), ns.astype(float), limit)
        elif not entry.bound and entry.best:
            moved = np.asarray(entry.fit.moved, np.float64)
            part = 1.0 if entry.best_is_clean else _HALF_OF_THE_LINK
            yield _Measured(group, (operation,), entry, moved / entry.factor, moved, moved / entry.best, limit * part)


@dataclass(frozen=True, slots=True, eq=False)
class _Slow:
    """Transfers that may be slow for their sizes: the ``large`` ones among them, what these need against what they
    take, the ``share`` of each that is too much, and the ``rows`` of exposed time that are theirs."""

    one: _Measured
    large: Mask
    efficiency: float
    share: Times
    rows: Mask

    @property
    def reached(self) -> float:
        """The best bus bandwidth, bytes per ns."""
        return float((self.one.moved[self.large] / self.one.ns[self.large]).max())


def low_bandwidth(ground: Ground) -> Iterator[Case]:
    """A group's clean transfers take much longer than its machine needs for messages of their size.

    What it needs is ``S f`` at the peak and an allowance for latency, which small messages are not blamed for. Groups
    with a rank in common, or between hosts with a host in common, use the same links and are one case.
    """
    measured = [] if ground.analysis.group_assumed else list(_measured(ground))
    large = [entry for one in measured if (entry := _held_against(ground, one)) is not None]
    slow = [entry for entry in large if entry.efficiency < entry.one.limit]
    for found in joined(slow, lambda entry: _ports(ground, entry.one.group)):
        others = [entry for entry in large if entry not in slow and _same_links(ground, entry, found)]
        yield _low_bandwidth(ground, found, [*found, *others])


def _same_links(ground: Ground, other: _Slow, found: Sequence[_Slow]) -> bool:
    """Whether transfers use all the links of some that are slow beyond doubt: then they are slow as well, however much
    of what they take may be latency."""
    crosses, ranks = crossing(ground.analysis), set(ground.analysis.groups[other.one.group].ranks or ())
    return any(
        other.one.group == slow.one.group
        or (
            (other.one.group in crosses) == (slow.one.group in crosses)
            and bool(ground.analysis.groups[slow.one.group].ranks)
            and ranks.issuperset(ground.analysis.groups[slow.one.group].ranks or ())
        )
        for slow in found
    )


def joined(found: Sequence[Found], parts: Callable[[Found], Collection[Any]]) -> list[list[Found]]:
    """What has a part in common, with each other or with what has, together; in the order of the first of each."""
    out: list[tuple[set[Any], list[Found]]] = []
    for entry in found:
        mine, apart = (set(parts(entry)), [entry]), []
        for known in out:
            if known[0] & mine[0]:
                mine = (known[0] | mine[0], known[1] + mine[1])
            else:
                apart.append(known)
        out = [*apart, mine]
    return [entries for _, entries in sorted(out, key=lambda one: found.index(one[1][0]))]


def _ports(ground: Ground, group: int) -> set[str | int]:
    """What the links of a group share with those of others: between hosts the adapters of these, else its ranks."""
    ranks, hosts = ground.analysis.groups[group].ranks or (), ground.analysis.hosts
    if group in crossing(ground.analysis):
        return {hosts[rank] for rank in ranks if rank in hosts}
    return set(ranks) or {f"group {group}"}


def _held_against(ground: Ground, one: _Measured) -> _Slow | None:
    """Large transfers against what their machine needs; ``None`` where there are none."""
    large, ceiling = one.sizes >= ground.limits.tiny_message, one.entry.ceiling
    if not large.any() or ceiling is None:
        return None
    between, limits = one.group in crossing(ground.analysis), ground.limits
    # What a link in order leaves of a message is a bound with the least latency, unless sizes tell what it is.
    least = limits.least_latency_ns if between else limits.least_inner_latency_ns
    usual = limits.latency_ns if between else limits.inner_latency_ns
    latency = _latency(ground, one, large, usual if one.by_sizes else least)
    needed, taken = latency + one.moved[large] / ceiling.low, one.ns[large]
    efficiency = _efficiency(ground, one, large, between)
    rows = (ground.exposed.group == one.group) & ground.operation_is(*one.operations)
    rows &= ground.exposed.size >= ground.limits.tiny_message
    return _Slow(one, large, efficiency, np.maximum(1 - needed / taken, 0.0), rows)


def _low_bandwidth(ground: Ground, found: Sequence[_Slow], longer: Sequence[_Slow]) -> Case:
    """What is slow over the same links: ``found`` shows it, ``longer`` are all transfers that last longer for it."""
    ones = [slow.one for slow in found]
    group = next((slow.one.group for slow in found if slow.rows.any()), ones[0].group)
    ceiling = ones[0].entry.ceiling
    assert ceiling is not None
    parts = [_excess(ground, slow.one, slow.large, slow.share, alike) for slow, alike in _with_alike(ground, longer)]
    rows = np.logical_or.reduce([slow.rows for slow in longer])
    worst = min(found, key=lambda slow: slow.efficiency / slow.one.limit)
    between = group in crossing(ground.analysis)
    clean = sum(one.entry.clean for one in ones if one.entry.undisturbed)
    shorter = _too_long(ground, longer)
    return Case(
        "low-bandwidth",
        f"Network bound: {_rates(found, ' between hosts')}, little for messages of this size"
        if between
        else f"Low bandwidth for messages of this size: {_rates(found)}",
        Claim(rest=given_back(ground, lambda step: np.maximum.reduce([part(step) for part in parts]))),
        (
            "Check the path that NCCL chose (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=GRAPH,TUNING): NVLink or PCIe, "
            "GPUDirect RDMA, number of adapters and channels (NCCL_IB_HCA, NCCL_MIN_NCHANNELS); run nccl-tests on "
            "the same ranks.",
        ),
        (
            Evidence("best bus bandwidth of large messages", max(slow.reached for slow in found), "GB/s"),
            Evidence("what the hardware reaches", ceiling.low, "GB/s"),
            Evidence("needed against taken", round(worst.efficiency, 3), "share of the transfer"),
            *((Evidence("calls without contention", clean, "calls"),) if clean else ()),
            *packed_behind(ground),
        ),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=group, calls=ground.calls_in(rows),
        confidence="estimate" if any(one.entry.contended or not one.entry.undisturbed for one in ones) else "bound",
        threshold=Threshold(worst.one.limit, "share of the transfer", ceiling.source),
        shorter=shorter, measured=longer_by_step(ground, shorter),
    )  # fmt: skip


def _too_long(ground: Ground, found: Sequence[_Slow]) -> Int64Array | None:
    """By how much each match lasts too long; unequal all-to-alls of the same ranks by the same share."""
    calls = ground.analysis.matching
    if calls is None or ground.analysis.times is None:
        return None
    rows = calls.rows[calls.first[:-1]]
    lasted, size, fused = left_of_matches(calls, ground.analysis.times), calls.calls.size[rows], calls.calls.fused[rows]
    unequal = any_of(calls.calls.unequal[calls.rows] > 0, calls.first)
    out = np.zeros(len(calls), np.int64)
    for slow, alike in _with_alike(ground, found):
        one = slow.one
        mine = (calls.group == one.group) & np.isin(
            calls.operation, [OPERATIONS.index(name) for name in one.operations]
        )
        mine |= np.isin(calls.group, alike) & unequal
        mine &= ~fused & (size >= ground.limits.tiny_message)
        ns = lasted * np.interp(size, one.sizes[slow.large], slow.share)
        out = np.maximum(out, np.where(mine, ns, 0).astype(np.int64))
    return out


def _rates(found: Sequence[_Slow], where: str = "") -> str:
    """Such as "all-gather between hosts reaches 9.1 GB/s, reduce-scatter 8.7 GB/s"."""
    best: dict[str, float] = {}
    for slow in found:
        name = "/".join(name.replace("_", "-") for name in slow.one.operations if name != "send_recv")
        best[name] = max(best.get(name, 0.0), slow.reached)
    first, *others = [(name, format_gbps(rate)) for name, rate in best.items()]
    return ", ".join([f"{first[0]}{where} reaches {first[1]}", *(f"{name} {rate}" for name, rate in others)])


def _latency_of(limits: Thresholds, sizes: Times, moved: Times, ns: Times) -> float:
    """What large messages take whatever their size, ns: what the line through the smallest and the largest of them
    leaves at no bytes, if the one is at least half as large again as the other; else twice what a message without many
    bytes takes, since protocols for large ones have about twice the latency of those for small ones inside a pair of
    ranks (nccl, ``tuning.cc``). Infinite where neither shows.
    """
    large, small = sizes >= limits.large_message, sizes < limits.no_bytes
    if _apart(limits, sizes):
        x, t = moved[large][[0, -1]], ns[large][[0, -1]]
        return max(0.0, float(t[0] - x[0] * (t[1] - t[0]) / (x[1] - x[0])))
    return 2 * float(ns[small].min()) if small.any() else math.inf


def _apart(limits: Thresholds, sizes: Times) -> bool:
    """Whether large messages differ in size by enough to tell latency from bandwidth; ``sizes`` rise."""
    large = sizes[sizes >= limits.large_message]
    return bool(len(large)) and bool(large[-1] >= _APART * large[0])


def _latency(ground: Ground, one: _Measured, large: Mask, usual: int) -> Times:
    """The ``usual`` latency of each message, ns, or less where less shows; as often as it is paid."""
    shown = np.where(one.sizes[large] >= ground.limits.large_message, min(usual, one.latency), usual)
    return np.asarray(shown * _hops(ground, one, large))


def _latency_most(ground: Ground, one: _Measured, large: Mask, usual: int, between: bool) -> Times:
    """The most that each message may take beside its bytes, ns: large ones, which go in a pipeline, the ``usual`` one
    or less where less shows; smaller ones the base of it once and what every hop adds."""
    limits = ground.limits
    hop = limits.hop_latency_ns if between else limits.inner_hop_latency_ns
    by_hops = np.maximum(usual, limits.base_latency_ns + _hops(ground, one, large) * hop)
    return np.where(one.sizes[large] >= limits.large_message, min(usual, one.latency), by_hops)


def _efficiency(ground: Ground, one: _Measured, large: Mask, between: bool) -> float:
    """What the messages need at the peak, with latency, against what they take.

    Where latency shows in large messages, or less of it than is usual in small ones, bytes alone are held against what
    they take without it (the usual one at most); those messages of which it may be the larger part are left out. The
    same holds for messages of so many bytes that even the usual latency is a small part: it is not granted twice.
    """
    assert one.entry.ceiling is not None
    usual = ground.limits.latency_ns if between else ground.limits.inner_latency_ns
    latency, taken = _latency_most(ground, one, large, usual, between), one.ns[large]
    at_peak = one.moved[large] / one.entry.ceiling.low
    shows = one.by_sizes or one.latency < usual
    sure = (one.sizes[large] >= ground.limits.large_message) & (taken > latency)
    sure &= at_peak >= latency * (1 if shows else _SEVERAL)
    if sure.any():
        return float(at_peak[sure].sum() / (taken - latency)[sure].sum())
    return float((latency + at_peak).sum() / taken.sum())


def _hops(ground: Ground, one: _Measured, large: Mask) -> NDArray[np.float64]:
    """How many times the latency is paid: once by large messages, which go in a pipeline; by smaller ones once for
    every level of a tree of the members, and twice if they go up and down."""
    levels = math.ceil(math.log2(max(one.entry.members, 2))) * (2 if "all_reduce" in one.operations else 1)
    return np.where(one.sizes[large] >= ground.limits.large_message, 1.0, float(levels))


def _with_alike(ground: Ground, found: Sequence[_Slow]) -> Iterator[tuple[_Slow, tuple[int, ...]]]:
    """Each with the groups for which it stands, of the same ranks: the first of these."""
    seen: set[tuple[int, ...] | None] = set()
    for slow in found:
        ranks = ground.analysis.groups[slow.one.group].ranks
        yield slow, () if ranks in seen else _of_ranks(ground, ranks)
        seen.add(ranks)


def _of_ranks(ground: Ground, members: tuple[int, ...] | None) -> tuple[int, ...]:
    """All groups of exactly these ranks: they have the same links."""
    groups = ground.analysis.groups
    return tuple(index for index, group in enumerate(groups) if members is not None and group.ranks == members)


def _excess(
    ground: Ground, one: _Measured, large: Mask, share: NDArray[np.float64], alike: Sequence[int]
) -> Callable[[ReferenceStep], Int64Array]:
    """By how much the large calls of a group last too long: ``share`` of their transfer at these sizes (rising), in
    proportion between them; of messages no more than of what one takes, since the rest of it may be waiting.

    All-to-alls with unequal splits have no bandwidth of their own: in the groups ``alike``, over the same links, they
    last too long by the same share.
    """

    def of_step(step: ReferenceStep) -> Int64Array:
        calls = step.rank.calls
        groups = np.array([*ground.analysis.group_of[step.where], -1], np.int64)[calls.group]
        mine = (groups == one.group) & np.isin(calls.operation, [OPERATIONS.index(name) for name in one.operations])
        mine |= np.isin(groups, alike) & (calls.unequal > 0)
        mine &= ~calls.fused & (calls.size_bytes >= ground.limits.tiny_message)
        part, lasted = np.interp(calls.size_bytes, one.sizes[large], share), transfers(ground, step)
        if not one.entry.undisturbed and set(one.operations) <= set(P2P):
            lasted = np.minimum(lasted, np.interp(calls.size_bytes, one.sizes[large], one.ns[large]))
        return np.where(mine, lasted * part, 0).astype(np.int64)

    return of_step
