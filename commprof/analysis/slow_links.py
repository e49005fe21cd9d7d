"""Transfers that stand out: of one group against groups of the same kind, and of single calls against their likes.

Both compare transfers (``spec``: section 6), which hold no waiting for late ranks, of equal operations and sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.beside import beside
from commprof.analysis.hardware import ceiling
from commprof.analysis.hosts import ranks_per_host
from commprof.analysis.matching import COLLECTIVE, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.places import FLAGS
from commprof.analysis.segments import largest, smallest
from commprof.analysis.waiting import MatchTimes
from commprof.intervals import Int64Array, expand_ranges
from commprof.trace.operations import OPERATIONS, bus_factor

SLOWER = 1.5
"""A group is slow if its transfers last so many times as long as those of its siblings: more than the spread of healthy
links, which share switches and adapters."""
OUTLIER = 2.0
"""A call is slow if its transfer lasts so many times as long as the faster half of calls of its kind."""
LEAST_NS = 5_000
_LEAST_MESSAGE_NS = 30_000
"""Messages and broadcasts are told by aligned clocks, which are off by some microseconds."""
_FEWEST_CALLS = 4
_MOST_OUTLIERS = 0.5
_ALONE = 4.0
"""One slow call says something only if it is as slow as this."""
_UNEQUAL = -1
"""Stands for the size of an all-to-all with unequal splits, which every rank has another of."""
_ODD = (FLAGS.index("profiler-start"), FLAGS.index("first-use"))


def _none() -> Int64Array:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SlowLink:
    """One group, or for messages one pair of ranks in it, that is slower than its ``siblings`` in one operation,
    ``factor`` times at the median over sizes; ``matches`` are its calls, ``excess`` what each lasts too long (ns).

    ``beside`` are calls of other groups without siblings over the same link, and ``beside_excess`` what it makes them
    last longer (ns)."""

    group: int
    operation: int
    ranks: tuple[int, ...]
    factor: float
    siblings: int
    calls: int
    matches: Int64Array
    excess: Int64Array
    beside: Int64Array = field(default_factory=_none)
    beside_excess: Int64Array = field(default_factory=_none)


@dataclass(frozen=True, slots=True, eq=False)
class Intermittent:
    """Calls of one group and operation that are slow now and then: ``matches`` with their own ``factors`` and
    ``excess`` (ns), among ``calls`` of their kind.

    ``beside`` are other calls that share a link with them meanwhile, and ``beside_excess`` what they last longer than
    most of their kind (ns)."""

    group: int
    operation: int
    ranks: tuple[int, ...]
    matches: Int64Array
    factors: NDArray[np.float64]
    excess: Int64Array
    calls: int
    beside: Int64Array = field(default_factory=_none)
    beside_excess: Int64Array = field(default_factory=_none)


@dataclass(slots=True, eq=False)
class _Kinds:
    """Matches with a known transfer, by kind (operation and size): columns of one entry per match.

    ``pair`` numbers sender and receiver of a message, -1 for a collective. ``moved`` are the bytes that it takes its
    time for, alike in each kind; but all-to-alls with unequal splits are one kind, of the size :data:`_UNEQUAL`.
    """

    match: Int64Array
    group: Int64Array
    operation: Int64Array
    size: Int64Array
    transfer: Int64Array
    pair: Int64Array
    moved: Int64Array

    def each(self) -> Iterator[tuple[tuple[int, int, int, int], Int64Array]]:
        """Every kind as group, operation, size and pair, with its entries."""
        key = np.stack([self.group, self.operation, self.size, self.pair])
        order = np.lexsort(key[::-1])
        borders = np.flatnonzero((np.diff(key[:, order], axis=1) != 0).any(axis=0)) + 1
        for mine in np.split(order, borders) if len(order) else ():
            group, operation, size, pair = key[:, mine[0]].tolist()
            yield (group, operation, size, pair), mine


def ranks_on(links: Iterable[SlowLink | Intermittent]) -> set[int]:
    """The ranks, by number, that these links connect."""
    return {rank for link in links for rank in link.ranks}


def _kinds(analysis: Analysis, found: Matching, times: MatchTimes, *, unequal: bool = False) -> _Kinds:
    """``unequal``: with all-to-alls of unequal splits."""
    rows = found.rows[found.first[:-1]]
    flags = np.concatenate([rank.places.flag for rank in analysis.ranks])
    # A message without a common clock lasted, on the side that came later, for as long as it transferred.
    shortest = smallest(found.calls.duration[found.rows], found.first)
    alone = (times.transfer <= 0) & (found.source >= 0) & (found.absent == 0)
    transfer, size = np.where(alone, shortest, times.transfer), found.calls.size[rows]
    moved, told = size, np.zeros(len(found), np.bool_)
    if unequal:
        # Who comes last has not waited, and is busy until the last has sent what it has to.
        busiest = _busiest(analysis, found)
        told = times.uneven & (found.absent == 0) & (busiest > 0)
        transfer, size = np.where(told, shortest, transfer), np.where(told, _UNEQUAL, size)
        moved = np.where(told, busiest, moved)
    known = (transfer > 0) & ~times.bound & (told | (~times.uneven & (size > 0)))
    known &= ~np.isin(flags[rows], _ODD)
    match = np.flatnonzero(known)
    world = max(rank.rank for rank in analysis.ranks) + 1
    pair = np.where(found.source == COLLECTIVE, -1, found.source * world + found.sink)[match]
    return _Kinds(
        match, found.group[match], found.operation[match].astype(np.int64), size[match], transfer[match], pair,
        moved[match],
    )  # fmt: skip


def _busiest(analysis: Analysis, found: Matching) -> Int64Array:
    """The most bytes that any member sends or receives in each match; 0 where one does not say."""
    most = np.concatenate([np.maximum(rank.calls.sent_bytes, rank.calls.received_bytes) for rank in analysis.ranks])
    least = np.concatenate([np.minimum(rank.calls.sent_bytes, rank.calls.received_bytes) for rank in analysis.ranks])
    told = smallest(least[found.rows], found.first) >= 0
    return np.where(told, largest(most[found.rows], found.first), 0)


def slow_links(analysis: Analysis) -> list[SlowLink]:
    """Groups that are slower than others of their role in the same operation and size, the slowest first."""
    found, times = analysis.matching, analysis.times
    if found is None or times is None or not len(found) or analysis.group_assumed:
        return []
    kinds = _kinds(analysis, found, times)
    one_way = times.one_way[kinds.match]
    medians: dict[tuple[str, int, int], dict[tuple[int, int], tuple[float, Int64Array]]] = defaultdict(dict)
    for (group, operation, size, pair), mine in kinds.each():
        facts = analysis.groups[group]
        if facts.ranks is None or (pair < 0 and one_way[mine[0]]):
            continue
        role = analysis.roles[group].name if analysis.roles else ""
        kind = (f"{role} of {len(facts.ranks)} {_crosses(analysis, group, pair)}", operation, size)
        medians[kind][group, pair] = (float(np.median(kinds.transfer[mine])), kinds.match[mine])
    ratios: dict[tuple[int, int, int], list[tuple[float, Int64Array, int]]] = defaultdict(list)
    for (_, operation, _), groups in medians.items():
        for (group, pair), (median, matches) in groups.items():
            others = [value for other, (value, _) in groups.items() if other != (group, pair)]
            least = LEAST_NS if pair < 0 else _LEAST_MESSAGE_NS
            if others:
                over = median - float(np.median(others)) >= least
                ratios[group, operation, pair].append(
                    (median / float(np.median(others)) if over else 1.0, matches, len(others))
                )
    out = []
    world = max(rank.rank for rank in analysis.ranks) + 1
    for (group, operation, pair), entries in ratios.items():
        factor = float(np.median([entry[0] for entry in entries]))
        if factor >= SLOWER:
            matches = np.concatenate([entry[1] for entry in entries])
            lasted = kinds.transfer[np.searchsorted(kinds.match, matches)]
            excess = (lasted * (1 - 1 / factor)).astype(np.int64)
            ranks = tuple(sorted(divmod(pair, world))) if pair >= 0 else analysis.groups[group].ranks or ()
            out.append(
                SlowLink(
                    group, operation, ranks, factor, max(entry[2] for entry in entries), len(matches), matches, excess
                )
            )
    compared = {key[:2] for key in ratios}
    out = [_with_others(analysis, kinds, one_way, link, compared) for link in out]
    return sorted(out, key=lambda entry: -entry.factor)


def _with_others(
    analysis: Analysis, kinds: _Kinds, one_way: NDArray[np.bool_], link: SlowLink, compared: set[tuple[int, int]]
) -> SlowLink:
    """A slow link with the calls of groups that need it too and have no siblings to be held against: what is left of
    its bandwidth is left to them. None gets shorter than the hardware lets it be."""
    matches, excess = [_none()], [_none()]
    for (group, operation, size, pair), mine in kinds.each():
        facts, name = analysis.groups[group], OPERATIONS[operation]
        same = set(link.ranks) <= set(facts.ranks or ()) and group != link.group
        if not same or pair >= 0 or one_way[mine[0]] or (group, operation) in compared:
            continue
        entry = analysis.bandwidth.get((group, name))
        if entry is None or entry.ceiling is None or _crosses(analysis, group, -1) != _crosses_link(analysis, link):
            continue
        needed = size * entry.factor / entry.ceiling.low
        longer = kinds.transfer[mine] * (1 - 1 / link.factor)
        matches.append(kinds.match[mine])
        excess.append(np.maximum(np.minimum(longer, kinds.transfer[mine] - needed), 0).astype(np.int64))
    return replace(link, beside=np.concatenate(matches), beside_excess=np.concatenate(excess))


def _crosses_link(analysis: Analysis, link: SlowLink) -> bool | None:
    hosts = {analysis.hosts.get(rank) for rank in link.ranks}
    return None if None in hosts else len(hosts) > 1


def _crosses(analysis: Analysis, group: int, pair: int) -> bool | None:
    """Whether a group, or a pair of ranks in it, sits on several hosts: links between hosts are no siblings of those
    inside."""
    if pair < 0:
        return analysis.roles[group].crosses_hosts if analysis.roles else None
    world = max(rank.rank for rank in analysis.ranks) + 1
    one, other = (analysis.hosts.get(rank) for rank in divmod(pair, world))
    return None if one is None or other is None else one != other


def through_memory(analysis: Analysis, group: int) -> bool:
    """Whether a group has no network to blame: ranks that compute on the CPUs of one host exchange through its memory,
    with the cores that compute. When these are busy a call takes much longer: in half of 20 runs without a fault."""
    if not all(rank.on_cpu for rank in analysis.ranks):
        return False
    hosts = {analysis.hosts.get(rank) for rank in analysis.groups[group].ranks or ()}
    return len(hosts) == 1 and None not in hosts


def intermittent(analysis: Analysis) -> list[Intermittent]:
    """Groups in which some calls of a kind last much longer than most of that kind."""
    found, times = analysis.matching, analysis.times
    if found is None or times is None or not len(found) or analysis.group_assumed:
        return []
    kinds = _kinds(analysis, found, times, unequal=True)
    sharers = beside(found, times.transfer)[kinds.match]
    slow: dict[tuple[int, int], tuple[list[int], list[float], list[int], int]] = {}
    longer = np.zeros(len(kinds.match), np.int64)
    for (group, operation, size, pair), mine in kinds.each():
        directed = bool(times.one_way[kinds.match[mine[0]]])
        least, outlier, most = (
            (_LEAST_MESSAGE_NS, _ALONE, _MOST_OUTLIERS / 2) if directed else (LEAST_NS, OUTLIER, _MOST_OUTLIERS)
        )
        if len(mine) < _FEWEST_CALLS or through_memory(analysis, group):
            continue
        transfer = kinds.transfer[mine]
        # Of several sizes none is taken for faster than the middle one: what it lasts may be latency.
        moved = kinds.moved[mine] / np.median(kinds.moved[mine])
        each = transfer / np.maximum(moved, 1.0)
        usual = np.median(np.sort(each)[: (len(each) + 1) // 2]) * np.maximum(moved, 1.0)
        # What a sender has left in buffers when its receiver comes is no transfer: nothing is faster than its link.
        usual = np.maximum(usual, _needed(analysis, group, operation, pair, size))
        # As many others as share its links may make it so many times as long: that is no fault of the network.
        over = (transfer >= (outlier + sharers[mine]) * usual) & (transfer - usual >= least)
        longer[mine] = np.maximum(transfer - usual, 0).astype(np.int64)
        entry = slow.setdefault((group, operation), ([], [], [], 0))
        if over.sum() <= most * len(mine):
            entry[0].extend(kinds.match[mine[over]].tolist())
            entry[1].extend((transfer[over] / usual[over]).tolist())
            entry[2].extend((transfer[over] - usual[over]).astype(np.int64).tolist())
        slow[group, operation] = (*entry[:3], entry[3] + len(mine))
    out = [
        Intermittent(
            group, operation, analysis.groups[group].ranks or (), np.array(matches, np.int64), np.array(factors),
            np.array(excess, np.int64), calls,
        )
        for (group, operation), (matches, factors, excess, calls) in slow.items()
        if len(matches) >= 2 or (matches and max(factors) >= _ALONE)
    ]  # fmt: skip
    taken = np.concatenate([_none(), *(row.matches for row in out)])
    free = np.where(np.isin(kinds.match, taken), 0, longer)
    return [
        _with_sharers(found, times.transfer, row, kinds.match[free >= LEAST_NS], free[free >= LEAST_NS]) for row in out
    ]


def _needed(analysis: Analysis, group: int, operation: int, pair: int, size: int) -> float:
    """What a call of so many bytes needs at least with the hardware, latency left out, ns; 0 where it is not known."""
    world = max(rank.rank for rank in analysis.ranks) + 1
    ranks = divmod(pair, world) if pair >= 0 else analysis.groups[group].ranks or ()
    name = OPERATIONS[operation]
    factor = bus_factor(name, len(ranks))
    top = ceiling(analysis.hardware, name, len(ranks), ranks_per_host(ranks, analysis.hosts))
    return max(size, 0) * factor / top.high if top is not None and factor else 0.0


def _with_sharers(
    found: Matching, transfer: Int64Array, row: Intermittent, matches: Int64Array, longer: Int64Array
) -> Intermittent:
    """Slow calls with those of ``matches`` that transfer on one of their ranks while they do: they share a link."""
    start, end, rank = _transferring(found, transfer, row.matches)
    mine, until, on = _transferring(found, transfer, matches)
    key = np.unique(np.concatenate([rank, on]), return_inverse=True)[1]
    origin = int(min(start.min(), mine.min(initial=start.min())))
    span = int(max(end.max(), until.max(initial=0))) - origin + 1
    shift, other = key[: len(rank)] * span - origin, key[len(rank) :] * span - origin
    begun = np.searchsorted(np.sort(start + shift), until + other, side="left")
    over = np.searchsorted(np.sort(end + shift), mine + other, side="right")
    of = np.repeat(np.arange(len(matches)), np.diff(found.first)[matches])
    shared = np.bincount(of, begun > over, minlength=len(matches)) > 0
    return replace(row, beside=matches[shared], beside_excess=longer[shared])


def _transferring(
    found: Matching, transfer: Int64Array, matches: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array]:
    """When the rows of these matches transfer, up to their end, and their ranks."""
    entries = expand_ranges(found.first[matches], found.first[matches + 1])[1]
    rows = found.rows[entries]
    end = found.calls.end[rows]
    lasted = np.minimum(np.maximum(transfer[found.of_row[entries]], 1), found.calls.duration[rows])
    return end - lasted, end, found.calls.rank[rows]
