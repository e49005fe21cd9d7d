"""The bubble of a pipeline (``spec``: section 9): idle time and waiting for messages, stage by stage.

The part of a step that belongs to the pipeline runs from the first forward compute of any stage to the last backward
compute of any stage, on a common clock where there is one: aligned by collectives, or the clock of the one host that
all stages are on. Else the stage that runs longest stands for the pipeline, and what others lack of its length counts
as idle: before their first and after their last compute there is nothing that they could do.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.phases import FORWARD
from commprof.analysis.stage_facts import NEVER, StageFacts
from commprof.intervals import union
from commprof.trace.operations import OPERATIONS

_SEND, _RECEIVE = OPERATIONS.index("send"), OPERATIONS.index("recv")
_NO_FORMULA = ("zerobubble", "zbv", "dualpipe", "zb")


@dataclass(frozen=True, slots=True)
class Bubble:
    """One stage in one step, mean over its ranks: idle time and waiting for messages (``None``: unknown) inside the
    part of the step that the pipeline has, whose length is ``part``."""

    stage: int
    step: str
    idle: int
    receive_wait: int | None
    part: int

    @property
    def share(self) -> float | None:
        """Share of the part of the step; a lower bound where the waiting is unknown."""
        return (self.idle + (self.receive_wait or 0)) / self.part if self.part else None


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The pipeline of a run. ``chunks`` are model chunks per rank, ``boundary`` the sides of the tensor between stages,
    ``ideal_share`` the bubble that the schedule has if all stages are equal and messages cost nothing.

    ``imbalance`` is what unequal stages cost per step: the longest compute of a stage less the mean of all.
    ``longest`` is the stage with the most to compute, ``excess`` by what share more than the others on average; of a
    stage counts its median rank, of two the faster: one slow device makes no longer stage.
    ``stage_of`` gives the stage of every rank that was found to be in the pipeline.
    """

    stages: int
    microbatches: int | None
    chunks: int | None
    boundary: tuple[int, ...] | None
    ideal_share: float | None
    imbalance: int | None
    longest: int | None
    excess: float | None
    bubble: tuple[Bubble, ...]
    stage_of: dict[int, int]


@dataclass(slots=True, eq=False)
class _Member:
    """A rank of a pipeline with its facts and its place in the list of ranks."""

    rank: RankAnalysis
    place: int
    stage: int
    facts: StageFacts


def find_pipeline(analysis: Analysis) -> Pipeline | None:
    """The pipeline of a run, ``None`` where no process group has that role."""
    groups = [
        facts.ranks
        for facts, role in zip(analysis.groups, analysis.roles, strict=True)
        if role.name == "pp" and facts.ranks
    ]
    if not groups:
        return None
    stages = Counter(len(ranks) for ranks in groups).most_common(1)[0][0]
    stage_of = {rank: stage for ranks in groups if len(ranks) == stages for stage, rank in enumerate(sorted(ranks))}
    members = [
        _Member(rank, place, stage_of[rank.rank], rank.stage)
        for place, rank in enumerate(analysis.ranks)
        if rank.rank in stage_of and rank.stage is not None
    ]
    microbatches, chunks = _microbatches(analysis, members, stages)
    longest, excess = _longest(members, stages)
    return Pipeline(
        stages=stages,
        microbatches=microbatches,
        chunks=chunks,
        boundary=next((member.facts.boundary for member in members if member.facts.boundary), None),
        ideal_share=_ideal(analysis, stages, microbatches, chunks),
        imbalance=_imbalance(members, stages),
        longest=longest,
        excess=excess,
        bubble=tuple(_bubbles(analysis, members, [ranks for ranks in groups if len(ranks) == stages])),
        stage_of=stage_of,
    )


