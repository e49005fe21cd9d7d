"""What steps would take if the CPU waited for none of its collectives: a replay of one rank.

The CPU takes as long as it took between its waits, and waits as before for what is no collective. So what would be
exposed in any case stays: communication of a pass that takes longer than the compute beside it, the first gather and
the last reduction, parameters gathered after the optimizer. In a pipeline the other stages are replayed as well: what
they hand over earlier shortens the bubble.
"""

from __future__ import annotations

import numpy as np

from commprof.analysis.model import RankAnalysis
from commprof.diagnosis.findings.behind_stages import BehindStage, held_up, other_stages
from commprof.diagnosis.findings.rank_program import Program, movable, program_of
from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.intervals import Int64Array

_HABIT = 2
"""Calls of a step that the CPU waits for."""
_LATENCY_NS = 3_000
"""From the launch of a kernel to its start on a free device."""
_RECEIVED, _SHARED, _WAITED, _READY, _NEEDED, _WAITED_TOO, _NEEDED_LATER, _LAUNCHED, _LATE, _MARK = range(10)
"""What can be at one place of the axis, in the order in which it happens there: a wait of the CPU comes before calls
that it launches then, and after what is needed, but for what is launched after it."""


def waited_for(ground: Ground) -> Mask:
    """Exposed rows in which a CPU waits for collectives by habit: one a step is how a loop reads its loss.

    What the next kernel needs is waited for in any case, by the device if not by the CPU.
    """
    rows = ground.cause_is("blocking-wait") & ~ground.purpose_is("activations") & ~ground.role_is("tp", "cp", "pp")
    return rows if ground.calls_in(rows) >= _HABIT else np.zeros(len(rows), np.bool_)


def handed_over(ground: Ground) -> BehindStage | None:
    """Bubble of the reference ranks that is there because other stages hand over late: they wait for calls."""
    found: BehindStage | None = ground.once("handed over", lambda: _handed_over(ground))
    return found


def _handed_over(ground: Ground) -> BehindStage | None:
    gained = without_waits(ground) if waited_for(ground).any() else None
    if gained is None or not gained[1].any():
        return None
    others = {where for step in ground.steps for where in other_stages(ground, step)}
    return held_up(ground, gained[1], [ground.analysis.ranks[where].rank for where in others])


def without_waits(ground: Ground) -> tuple[Int64Array, Int64Array] | None:
    """How much shorter every step would be, shape ``(steps,)``: because the reference rank waits for none of its
    collectives, and what comes on top because other stages of its pipeline wait for none of theirs.

    Stages hand over one after the other, each by as much earlier as it waits before its last message; the first stage,
    which receives the last one, ends the step. ``None`` where nothing links the device to its CPU.
    """
    lanes: dict[int, _Lane] = {}
    own, all_together = (np.zeros(len(ground.steps), np.int64) for _ in range(2))
    stages = [
        [(where, ground.analysis.ranks[where]) for where in (step.where, *other_stages(ground, step))]
        for step in ground.steps
    ]
    for step, around in zip(ground.steps, stages, strict=True):
        if any(rank.trail is None or len(rank.devices) > 1 for _, rank in around):
            return None
        for where, rank in around:
            if where not in lanes:
                lanes[where] = _Lane(program_of(ground, ReferenceStep(step.unit, where, rank, rank.devices[0])))
    for index, (step, around) in enumerate(zip(ground.steps, stages, strict=True)):
        there = [_named(rank, step.unit.names) for _, rank in around]
        chain = sum(int(lanes[where].before_last[mine].sum()) for (where, _), mine in zip(around, there, strict=True))
        alone, sooner = lanes[step.where].gains(there[0], chain)
        if len(around) == 1:
            alone = max(_of_rank(ground, lanes, where, step) for where in lanes)
        own[index], all_together[index] = max(0, alone), max(0, alone, sooner)
    return own, all_together - own


def _of_rank(ground: Ground, lanes: dict[int, _Lane], where: int, step: ReferenceStep) -> int:
    """What a step gains as the replay of one rank tells. Ranks that meet in every step gain the same; one that waits
    for its peers keeps that in its replay, though they come earlier: the one that they all wait for gains the most."""
    return lanes[where].gains(_named(ground.analysis.ranks[where], step.unit.names), 0)[0]


