"""Networks: bandwidth against what the hardware reaches, one link against its siblings, and links that come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.bandwidth import GroupBandwidth
from commprof.analysis.combine import ranks_text
from commprof.analysis.messages import message_times
from commprof.analysis.slow_links import OUTLIER, SLOWER, Intermittent, SlowLink
from commprof.diagnosis.findings.case import Case, Claim, ranks_of, steps_of
from commprof.diagnosis.findings.shorter import given_back, transfers
from commprof.diagnosis.findings.straggler import hidden_waits, late_by_transfer, late_ranks
from commprof.diagnosis.findings.tensor import crossing
from commprof.diagnosis.ground import P2P, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.diagnosis.thresholds import Thresholds
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS
from commprof.units import format_gbps

_HALF_OF_THE_LINK = 0.5
_APART = 2.0
"""Messages of sizes so far apart tell latency from bandwidth."""
Link = TypeVar("Link", SlowLink, Intermittent)
Times = NDArray[np.float64]
_SHORT = 30
"""So many characters of ranks fit into a title; a title without them says how many there are."""


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """Transfers of operations of one group: message sizes (rising), bytes on the bus, ns, and the efficiency below
    which they are slow, whatever else ran beside them. ``latency`` is what they can need whatever their size, ns, where
    that shows."""

    group: int
    operations: tuple[str, ...]
    entry: GroupBandwidth
    sizes: NDArray[np.float64]
    moved: NDArray[np.float64]
    ns: NDArray[np.float64]
    limit: float
    latency: float = math.inf


def _measured(ground: Ground) -> Iterator[_Measured]:
    """What can be held against the hardware; of messages that no common clock tells, what the later side lasts.

    Of calls that never ran alone the fastest stands for all, and another one may have had half of the link.
    """
    analysis, messages, limit = ground.analysis, message_times(ground.analysis), ground.limits.efficiency
    for (group, operation), entry in sorted(analysis.bandwidth.items()):
        if entry.ceiling is None:
            continue
        fit = entry.claimable
        if fit is not None:
            moved, lasted = np.asarray(fit.moved, np.float64), np.asarray(fit.ns, np.float64)
            latency = _latency_of(ground.limits, moved / entry.factor, moved, lasted)
            yield _Measured(group, (operation,), entry, moved / entry.factor, moved, lasted, limit, latency)
        elif operation in P2P and group in messages:
            sizes, ns = messages.pop(group)
            yield _Measured(group, P2P, entry, sizes.astype(float), sizes.astype(float), ns.astype(float), limit)
        elif not entry.bound and entry.best:
            moved = np.asarray(entry.fit.moved, np.float64)
            yield _Measured(
                group, (operation,), entry, moved / entry.factor, moved, moved / entry.best, limit * _HALF_OF_THE_LINK
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Slow:
    """Transfers that are slow for their sizes: the ``large`` ones among them, what these need against what they take,
    the ``share`` of each that is too much, and the ``rows`` of exposed time that are theirs."""

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

    What it needs is ``S f`` at the peak and an allowance for latency, which small messages are not blamed for. All
    operations between the same ranks use the same links and are one case.
    """
    same_links: dict[tuple[int, ...] | int, list[_Slow]] = {}
    for one in _measured(ground) if not ground.analysis.group_assumed else ():
        if (slow := _slow(ground, one)) is not None:
            members = ground.analysis.groups[one.group].ranks
            same_links.setdefault(one.group if members is None else members, []).append(slow)
    for found in same_links.values():
        yield _low_bandwidth(ground, found)


def _slow(ground: Ground, one: _Measured) -> _Slow | None:
    """``None`` for transfers that are not, or that nobody waited for."""
    large, ceiling = one.sizes >= ground.limits.tiny_message, one.entry.ceiling
    if not large.any() or ceiling is None:
        return None
    between = one.group in crossing(ground.analysis)
    needed, taken = _latency(ground, one, large, between) + one.moved[large] / ceiling.low, one.ns[large]
    efficiency = _efficiency(ground, one, large, between)
    rows = (ground.exposed.group == one.group) & ground.operation_is(*one.operations)
    rows &= ground.exposed.size >= ground.limits.tiny_message
    if efficiency >= one.limit or not rows.any():
        return None
    return _Slow(one, large, efficiency, np.maximum(1 - needed / taken, 0.0), rows)