def _microbatches(analysis: Analysis, members: list[_Member], stages: int) -> tuple[int | None, int | None]:
    """Micro-batches of a step and model chunks per rank, from the capture, else from the messages of the forward pass.

    Each of ``v`` chunks hands ``m`` messages on; the first stage receives from the last one only for chunks after the
    first, so ``m (v - 1)`` of them.
    """
    told = [manifest.pipeline for manifest in analysis.manifests if manifest.pipeline]
    for pipeline in told:
        if pipeline.microbatches:
            return pipeline.microbatches, max(1, len(pipeline.stages))
    counts = {member.stage: _forward_messages(member.rank) for member in members}
    known = [pair for pair in counts.values() if pair is not None]
    most = max((max(pair) for pair in known), default=0)
    if not most:
        return None, None
    first, last = counts.get(0), counts.get(stages - 1)
    again = first[1] if first else last[0] if last else 0
    fresh = most - again
    return (fresh, most // fresh) if fresh > 0 and most % fresh == 0 else (None, None)


def _forward_messages(rank: RankAnalysis) -> tuple[int, int] | None:
    """Messages sent and received in the forward passes of a step, as most steps have them."""
    calls, step = rank.calls, rank.shares.step
    chosen = (rank.places.phase == FORWARD) & (step >= 0)
    sent = Counter(step[chosen & (calls.operation == _SEND)].tolist())
    got = Counter(step[chosen & (calls.operation == _RECEIVE)].tolist())
    pairs = Counter((sent[index], got[index]) for index in {*sent, *got})
    return pairs.most_common(1)[0][0] if pairs else None


def _ideal(analysis: Analysis, stages: int, microbatches: int | None, chunks: int | None) -> float | None:
    names = [manifest.pipeline.schedule or "" for manifest in analysis.manifests if manifest.pipeline]
    if microbatches is None or chunks is None:
        return None
    if any(word in name.lower() for name in names for word in _NO_FORMULA):
        return None
    return (stages - 1) / (chunks * microbatches + stages - 1)


def _imbalance(members: list[_Member], stages: int) -> int | None:
    """Longest less mean compute of a stage, mean over steps; ``None`` unless every stage is there."""
    by_step: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for member in members:
        for index, name in _steps(member.rank):
            by_step[name][member.stage].append(int(member.facts.compute[index]))
    costs = []
    for by_stage in by_step.values():
        if len(by_stage) == stages:
            means = [sum(values) / len(values) for values in by_stage.values()]
            costs.append(max(means) - sum(means) / len(means))
    return round(sum(costs) / len(costs)) if costs else None


def _longest(members: list[_Member], stages: int) -> tuple[int | None, float | None]:
    """The stage that computes most per step and its excess over the mean of the others; unknown unless every stage is
    there and the others compute."""
    ranks: dict[int, list[float]] = defaultdict(list)
    for member in members:
        compute = [int(member.facts.compute[index]) for index, _ in _steps(member.rank)]
        if compute:
            ranks[member.stage].append(sum(compute) / len(compute))
    if len(ranks) < stages or stages < 2:
        return None, None
    usual = np.array([np.quantile(ranks[stage], 0.5, method="lower") for stage in range(stages)])
    longest = int(usual.argmax())
    others = float(np.delete(usual, longest).mean())
    return (longest, float(usual[longest]) / others - 1) if others > 0 else (None, None)


def _steps(rank: RankAnalysis) -> Iterator[tuple[int, str]]:
    device = rank.devices[0]
    for mark, step in zip(device.marks, device.steps, strict=True):
        yield max(mark, 0), step.name


def _bubbles(analysis: Analysis, members: list[_Member], groups: list[tuple[int, ...]]) -> Iterator[Bubble]:
    """Bubbles by step and stage, mean over pipelines."""
    found: dict[tuple[str, int], list[tuple[int, int | None, int]]] = defaultdict(list)
    names: dict[str, None] = {}
    for ranks in groups:
        mine = [member for member in members if member.rank.rank in ranks]
        for name in [name for member in mine[:1] for _, name in _steps(member.rank)]:
            names[name] = None
            for stage, entry in _of_step(analysis, mine, name):
                found[name, stage].append(entry)
    for name in names:
        for stage in sorted(stage for step, stage in found if step == name):
            entries = found[name, stage]
            waits = [wait for _, wait, _ in entries if wait is not None]
            count = len(entries)
            yield Bubble(
                stage,
                name,
                sum(idle for idle, _, _ in entries) // count,
                sum(waits) // count if len(waits) == count else None,
                sum(part for _, _, part in entries) // count,
            )


def _of_step(
    analysis: Analysis, members: list[_Member], name: str
) -> Iterator[tuple[int, tuple[int, int | None, int]]]:
    """Idle time, waiting and length of the part of one step, for each rank of one pipeline."""
    spans = []
    for member in members:
        index = {step: place for place, step in _steps(member.rank)}.get(name)
        if index is None:
            continue
        start, end = int(member.facts.forward_start[index]), int(member.facts.backward_end[index])
        if start != NEVER and end != NEVER and start < end:
            spans.append((member, index, start, end))
    if not spans:
        return
    shift = _shifts(analysis, [member for member, _, _, _ in spans])
    if shift is not None:
        first = min(start + by for (_, _, start, _), by in zip(spans, shift, strict=True))
        last = max(end + by for (_, _, _, end), by in zip(spans, shift, strict=True))
    for place, (member, _, start, end) in enumerate(spans):
        if shift is None:
            part = max(stop - begin for _, _, begin, stop in spans)
            low, high, missing = start, end, part - (end - start)
        else:
            part, missing = last - first, 0
            low, high = first - shift[place], last - shift[place]
        idle = int(member.facts.idle.within(np.array([low]), np.array([high]))[0]) + missing
        yield member.stage, (idle, _receive_wait(analysis, member, low, high), part)


def _shifts(analysis: Analysis, members: list[_Member]) -> list[int] | None:
    """What to add to the clock of each rank to have them on one clock, ``None`` where there is none."""
    clocks = analysis.clocks
    bases = [member.rank.base_ns for member in members]
    places = np.array([member.place for member in members])
    if clocks is not None and len(set(clocks.component[places].tolist())) == 1 and clocks.joined[places].all():
        origin = np.array([base - min(bases) for base in bases], np.int64)
        return [int(by) for by in origin - clocks.offset[places]]
    hosts = {analysis.hosts.get(member.rank.rank) for member in members}
    if len(hosts) == 1 and None not in hosts:
        return [base - min(bases) for base in bases]
    return None


def _receive_wait(analysis: Analysis, member: _Member, low: int, high: int) -> int | None:
    """Instants of the part in which a receive waits and nothing computes, ``None`` where the wait of one is unknown."""
    if member.place >= len(analysis.waiting):
        return None
    waits, calls = analysis.waiting[member.place], member.rank.calls
    rows = np.flatnonzero((calls.operation == _RECEIVE) & (calls.start < high) & (calls.end > low))
    if (waits.wait[rows] < 0).any():
        return None
    waiting = union(calls.start[rows], calls.start[rows] + waits.wait[rows]).clip(low, high)
    return (waiting - member.facts.compute_set).total()
