"""Who makes others wait, how regularly, and why (``spec``: section 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.behaviour import COMM, HOST
from commprof.analysis.blame import Cause, cause_of_long_stage, find_cause
from commprof.analysis.charges import Charges
from commprof.analysis.core_noise import beyond_core_noise
from commprof.analysis.lateness import Float64Array
from commprof.analysis.levels import STAGE_EXCESS, Level, LongStage, find_levels, find_stages, long_stages
from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.slow_links import intermittent, ranks_on, slow_links
from commprof.analysis.turns import host_longer, turns_of_hosts
from commprof.analysis.waiting import MatchTimes
from commprof.intervals import Int64Array

SHARE_OF_STEP = 0.02
"""A charge below this share of the step names nobody; findings start there too."""
ALIKE = 2.0
"""Members of a host, stage or replica whose charges are within this factor are named as a whole."""
_DEVIATIONS = 3.0
_SCATTER = 3.0
_TURNS_FROM = 3
"""From so many ranks on that are late now and then, nobody is accused: a pause goes round."""
_SHARED = "communication"
"""All members of a call have its transfer, so it accuses no rank alone: its group does, as a slow link or a level."""
_LOCAL_PART = 1 / 3
"""A rank charged mostly for transfers is late by itself if at least this part of its charge is."""
_FEWEST_STEPS = 3
_FIRST_STEP_OUT_FROM = 4
_OUTSIDE = 0.5
_LEADS = 0.75


@dataclass(frozen=True, slots=True)
class Straggler:
    """One rank, host, pipeline stage or replica that others wait for; ``rank`` is null for all but the first.

    ``charged_per_step`` is its own charge in ns, ``last`` of ``matched`` calls waited for it. ``chain`` are the ranks
    that lateness went through, from the one that others waited for to the one where it began. ``or_cause`` is another
    cause that the trace cannot tell from ``cause``.
    """

    rank: int | None
    host: str | None
    role: str | None
    kind: str
    charged_per_step: int
    share: float
    last: int
    matched: int
    cause: str
    evidence: tuple[tuple[str, int | float | str, str], ...]
    chain: tuple[int, ...]
    members: tuple[int, ...]
    steps: tuple[str, ...]
    or_cause: str | None = None


@dataclass(slots=True, eq=False)
class Ledger:
    """Own charges by rank and step, ``length`` of each step in ns, names of the steps and their ``places`` among all
    steps; steps that count only. A step is ``closed`` if its window has an end: an open one lacks what it costs the
    next."""

    own: Float64Array
    length: Float64Array
    names: list[str]
    places: list[int]
    closed: NDArray[np.bool_]

    def share(self, members: Sequence[int]) -> Float64Array:
        """Own charge of the members together in each step, as a share of the step."""
        return np.asarray(self.own[list(members)].sum(axis=0) / self.length)

    def per_step(self, members: Sequence[int]) -> tuple[float, float]:
        """Own charge of the members together, and length of a step, both mean over the closed steps if the members
        cost enough in any of them."""
        over = self.closed & (self.share(members) >= SHARE_OF_STEP)
        chosen = self.closed if over.any() else np.ones(len(self.closed), np.bool_)
        return float(self.own[list(members)].sum(axis=0)[chosen].mean()), float(self.length[chosen].mean())


def find_stragglers(
    analysis: Analysis, found: Matching, times: MatchTimes, charges: Charges, peers: Peers, hosts: Mapping[int, str]
) -> list[Straggler]:
    """Every rank, or the host, stage or replica instead of its ranks, that costs the others 2 % of the step or more."""
    ledger = ledger_of(analysis, found, charges)
    if not len(ledger.names):
        return []
    own = beyond_core_noise(analysis, charges.own, peers, found.calls.step_names, ledger.names, ledger.length)
    charges = replace(charges, own=own)
    ledger = ledger_of(analysis, found, charges)
    namer = _Namer(analysis, found, times, charges, peers, hosts, ledger)
    stages = namer.long_stages(long_stages(analysis, find_stages(found, peers), ledger.names))
    levels = find_levels(analysis, found, peers, hosts)
    rotating = namer.rotating(levels)
    if rotating is not None:
        return [rotating, *stages]
    out, covered = list(stages), set[int]()
    for level in sorted(levels, key=lambda level: -len(level.members)):
        if covered.isdisjoint(level.members) and namer.together(level):
            whole = namer.name(level.members, level)
            if whole is not None:
                out.append(whole)
                covered.update(level.members)
    local, linked = namer.without_transfers(), None
    for rank in range(len(analysis.ranks)):
        if rank not in covered and namer.stands_out(rank):
            alone = namer.name((rank,), None)
            if alone is not None and alone.cause == _SHARED:
                # A slow transfer has two ends and accuses neither; what the rank does by itself may be enough.
                linked = linked_ranks(analysis) if linked is None else linked
                part = rank in linked or local.mean[rank] >= _LOCAL_PART * namer.mean[rank]
                alone = local.name((rank,), None) if part and local.stands_out(rank) else None
            if alone is not None:
                out.append(alone)
    named = out[len(stages) :]
    turns = namer.pause_goes_round(named) or namer.taking_turns(named)
    if turns is not None:
        return [turns, *stages, *(one for one in named if one.cause != turns.cause)]
    return sorted(out, key=lambda straggler: -straggler.charged_per_step)


def linked_ranks(analysis: Analysis) -> set[int]:
    """Ranks, as indices, whose transfers are told apart: a link of theirs is slow against its siblings or now and then,
    which says nothing of what they do by themselves."""
    slow = ranks_on([*slow_links(analysis), *intermittent(analysis)])
    return {index for index, rank in enumerate(analysis.ranks) if rank.rank in slow}


def ledger_of(analysis: Analysis, found: Matching, charges: Charges) -> Ledger:
    """Own charges of the steps that count: those with a length, without the first if there are four or more."""
    lengths: dict[str, list[int]] = {}
    unfinished = set()
    for rank in analysis.ranks:
        for step in rank.devices[0].steps:
            lengths.setdefault(step.name, []).append(step.split.duration)
            if step.open:
                unfinished.add(step.name)
    names = found.calls.step_names
    kept = [index for index, name in enumerate(names) if lengths.get(name) and max(lengths[name]) > 0]
    if len(kept) >= _FIRST_STEP_OUT_FROM:
        kept = kept[1:]
    length = np.array([np.mean(lengths[names[index]]) for index in kept])
    closed = np.array([names[index] not in unfinished for index in kept], np.bool_)
    return Ledger(charges.own.sum(axis=2)[:, kept], length, [names[index] for index in kept], kept, closed)


class _Namer:
    """Decides about one candidate after the other."""

    def __init__(
        self, analysis: Analysis, found: Matching, times: MatchTimes, charges: Charges, peers: Peers,
        hosts: Mapping[int, str], ledger: Ledger,
    ) -> None:  # fmt: skip
        self.analysis, self.found, self.times, self.charges = analysis, found, times, charges
        self.peers, self.hosts, self.ledger = peers, hosts, ledger
        self.mean = ledger.own.mean(axis=1)
        self.step = float(ledger.length.mean())

    def without_transfers(self) -> _Namer:
        """The same for what ranks do by themselves alone."""
        own = self.charges.own.copy()
        own[:, :, COMM] = 0
        charges = replace(self.charges, own=own)
        ledger = ledger_of(self.analysis, self.found, charges)
        return _Namer(self.analysis, self.found, self.times, charges, self.peers, self.hosts, ledger)

    def together(self, level: Level) -> bool:
        """Whether a level is late as a whole: its members are charged alike, the others much less."""
        mine = self.mean[list(level.members)]
        rest = np.delete(self.mean, list(level.members))
        if len(mine) < 2 or not len(rest) or mine.min() <= 0:
            return False
        # Who of a host is the very last is chance: over a number of ranks that spreads by more than the factor.
        spread = level.kind == "host" and len(mine) >= 4 and mine.max() <= ALIKE * mine.mean()
        alike = mine.max() <= ALIKE * mine.min() or spread
        if not self._leads(level.members) or not self._same_reason(level.members):
            return False
        return bool(alike and rest.mean() <= _OUTSIDE * mine.mean() and rest.max() <= mine.max())

    def _same_reason(self, members: Sequence[int]) -> bool:
        """Whether every member is charged for the same: who is late behind a member has other reasons than it."""
        reason = self.charges.own[list(members)][:, self.ledger.places].sum(axis=1).argmax(axis=1)
        return len(np.unique(reason)) == 1

    def _leads(self, members: Sequence[int]) -> bool:
        """Whether the most charged rank of nearly every step is one of the members."""
        led, leader = self._leaders()
        return bool(led.any()) and float(np.isin(leader[led], members).mean()) >= _LEADS

    def _leaders(self) -> tuple[NDArray[np.bool_], Int64Array]:
        """Steps in which the most charged rank costs enough to be named, and which rank that is in every step."""
        own = self.ledger.own
        return own.max(axis=0) / self.ledger.length >= SHARE_OF_STEP, own.argmax(axis=0)

    def stands_out(self, rank: int) -> bool:
        """Whether the charge of a rank is more than the charges of its role scatter."""
        others = self.mean[self.peers.others(rank)]
        if not len(others):
            return True
        deviation = float(np.median(np.abs(others - np.median(others))))
        return bool(self.mean[rank] >= _DEVIATIONS * deviation)

    def name(self, members: Sequence[int], level: Level | None) -> Straggler | None:
        """The straggler that these ranks are, if they cost enough."""
        share = self.ledger.share(members)
        over = share >= SHARE_OF_STEP
        if not over.any():
            return None
        steps = len(over)
        if steps < _FEWEST_STEPS:
            kind = "single-step"
        else:
            kind = "persistent" if 2 * int(over.sum()) >= steps else "intermittent"
        if kind == "intermittent" and share.max() < _SCATTER * self._scatter(members):
            return None
        # Now and then is more than a lateness of every step of which some are a little above the limit.
        if kind == "intermittent" and share[over].mean() < ALIKE * share[~over].mean():
            return None
        cause = find_cause(self.analysis, self.charges, self.peers, members, self.ledger.names)
        return self._straggler(members, level, kind, share, cause)

    def _scatter(self, members: Sequence[int]) -> float:
        """How much the charges of the other ranks in single steps reach, without the largest quarter of them."""
        rest = np.delete(self.ledger.own, list(members), axis=0) / self.ledger.length
        return float(np.percentile(rest, 75)) if rest.size else 0.0

    def _straggler(
        self, members: Sequence[int], level: Level | None, kind: str, share: Float64Array, cause: Cause
    ) -> Straggler:
        last, matched = self._last(members)
        charged, step = self.ledger.per_step(members)
        hosts = {self.hosts.get(self.analysis.ranks[index].rank) for index in members}
        steps = tuple(name for name, part in zip(self.ledger.names, share, strict=True) if part >= SHARE_OF_STEP)
        return Straggler(
            rank=self.analysis.ranks[members[0]].rank if level is None else None,
            host=hosts.pop() if len(hosts) == 1 else None,
            role=level.name if level is not None and level.kind != "host" else None,
            kind=kind,
            charged_per_step=round(charged),
            share=charged / step,
            last=last,
            matched=matched,
            cause=cause.name,
            evidence=(("last to arrive", f"{last} of {matched}", "calls"), *cause.evidence),
            chain=self._chain(members),
            members=tuple(self.analysis.ranks[index].rank for index in members),
            steps=steps,
            or_cause=cause.or_else,
        )

    def long_stages(self, stages: Sequence[LongStage]) -> list[Straggler]:
        """Stages that compute so much longer that the pipeline waits for them: work, as far as the trace tells."""
        out = []
        for stage in stages:
            share = stage.cost / self.step
            if share < SHARE_OF_STEP or stage.excess < STAGE_EXCESS:
                continue
            steps = len(self.ledger.names)
            kind = "single-step" if steps < _FEWEST_STEPS else "persistent"
            members = stage.level.members
            cause = cause_of_long_stage(self.analysis, self.peers, members, self.ledger.names, stage.excess)
            found = self._straggler(members, stage.level, kind, np.full(steps, share), cause)
            out.append(replace(found, charged_per_step=stage.cost, share=share, chain=()))
        return out

    def _last(self, members: Sequence[int]) -> tuple[int, int]:
        """In how many calls one of the members was the last, of how many that they took part in."""
        mine = np.isin(self.found.calls.rank[self.found.rows], members)
        took_part = np.unique(self.found.of_row[mine])
        return int(np.isin(self.times.last[took_part], members).sum()), len(took_part)

    def _chain(self, members: Sequence[int]) -> tuple[int, ...]:
        """The way that most of the lateness took, from the rank that others waited for to the first of the members."""
        way = [max(members, key=lambda index: self.mean[index])]
        while len(way) < 6:
            into = {one: ns for (one, other), ns in self.charges.passed.items() if other == way[-1] and one not in way}
            source = max(into, key=lambda one: into[one], default=None)
            direct = float(self.charges.direct[way[-1]].sum())
            if source is None or into[source] < max(direct, 0.0) / 4:
                break
            way.append(source)
        return tuple(self.analysis.ranks[index].rank for index in reversed(way))

    def rotating(self, levels: Sequence[Level]) -> Straggler | None:
        """A pause that goes round: most steps have a late rank, nobody leads in more than twice its fair share."""
        own, length = self.ledger.own, self.ledger.length
        steps, ranks = len(length), len(own)
        led, leader = self._leaders()
        if steps < 2 or 2 * int(led.sum()) <= steps or ranks < 2:
            return None
        counts = np.bincount(leader[led], minlength=ranks)
        # With few ranks a fair share is most of the steps: there the lead has to change hands as well.
        most = min(2 * steps / ranks, 2 * int(led.sum()) / 3)
        if counts.max() > max(most, 1) or (counts > 0).sum() < 2:
            return None
        members = tuple(int(index) for index in np.flatnonzero(counts))
        if find_cause(self.analysis, self.charges, self.peers, members, self.ledger.names).name == _SHARED:
            return None
        if not self._takes_turns(own, led) or any(set(members) <= set(level.members) for level in levels):
            return None
        return self._in_turn(members)

    def pause_goes_round(self, named: Sequence[Straggler]) -> Straggler | None:
        """The pause of the host that goes round, where it explains everybody who is late for that reason."""
        turn = turns_of_hosts(host_longer(self.charges.lateness)[:, self.ledger.places])
        if turn is None:
            return None
        members = tuple(np.unique(turn[turn >= 0]).tolist())
        numbers = {self.analysis.ranks[index].rank for index in members}
        late = [one for one in named if one.cause == "host"]
        if any(not set(one.members) <= numbers for one in late):
            return None
        charged = self.charges.own[list(members)][:, self.ledger.places, HOST].sum() / self.ledger.length.sum()
        if not late and charged < SHARE_OF_STEP:
            return None
        return self._in_turn(members)

    def taking_turns(self, named: Sequence[Straggler]) -> Straggler | None:
        """One pause that goes round, where several ranks are late now and then and none much more than the others."""
        alone = [one for one in named if one.kind == "intermittent" and len(one.members) == 1]
        if len(alone) < _TURNS_FROM or len(alone) < len(named):
            return None
        charged = [one.charged_per_step for one in alone]
        if max(charged) > ALIKE * float(np.mean(charged)):
            return None
        numbers = [rank.rank for rank in self.analysis.ranks]
        return self._in_turn(tuple(sorted(numbers.index(one.members[0]) for one in alone)))

    def _in_turn(self, members: tuple[int, ...]) -> Straggler:
        cause = find_cause(self.analysis, self.charges, self.peers, members, self.ledger.names)
        level = Level("rotating", "", members)
        return _nobody(self._straggler(members, level, "rotating", self.ledger.share(members), cause))

    def _takes_turns(self, own: Float64Array, led: NDArray[np.bool_]) -> bool:
        """Whether the leader of each step stands alone in it, so that it is a pause and not noise of all."""
        rest = own.sum(axis=0) - own.max(axis=0)
        return bool((own.max(axis=0)[led] >= 2 * rest[led]).mean() > 0.5)


def _nobody(straggler: Straggler) -> Straggler:
    hint: tuple[str, int | float | str, str] = ("possible causes", "garbage collection, contention for cores", "")
    evidence = (*straggler.evidence, hint) if straggler.cause == "host" else straggler.evidence
    return replace(straggler, rank=None, role=None, host=None, evidence=evidence)