class _Lane:
    """One rank without its waits: ``before_last`` is by how much earlier it comes to the last message that it sends in
    each window, shape ``(windows,)``."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._gained = self._replay(np.zeros(len(program.marks), np.int64))
        self.before_last = np.maximum(self._gained[:, 0], 0)

    def _replay(self, sooner: Int64Array) -> Int64Array:
        lasts = np.diff(replayed(self._program, sooner), axis=1)
        return (np.diff(self._program.measured, axis=1) - lasts).cumsum(axis=1)

    def gains(self, windows: Mask, chain: int) -> tuple[int, int]:
        """By how much shorter windows are, and by how much if all stages together, this one too, are there by ``chain``
        earlier: the last message that it waits for then comes by what it does not gain itself earlier."""
        alone = int(self._gained[windows, -1].sum())
        if chain <= alone:
            return alone, alone
        sooner = np.minimum((chain - alone) // max(1, int(windows.sum())), self._program.received_ns)
        return alone, int(self._replay(sooner)[windows, -1].sum())


def short_waits(step: ReferenceStep) -> int:
    """What the CPU of the reference rank waits for collectives in a step in waits so short that the replay knows of
    none, nanoseconds: many of them hold up a CPU that the device is never ahead of as a long one would.

    No more than the device was short of work in the step: otherwise the CPU was ahead by more than it waits.
    """
    trail, split = step.rank.trail, step.unit
    if trail is None:
        return 0
    windows = [window for window in step.device.steps if window.name in split.names]
    begin, end = (np.array([getattr(window.split, edge) for window in windows], np.int64) for edge in ("start", "end"))
    known = int(trail.waits.within(begin, end).sum())
    blocking, other = waited(step)
    idle = (split.total("idle_host") or 0) + (split.total("exposed_host") or 0)
    return max(0, min(blocking, blocking + other - known, idle))


def waited(step: ReferenceStep) -> tuple[int, int]:
    """How long the CPU of the reference rank waited in a step, for collectives and for all else, nanoseconds."""
    if step.rank.delays is None:
        return 0, 0
    windows = [number for number, name in enumerate(step.rank.shares.step_names) if name in step.unit.names]
    known = step.rank.delays.waited
    found = [known[step.device.device, window] for window in windows if (step.device.device, window) in known]
    return sum(int(row[0]) for row in found), sum(int(row[1]) for row in found)


def _named(rank: RankAnalysis, names: tuple[str, ...]) -> Mask:
    """Which windows of a rank have these names."""
    return np.array([window.name in names for window in rank.devices[0].steps], np.bool_)


def replayed(program: Program, sooner: Int64Array) -> Int64Array:
    """When the rank comes to each of its marks, shape ``(windows, 3)``, if the last message that it waits for comes
    ``sooner`` in each window, shape ``(windows,)``."""
    columns = (
        program.received_at, program.shared_at, program.wait_at, program.ready, program.needed, program.wait_at,
        program.after, program.late_at, program.marks.ravel(),
    )  # fmt: skip
    at = np.concatenate(columns)
    kinds = (_RECEIVED, _SHARED, _WAITED, _READY, _NEEDED, _WAITED_TOO, _LAUNCHED, _LATE, _MARK)
    kind = np.repeat(kinds, [len(column) for column in columns])
    kind[kind == _NEEDED] = np.where(_after_waits(program), _NEEDED_LATER, _NEEDED)
    which = np.concatenate([np.arange(len(column)) for column in columns])
    order = np.lexsort((which, kind, at))
    cpu, wait_cpu, earlier = program.cpu.tolist(), program.wait_cpu.tolist(), sooner.tolist()
    late_cpu = program.late_cpu.tolist()
    queues = _Queues(program)
    marks = [0] * program.marks.size
    now = place = behind = 0
    for here, what, index in zip(at[order].tolist(), kind[order].tolist(), which[order].tolist(), strict=True):
        now, place = now + here - place, here
        if what == _RECEIVED:
            now -= earlier[index]
        elif what == _SHARED:
            now += queues.share(index, now)
        elif what == _READY:
            queues.add(index, max(now, cpu[index] + behind + _LATENCY_NS))
        elif what in (_WAITED, _WAITED_TOO):
            # Until when the CPU waits here: it runs on by so much later.
            behind = max(behind, now - wait_cpu[index])
        elif what in (_NEEDED, _NEEDED_LATER):
            now = max(now, queues.end[index])
        elif what == _LAUNCHED:
            now = max(now, cpu[index] + behind + _LATENCY_NS)
        elif what == _LATE:
            now = max(now, late_cpu[index] + behind + _LATENCY_NS)
        else:
            marks[index] = now
    return np.array(marks, np.int64).reshape(-1, 3)


def _after_waits(program: Program) -> Mask:
    """Which calls are launched after the last wait of the CPU at the place where they are needed."""
    order = np.lexsort((program.wait_cpu, program.wait_at))
    last = np.searchsorted(program.wait_at[order], program.needed, side="right") - 1
    there = last >= 0
    there[there] = program.wait_at[order][last[there]] == program.needed[there]
    found: Mask = np.zeros(len(program.needed), np.bool_)
    found[there] = program.wait_cpu[order][last[there]] <= program.cpu[there]
    return found


class _Queues:
    """Calls in the order in which they can start: one at a time on a stream, in a communicator and on the links.

    Only bytes share links: what a call takes however small it is, the shortest time on its links, it takes beside
    others, before its bytes.
    """

    def __init__(self, program: Program) -> None:
        self.end = [0] * len(program.lasts)
        self._lasts = program.lasts.tolist()
        self._link, self._shared_link = program.link.tolist(), program.shared_link.tolist()
        every = np.concatenate([program.link, program.shared_link])
        ns = np.concatenate([program.lasts, program.shared_ns])
        shortest = {link: int(ns[every == link].min()) for link in np.unique(every).tolist()}
        self._latency = [shortest[link] for link in self._link]
        self._shared_latency = [shortest[link] for link in self._shared_link]
        self._shared_ns = [
            ns - shortest[link] for ns, link in zip(program.shared_ns.tolist(), self._shared_link, strict=True)
        ]
        self._keys = [
            (("lane", lane), ("group", group))
            for lane, group in zip(program.lane.tolist(), program.group.tolist(), strict=True)
        ]
        self._free: dict[tuple[str, int], int] = {}
        self._busy: dict[int, int] = {}
        self._under_way: dict[int, list[int]] = {}

    def add(self, call: int, ready: int) -> None:
        """A call that is ready."""
        link, keys = self._link[call], self._keys[call]
        begin = max(ready, self._busy.get(link, 0) - self._latency[call], *(self._free.get(key, 0) for key in keys))
        self.end[call] = self._busy[link] = begin + self._lasts[call]
        self._free |= dict.fromkeys(keys, self.end[call])
        self._under_way.setdefault(link, []).append(call)

    def share(self, other: int, now: int) -> int:
        """By how much a call that is part of the work is delayed by those under way on its links when its bytes follow,
        as they are by it."""
        link = self._shared_link[other]
        calls = [call for call in self._under_way.get(link, ()) if self.end[call] > now]
        self._under_way[link] = calls
        delay: int = min(self._shared_ns[other], max(0, self._busy.get(link, 0) - now - self._shared_latency[other]))
        if delay:
            self._busy[link] += delay
            for call in calls:
                self.end[call] += delay
                self._free |= dict.fromkeys(self._keys[call], self.end[call])
        return delay


def packing(ground: Ground) -> int:
    """How long kernels on the streams of collectives take in a step, mean over the reference ranks: they pack what is
    to be sent, and a CPU that waits for it waits for them as well. As the one step of each rank shows that is drawn."""
    total = 0
    for step in ground.steps:
        calls = step.rank.calls
        streams = {str(stream) for stream in np.unique(calls.stream[movable(ground, step)]).tolist()}
        streams.discard(str(step.device.compute_stream))
        total += sum(
            segment["duration_ns"]
            for drawn in step.rank.timeline
            for lane in drawn["lanes"]
            if lane["kind"] == "compute" and lane["stream"] in streams and drawn["device"] == step.device.device
            for segment in lane["segments"]
        )
    return total // len(ground.steps)
