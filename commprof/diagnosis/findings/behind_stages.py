"""Bubble that a stage of the pipeline makes longer by waiting for its input, for its collectives or by pausing, which
other stages show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.host_delays import DELAYS
from commprof.analysis.model import RankAnalysis
from commprof.diagnosis.findings.case import Claim, idle_of
from commprof.diagnosis.ground import P2P, Ground, ReferenceStep
from commprof.intervals import Int64Array


@dataclass(frozen=True, slots=True)
class BehindStage:
    """The part of the bubble in which another stage was held up: of every exposed row its waiting, of every idle row,
    per step in ns, and which ranks."""

    wait: Int64Array
    idle: Int64Array
    ns: Int64Array
    ranks: tuple[int, ...]

    @property
    def claim(self) -> Claim:
        """Its waiting and idle time."""
        return Claim(wait=self.wait, idle=self.idle)


def behind_stage(ground: Ground, reason: str) -> BehindStage | None:
    """Bubble of the reference ranks that a stage makes longer because its device has no work for ``reason`` (``input``
    or ``pause``); no more than it idles beyond what the reference rank itself does, which delays the pipeline by that
    at most."""
    found = [_longest(ground, step, reason) for step in ground.steps]
    own = [idle_for(step.rank, step.unit.names, reason) for step in ground.steps]
    room = np.maximum(np.array([ns for ns, _ in found], np.int64) - np.array(own, np.int64), 0)
    return held_up(ground, room, [rank for (_, rank), extra in zip(found, room.tolist(), strict=True) if extra])


def held_up(ground: Ground, room: Int64Array, ranks: Sequence[int]) -> BehindStage | None:
    """Bubble of the reference ranks, at most ``room`` ns of each step, for which other stages, ``ranks``, are to blame;
    ``None`` without a pipeline or without any of them."""
    rows = ground.role_is("pp") & ground.operation_is(*P2P)
    if not rows.any() or not ranks:
        return None
    idle, wait = idle_of(ground, "bubble"), np.where(rows, ground.exposed.wait, 0)
    there = ground.per_step(ground.exposed.step, wait) + ground.per_step(ground.idle.step, idle)
    share = np.minimum(room / np.maximum(there, 1), 1.0)
    return BehindStage(
        np.floor(wait * share[ground.exposed.step]).astype(np.int64),
        np.floor(idle * share[ground.idle.step]).astype(np.int64),
        np.minimum(room, there),
        tuple(sorted(set(ranks))),
    )


def other_stages(ground: Ground, step: ReferenceStep) -> list[int]:
    """Places in ``analysis.ranks`` of the other stages of the pipeline of a reference rank."""
    analysis = ground.analysis
    pipes = [group for group, role in zip(analysis.groups, analysis.roles, strict=True) if role.name == "pp"]
    members = [group.ranks or () for group in pipes]
    stages = {rank for ranks in members if step.rank.rank in ranks for rank in ranks} - {step.rank.rank}
    return [where for where, rank in enumerate(analysis.ranks) if rank.rank in stages]


def _longest(ground: Ground, step: ReferenceStep, reason: str) -> tuple[int, int]:
    """The longest that another stage of the pipeline was held up in a step, and its rank."""
    stages = [ground.analysis.ranks[where] for where in other_stages(ground, step)]
    return max(
        ((idle_for(rank, step.unit.names, reason), rank.rank) for rank in stages),
        default=(0, step.rank.rank),
    )


def idle_for(rank: RankAnalysis, names: tuple[str, ...], reason: str) -> int:
    """How long the device of a rank idles in these windows for this reason."""
    windows = {number for number, name in enumerate(rank.shares.step_names) if name in names}
    direct = sum(row.ns for row in rank.idle if row.step in windows and row.cause == reason)
    if rank.delays is None:
        return direct
    place = DELAYS.index(reason)
    return direct + sum(int(ns[place]) for (_, window), ns in rank.delays.idle.items() if window in windows)