def _low_bandwidth(ground: Ground, found: Sequence[_Slow]) -> Case:
    """What is slow between the same ranks; the first stands for exchanges that have no bandwidth of their own."""
    ones = [slow.one for slow in found]
    group, ceiling = ones[0].group, ones[0].entry.ceiling
    assert ceiling is not None
    alike = _of_ranks(ground, ground.analysis.groups[group].ranks)
    parts = [
        _excess(ground, slow.one, slow.large, slow.share, alike if slow is found[0] else ()) for slow in found
    ]  # fmt: skip
    rows = np.logical_or.reduce([slow.rows for slow in found])
    worst = min(found, key=lambda slow: slow.efficiency / slow.one.limit)
    between = group in crossing(ground.analysis)
    clean = sum(one.entry.clean for one in ones if one.entry.undisturbed)
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
        ),
        ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=group, calls=ground.calls_in(rows),
        confidence="estimate" if any(one.entry.contended or not one.entry.undisturbed for one in ones) else "bound",
        threshold=Threshold(worst.one.limit, "share of the transfer", ceiling.source),
    )  # fmt: skip


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
    leaves at no bytes, if the one is at least twice the other; else twice what a message without many bytes takes,
    since protocols for large ones have about twice the latency of those for small ones inside a pair of ranks (nccl,
    ``tuning.cc``). Infinite where neither shows.
    """
    large, small = sizes >= limits.large_message, sizes < limits.no_bytes
    if large.any() and moved[large][-1] >= _APART * moved[large][0]:
        x, t = moved[large][[0, -1]], ns[large][[0, -1]]
        return max(0.0, float(t[0] - x[0] * (t[1] - t[0]) / (x[1] - x[0])))
    return 2 * float(ns[small].min()) if small.any() else math.inf


def _latency(ground: Ground, one: _Measured, large: Mask, between: bool) -> Times:
    """What each message may take beside its bytes, ns: the usual latency, or less where less shows."""
    usual = ground.limits.latency_ns if between else ground.limits.inner_latency_ns
    shown = np.where(one.sizes[large] >= ground.limits.large_message, min(usual, one.latency), usual)
    return np.asarray(shown * _hops(ground, one, large))


def _efficiency(ground: Ground, one: _Measured, large: Mask, between: bool) -> float:
    """What the messages need at the peak, with latency, against what they take.

    Where less latency shows than is usual, bytes alone are held against what they take without it; those messages of
    which latency may be the larger part are left out.
    """
    assert one.entry.ceiling is not None
    latency, taken = _latency(ground, one, large, between), one.ns[large]
    at_peak = one.moved[large] / one.entry.ceiling.low
    sure = (one.sizes[large] >= ground.limits.large_message) & (at_peak >= latency) & (taken > latency)
    shows = one.latency < (ground.limits.latency_ns if between else ground.limits.inner_latency_ns)
    if shows and sure.any():
        return float(at_peak[sure].sum() / (taken - latency)[sure].sum())
    return float((latency + at_peak).sum() / taken.sum())


def _hops(ground: Ground, one: _Measured, large: Mask) -> NDArray[np.float64]:
    """How many times the latency is paid: once by large messages, which go in a pipeline; by smaller ones once for
    every level of a tree of the members, and twice if they go up and down."""
    levels = math.ceil(math.log2(max(one.entry.members, 2))) * (2 if "all_reduce" in one.operations else 1)
    return np.where(one.sizes[large] >= ground.limits.large_message, 1.0, float(levels))


def _of_ranks(ground: Ground, members: tuple[int, ...] | None) -> tuple[int, ...]:
    """All groups of exactly these ranks: they have the same links."""
    groups = ground.analysis.groups
    return tuple(index for index, group in enumerate(groups) if members is not None and group.ranks == members)


def slow_link(ground: Ground) -> Iterator[Case]:
    """Groups that are slower than their siblings, whoever comes late; those that share a rank are one case."""
    for rows in by_rank(ground.slow_links):
        claim, mine = _claim(ground, rows)
        if not mine.any():
            continue
        first = rows[0]
        operation = OPERATIONS[first.operation].replace("_", "-")
        yield Case(
            "slow-link",
            f"The link or adapter of {_whose(rows)} is slow: its {operation} takes {first.factor:.1f} times as long as "
            "that of its siblings",
            claim,
            (
                "Look at links and adapters of these ranks (nvidia-smi nvlink -s, ibstat, ethtool: width, speed, error "
                "and "
                "retry counters), cables and switch ports; move the ranks to other machines to see whether it moves "
                "along.",
            ),
            (
                Evidence("transfer against its siblings", round(first.factor, 3), "times as long"),
                Evidence("groups of the same kind", first.siblings, "groups"),
                Evidence("calls", sum(row.calls for row in rows), "calls"),
            ),
            ranks=common_ranks(rows), steps=steps_of(ground, mine), group_id=first.group, calls=ground.calls_in(mine),
            threshold=Threshold(SLOWER, "times as long", "default: more than the spread of healthy links"),
        )  # fmt: skip


def network_intermittent(ground: Ground) -> Iterator[Case]:
    """The same messages take much longer now and then; groups that share a rank are one case."""
    for rows in by_rank(ground.intermittent):
        claim, mine = _claim(ground, rows)
        factors = np.concatenate([row.factors for row in rows])
        if not mine.any():
            continue
        operations = ", ".join(sorted({OPERATIONS[row.operation].replace("_", "-") for row in rows}))
        yield Case(
            "network-intermittent",
            f"The network is slow now and then: {len(factors)} of {sum(row.calls for row in rows)} {operations} calls "
            f"take up to {factors.max():.0f} times as long as most",
            claim,
            (
                "Look for what shares the network at those times (checkpoints, other jobs, congestion), for flapping "
                "links "
                "(error counters, link downs) and for retries (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT).",
            ),
            (
                Evidence("slow calls", len(factors), "calls"),
                Evidence("median of them against most", round(float(np.median(factors)), 3), "times as long"),
            ),
            ranks=common_ranks(rows), steps=steps_of(ground, mine), group_id=rows[0].group, calls=ground.calls_in(mine),
            threshold=Threshold(OUTLIER, "times as long", "default: twice what is usual"), by_event=True,
        )  # fmt: skip


def by_rank(rows: Sequence[Link]) -> list[list[Link]]:
    """Rows that have a rank in common, which may be the one at fault, together; in the order of the first of each."""
    out: list[list[Link]] = []
    for row in rows:
        for known in out:
            if set(common_ranks(known)) & set(row.ranks):
                known.append(row)
                break
        else:
            out.append([row])
    return out


def common_ranks(rows: Sequence[Link]) -> tuple[int, ...]:
    """The ranks that all of these rows have."""
    return tuple(sorted(set(rows[0].ranks).intersection(*(row.ranks for row in rows))))


def _whose(rows: Sequence[Link]) -> str:
    ranks = common_ranks(rows)
    if not ranks:
        return "one group"
    text = f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"
    return text if len(text) <= _SHORT else f"one group of {len(ranks)} ranks"


def _claim(ground: Ground, links: Sequence[Link]) -> tuple[Claim, Mask]:
    """What calls that last too long cost, and the rows of these: their own excess, and the waiting of others for ranks
    that they hold up."""
    excess = dict(
        zip(
            np.concatenate([row.matches for row in links]).tolist(),
            np.concatenate([row.excess for row in links]).tolist(),
            strict=True,
        )
    )
    mine = np.isin(ground.exposed.match, list(excess))
    members = {rank for row in links for rank in row.ranks}
    late = late_ranks(ground)
    holding = late_by_transfer(ground) & members
    held, own = np.isin(late, sorted(holding)), _excess_of(ground, excess)
    # What waited behind compute for the ranks that are held up runs later for it, and is exposed then.
    rest = given_back(ground, lambda step: own(step) + hidden_waits(ground, step, holding))
    others = ground.role_is("pp") & ground.operation_is(*P2P)
    if isinstance(links[0], Intermittent):
        # All ranks of a slow call come late to their next one, so that none of them is named.
        others |= np.isin(late, sorted(members))
    wait = np.where(held, ground.exposed.wait, _held_up(ground, excess, rest, others & ~held))
    return Claim(rest=rest, wait=wait), mine | (wait > 0) | (rest > 0)


def _held_up(ground: Ground, excess: dict[int, int], rest: Int64Array, rows: Mask) -> Int64Array:
    """Waiting in these rows that slow calls elsewhere cause: for ranks that were in them, or for what a neighbour in a
    pipeline got late. No more of it than the calls of the step last too long beyond what they expose themselves."""
    found = ground.analysis.matching
    if found is None or not rows.any():
        return np.zeros(len(rest), np.int64)
    names = found.calls.step_names
    matches = np.array(list(excess), np.int64)
    step_of = found.calls.step[found.rows[found.first[matches]]]
    total = np.bincount(step_of + 1, list(excess.values()), minlength=len(names) + 1)[1:]
    known = dict(zip(names, total.tolist(), strict=True))
    own = ground.per_step(ground.exposed.step, rest)
    room = np.array([sum(known.get(name, 0.0) for name in step.unit.names) for step in ground.steps]) - own
    wait = np.where(rows, ground.exposed.wait, 0)
    share = np.clip(room / np.maximum(ground.per_step(ground.exposed.step, wait), 1), 0.0, 1.0)
    return np.floor(wait * share[ground.exposed.step]).astype(np.int64)


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


def _excess_of(ground: Ground, excess: dict[int, int]) -> Callable[[ReferenceStep], Int64Array]:
    """By how much single calls last too long; ``excess`` (ns) by match."""

    def of_step(step: ReferenceStep) -> Int64Array:
        match = ground.analysis.waiting[step.where].match if ground.analysis.waiting else ()
        return np.array([excess.get(number, 0) for number in match] or [0] * len(step.rank.calls), np.int64)

    return of_step
