"""Links: one against its siblings, and those that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.slow_links import OUTLIER, SLOWER, Intermittent, SlowLink
from commprof.diagnosis.findings.case import Case, Claim, steps_of
from commprof.diagnosis.findings.over_link import excess_beside
from commprof.diagnosis.findings.packed import packed_behind
from commprof.diagnosis.findings.shorter import given_back, longer_by_step
from commprof.diagnosis.findings.straggler import hidden_waits, late_by_transfer, late_ranks
from commprof.diagnosis.ground import P2P, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence, Threshold
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

Link = TypeVar("Link", SlowLink, Intermittent)
_SHORT = 30
"""So many characters of ranks fit into a title; a title without them says how many there are."""


def slow_link(ground: Ground) -> Iterator[Case]:
    """Groups that are slower than their siblings, whoever comes late; those that share a rank are one case."""
    for rows in by_rank(ground.slow_links, ground.analysis.hosts):
        first = rows[0]
        excess = excess_beside(ground, first, common_ranks(rows)) | _excess_by_match(rows)
        claim, mine = _claim(ground, rows, excess)
        shorter = _of_matches(ground, excess)
        if not mine.any() and shorter is None:
            continue
        operation = OPERATIONS[first.operation].replace("_", "-")
        yield Case(
            "slow-link",
            f"The link or adapter of {_whose(rows, ground.analysis.hosts)} is slow: its {operation} takes "
            f"{first.factor:.1f} times as long as that of its siblings",
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
                *packed_behind(ground),
            ),
            ranks=common_ranks(rows), steps=steps_of(ground, mine), group_id=first.group, calls=ground.calls_in(mine),
            threshold=Threshold(SLOWER, "times as long", "default: more than the spread of healthy links"),
            shorter=shorter, measured=longer_by_step(ground, shorter),
        )  # fmt: skip


def network_intermittent(ground: Ground) -> Iterator[Case]:
    """The same messages take much longer now and then; groups that share a rank are one case."""
    for rows in by_rank(ground.intermittent, ground.analysis.hosts):
        excess = _excess_by_match(rows)
        claim, mine = _claim(ground, rows, excess)
        shorter = _of_matches(ground, excess)
        factors = np.concatenate([row.factors for row in rows])
        if not mine.any() and shorter is None:
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
            shorter=shorter, measured=longer_by_step(ground, shorter),
        )  # fmt: skip


def by_rank(rows: Sequence[Link], hosts: Mapping[int, str] | None = None) -> list[list[Link]]:
    """Rows that have a rank in common, which may be the one at fault, together, or, between ``hosts`` (by rank), a host
    whose adapter they may share; in the order of the first of each."""
    out: list[list[Link]] = []
    for row in rows:
        mine = next((known for known in out if _shares(known, row, hosts or {})), None)
        if mine is None:
            out.append([row])
        else:
            mine.append(row)
    return out


def _shares(known: Sequence[SlowLink | Intermittent], row: SlowLink | Intermittent, hosts: Mapping[int, str]) -> bool:
    rows = [*known, row]
    return bool(common_ranks(rows)) or bool(common_hosts(rows, hosts))


def common_hosts(rows: Sequence[SlowLink | Intermittent], hosts: Mapping[int, str]) -> list[str]:
    """The hosts that all of these rows have, if each of them goes from host to host."""
    each = [{hosts.get(rank, "") for rank in row.ranks} for row in rows]
    return sorted(set.intersection(*each)) if all(len(names) > 1 and "" not in names for names in each) else []


def common_ranks(rows: Sequence[SlowLink | Intermittent]) -> tuple[int, ...]:
    """The ranks that all of these rows have."""
    return tuple(sorted(set(rows[0].ranks).intersection(*(row.ranks for row in rows))))


def _whose(rows: Sequence[Link], hosts: Mapping[int, str]) -> str:
    ranks, shared = common_ranks(rows), common_hosts(rows, hosts)
    if not ranks:
        return f"host {shared[0]}" if len(shared) == 1 else "one group"
    text = f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"
    return text if len(text) <= _SHORT else f"one group of {len(ranks)} ranks"


def _excess_by_match(links: Sequence[Link]) -> dict[int, int]:
    """By how much single calls last too long, ns by match, those that share the link included."""
    out: dict[int, int] = {}
    for row in links:
        for matches, excess in ((row.matches, row.excess), (row.beside, row.beside_excess)):
            for match, ns in zip(matches.tolist(), excess.tolist(), strict=True):
                out[match] = max(ns, out.get(match, 0))
    return out


def _of_matches(ground: Ground, excess: dict[int, int]) -> Int64Array | None:
    """The same as one entry for every match."""
    if ground.analysis.matching is None:
        return None
    out = np.zeros(len(ground.analysis.matching), np.int64)
    out[list(excess)] = list(excess.values())
    return out


def _claim(ground: Ground, links: Sequence[Link], excess: dict[int, int]) -> tuple[Claim, Mask]:
    """What calls that last too long cost, and the rows of these: their own excess, and the waiting of others for ranks
    that they hold up."""
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
    total = longer_by_step(ground, _of_matches(ground, excess))
    assert total is not None
    room = total - ground.per_step(ground.exposed.step, rest)
    wait = np.where(rows, ground.exposed.wait, 0)
    share = np.clip(room / np.maximum(ground.per_step(ground.exposed.step, wait), 1), 0.0, 1.0)
    return np.floor(wait * share[ground.exposed.step]).astype(np.int64)


def _excess_of(ground: Ground, excess: dict[int, int]) -> Callable[[ReferenceStep], Int64Array]:
    """By how much single calls last too long; ``excess`` (ns) by match."""

    def of_step(step: ReferenceStep) -> Int64Array:
        match = ground.analysis.waiting[step.where].match if ground.analysis.waiting else ()
        return np.array([excess.get(number, 0) for number in match] or [0] * len(step.rank.calls), np.int64)

    return of_step
