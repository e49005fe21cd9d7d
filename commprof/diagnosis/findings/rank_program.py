"""One rank as it can be replayed without the waits of its CPU: what its calls wait for, and what waits for them.

Everything that the device does but communicate, and but wait for a CPU that had launched nothing, is one sequence: the
work of the rank, which is the axis of the replay. A call can start when the work before it is done, the CPU has
launched it and the calls before it on its stream and communicator have ended; what needs it goes on when it has ended:

* parameters of a unit are needed where its kernels begin. Where nothing names units, as many units are gathered ahead
  as the forward pass gathers before its first kernel. FSDP2 gathers on a stream of its own, as soon as the unit before
  the last has been copied out; other gathers wait for the work launched before them, as reductions do;
* gradients are needed when the backward pass has ended; reduce-scatters of units run one at a time, so that the next
  one waits, and the kernels after it with it;
* what nothing tells of is needed at the end of the step, everything else at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import RankAnalysis, Step
from commprof.analysis.places import NOWHERE, PHASES, PURPOSES
from commprof.analysis.where_model import Bucket
from commprof.diagnosis.findings.shorter import transfers
from commprof.diagnosis.ground import Ground, Mask, ReferenceStep
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.model import NOT_LAUNCHED, Calls
from commprof.trace.operations import OPERATIONS

_NEAR_NS = 10_000
"""A wait for a call ends so soon after it; clocks of device and CPU differ by less."""
_FORWARD, _BACKWARD, _OPTIMIZER = (PHASES.index(name) for name in ("forward", "backward", "optimizer"))
_GRADIENTS, _PARAMETERS, _ACTIVATIONS, _MESSAGE = (
    PURPOSES.index(name) for name in ("gradients", "parameters", "activations", "point-to-point")
)
_INSIDE, _BETWEEN = range(2)
_RECEIVE, _BOTH = OPERATIONS.index("recv"), OPERATIONS.index("send_recv")
_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True, eq=False)
class Program:
    """One rank as it can be replayed; times and places on the axis in ns.

    Call ``i`` is ready at place ``ready[i]`` and needed at ``needed[i]``; work launched after it begins at
    ``after[i]``. It transfers for ``lasts[i]`` and is launched when the CPU has run for ``cpu[i]``, its waits left out.
    ``lane``, ``group`` and ``link`` are numbers of its stream, its communicator and the links that it uses. Others use
    link ``shared_link[k]`` from place ``shared_at[k]`` on, where their peers are there too, for ``shared_ns[k]``, and
    are part of the work. Wait ``j`` of the CPU, for something else than a call, ends at place ``wait_at[j]`` and
    instant ``wait_cpu[j]`` of the CPU. Where the device ran out of work, what comes next begins at place ``late_at[m]``
    and is launched at ``late_cpu[m]``. ``marks`` are begin of each window, begin of the last message that it sends to
    another stage (its end without one), and end, shape ``(windows, 3)``, and ``measured`` the instants at which the
    rank came there. The last message of each window that the rank waits for is there at ``received_at``, after
    ``received_ns`` of waiting, shape
    ``(windows,)``.
    """

    ready: Int64Array
    needed: Int64Array
    after: Int64Array
    lasts: Int64Array
    cpu: Int64Array
    lane: Int64Array
    group: Int64Array
    link: Int64Array
    shared_at: Int64Array
    shared_ns: Int64Array
    shared_link: Int64Array
    wait_at: Int64Array
    wait_cpu: Int64Array
    late_at: Int64Array
    late_cpu: Int64Array
    marks: Int64Array
    measured: Int64Array
    received_at: Int64Array
    received_ns: Int64Array


def movable(ground: Ground, step: ReferenceStep) -> Mask:
    """Calls of a rank that the device could do beside its work: not those that what comes next is made from."""
    calls, places, groups = step.rank.calls, step.rank.places, [*ground.analysis.group_of[step.where], NOWHERE]
    found: Mask = ~calls.fused & ~np.isin(places.purpose, [_ACTIVATIONS, _MESSAGE])
    pairs = calls.group.astype(np.int64) * len(OPERATIONS) + calls.operation
    for pair in np.unique(pairs).tolist():
        group, operation = divmod(pair, len(OPERATIONS))
        if ground.role_of(groups[group], OPERATIONS[operation]) in ("tp", "cp", "pp"):
            found &= pairs != pair
    return found


def program_of(ground: Ground, step: ReferenceStep) -> Program:
    rank, trail, calls = step.rank, step.rank.trail, step.rank.calls
    assert trail is not None
    chosen = movable(ground, step)
    launched = np.where(calls.launched == NOT_LAUNCHED, calls.start, calls.launched)
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((calls.start[rows], launched[rows]))]
    windows = step.device.steps
    begin = np.array([window.split.start for window in windows], np.int64)
    first = min(int(column.min(initial=_NEVER)) for column in (begin, calls.start[rows], launched[rows]))
    work = _Axis(first, _not_work(rank, chosen))
    marks = np.array([_marks(rank, window, work) for window in windows], np.int64).reshape(-1, 3)
    # Gradients that are needed when the backward pass has ended do not hold up what it hands over then.
    earlier = np.where(marks == marks[:, -1:], 0, [0, _NEAR_NS, 0])
    clock = _Axis(first, trail.waits)
    needed = _Needs(rank, rows, launched[rows], work)
    lasts, links = transfers(ground, step), _links(ground, step)
    beside = np.flatnonzero(~chosen & (rank.places.purpose != _MESSAGE) & (calls.start >= first))
    others = trail.waits.ends[~_for_calls(trail.waits, calls.end[rows])]
    moving = _shortest(calls, _moving(ground, step, lasts))[beside]
    late = _ends_while_idle(rank, trail.host)
    late = late[late >= first]
    return Program(
        needed.ready, needed.needed, needed.after, lasts[rows], clock.at(launched[rows]),
        calls.stream[rows], calls.group[rows].astype(np.int64), links[rows], work.at(calls.end[beside] - moving),
        np.minimum(moving, rank.shares.exposed[beside]), links[beside], work.at(others), clock.at(others),
        work.at(late), clock.at(late), work.at(marks) - earlier, marks - earlier, *_received(rank, windows, work),
    )  # fmt: skip


def _moving(ground: Ground, step: ReferenceStep, lasts: Int64Array) -> Int64Array:
    """What each call takes at most while its bytes move: not while it waits for peers, where only that is known."""
    calls, waiting = step.rank.calls, ground.analysis.waiting
    if not waiting:
        return lasts
    return np.minimum(lasts, calls.duration - np.maximum(waiting[step.where].wait, 0))


def _shortest(calls: Calls, lasts: Int64Array) -> Int64Array:
    """What each call takes without waiting: the shortest of those with its group, operation and size, where sizes are
    those of an exchange in which each rank sends another amount."""
    keys = np.stack([calls.group.astype(np.int64), calls.operation.astype(np.int64), calls.size_bytes])
    _, place = np.unique(keys, axis=1, return_inverse=True)
    shortest = np.full(int(place.max(initial=-1)) + 1, _NEVER)
    np.minimum.at(shortest, place.reshape(-1), lasts)
    found: Int64Array = shortest[place.reshape(-1)]
    return found


def _links(ground: Ground, step: ReferenceStep) -> Int64Array:
    """A number for the links of each call of a rank: those between hosts, those inside its host; where hosts are not
    known, each group is taken to have its own."""
    analysis, out = ground.analysis, step.rank.calls.group.astype(np.int64) + len((_INSIDE, _BETWEEN))
    for local, number in enumerate(analysis.group_of[step.where]):
        hosts = {analysis.hosts.get(rank) for rank in analysis.groups[number].ranks or ()} if number >= 0 else set()
        if hosts and None not in hosts:
            out[step.rank.calls.group == local] = _BETWEEN if len(hosts) > 1 else _INSIDE
    return out


def _marks(rank: RankAnalysis, window: Step, work: _Axis) -> tuple[int, int, int]:
    """Begin of a window, of the last message in it if the rank sends that, and end. What is received when no work is
    left belongs to the next step."""
    calls, (begin, end) = rank.calls, (window.split.start, window.split.end)
    inside = np.flatnonzero((rank.places.purpose == _MESSAGE) & (calls.start >= begin) & (calls.start < end))
    received = calls.operation[inside] == _RECEIVE
    inside = inside[~received | (work.at(calls.end[inside]) < work.at(np.array([end])) - _NEAR_NS)]
    if not len(inside) or calls.operation[inside[-1]] == _RECEIVE:
        return begin, end, end
    return begin, int(calls.start[inside[-1]]), end


def _received(rank: RankAnalysis, windows: list[Step], work: _Axis) -> tuple[Int64Array, Int64Array]:
    """Place of the last message of each window that is waited for, and how long it is."""
    pieces, calls = rank.shares.pieces, rank.calls
    place, waited = (np.zeros(len(windows), np.int64) for _ in range(2))
    message = (rank.places.purpose[pieces.call] == _MESSAGE) & np.isin(calls.operation[pieces.call], [_RECEIVE, _BOTH])
    for index, window in enumerate(windows):
        mine = np.flatnonzero(message & (pieces.start >= window.split.start) & (pieces.end <= window.split.end))
        if len(mine):
            mine = mine[pieces.call[mine] == pieces.call[mine[np.argmax(pieces.end[mine])]]]
            place[index] = work.at(pieces.end[mine].max(keepdims=True))[0]
            waited[index] = int((pieces.ns - rank.causes.host)[mine].sum())
    return place, waited


@dataclass(slots=True, eq=False)
class _Axis:
    """Time since ``first`` without some instants."""

    first: int
    left_out: IntervalSet

    def at(self, instants: Int64Array) -> Int64Array:
        """Where on the axis these instants are."""
        since = np.full(instants.size, self.first)
        flat = np.maximum(instants.ravel(), self.first)
        found: Int64Array = flat - self.first - self.left_out.within(since, flat)
        return found.reshape(instants.shape)


def _not_work(rank: RankAnalysis, chosen: Mask) -> IntervalSet:
    """Exposed time of the chosen calls, and host-bound time that is not exposed time of others, each stretch of it with
    the time that the launch at its end takes to reach the device."""
    trail, pieces = rank.trail, rank.shares.pieces
    assert trail is not None
    mine = chosen[pieces.call]
    host = trail.host - union(pieces.start[~mine], pieces.end[~mine])
    idle = {cause: sum(row.ns for row in rank.idle if row.cause == cause) for cause in ("launch", "input", "allocator")}
    bound = sum(window.split.idle_host or 0 for device in rank.devices for window in device.steps)
    latency = max(0, idle["launch"] - (bound - idle["input"] - idle["allocator"]))
    latency //= max(1, len(_ends_while_idle(rank, host)))
    reached = union(host.starts, host.ends + min(latency, _NEAR_NS))
    return union(pieces.start[mine], pieces.end[mine]) | reached


def _ends_while_idle(rank: RankAnalysis, host: IntervalSet) -> Int64Array:
    """Ends of host-bound stretches at which the device has no call either: it idles until the launch reaches it."""
    pieces = rank.shares.pieces
    found: Int64Array = host.ends[~union(pieces.start, pieces.end).contains(host.ends)]
    return found


def _for_calls(waits: IntervalSet, ends: Int64Array) -> Mask:
    """Which waits end with a call, of which ``ends`` are the ends."""
    ends = np.sort(ends)
    place = np.searchsorted(ends, waits.ends + _NEAR_NS, side="right") - 1
    last = np.append(ends, -_NEVER)[place]
    found: Mask = (last >= waits.starts - _NEAR_NS) & (last >= waits.ends - 2 * _NEAR_NS)
    return found


class _Needs:
    """Where on the axis each of the calls ``rows``, in order of launch, is ready and needed."""

    def __init__(self, rank: RankAnalysis, rows: Int64Array, launched: Int64Array, work: _Axis) -> None:
        self.rank, self.rows, self.launched, self.work = rank, rows, launched, work
        calls, places = rank.calls, rank.places
        self.phase, self.purpose, self.module = places.phase[rows], places.purpose[rows], places.module[rows]
        self.ready = work.at(calls.start[rows])
        self.after = np.maximum(work.at(calls.end[rows]), self.ready)
        self.needed = self.after.copy()
        self._gradients()
        gathers = np.flatnonzero((self.purpose == _PARAMETERS) & (self.phase != _OPTIMIZER) & (self.phase != NOWHERE))
        if len(gathers) and (self.module[gathers] != NOWHERE).all():
            self._of_named_units(gathers)
        elif len(gathers):
            self._ahead(gathers)

    def _gradients(self) -> None:
        untold = (self.purpose == NOWHERE) | ((self.purpose == _PARAMETERS) & (self.phase == NOWHERE))
        mine = np.flatnonzero(((self.purpose == _GRADIENTS) & (self.phase != _OPTIMIZER)) | untold)
        rank = self.rank
        # Where nothing tells what needs a call, the end of the step does.
        ends = np.array([window.split.end for window in rank.devices[0].steps], np.int64)
        place = np.minimum(np.searchsorted(ends, rank.calls.end[self.rows[mine]]), len(ends) - 1)
        until = dict(zip(self.rows[mine].tolist(), ends[place].tolist(), strict=True))
        until |= self._ends_of_last_pass()
        until |= self._ends_of_passes()
        until |= {unit.call: unit.needed for unit in rank.units if unit.needed is not None}
        at = self.work.at(np.array([until[row] for row in self.rows[mine].tolist()], np.int64))
        self.needed[mine] = np.maximum(at, self.after[mine])
        of_units = mine[np.isin(self.rows[mine], [unit.call for unit in rank.units])]
        stream = rank.calls.stream[self.rows]
        for before, later in zip(of_units[:-1].tolist(), of_units[1:].tolist(), strict=True):
            if stream[before] == stream[later]:
                self.needed[before] = min(self.needed[before], max(self.ready[later], self.after[before]))

    def _ends_of_last_pass(self) -> dict[int, int]:
        """For every bucket the end of its backward pass, which has not ended before the last of the step is ready: what
        another call hands back may come after its last kernel."""
        last: dict[tuple[int, int], int] = {}
        for bucket in self.rank.buckets:
            key = (bucket.step, bucket.series)
            last[key] = max(last.get(key, 0), bucket.start)
        return {
            bucket.call: max(bucket.backward_end, last[bucket.step, bucket.series])
            for bucket in self.rank.buckets
            if bucket.backward_end is not None
        }

    def _ends_of_passes(self) -> dict[int, int]:
        """Where gradients are reduced after every micro-batch: for all passes of a step but the last the instant at
        which the last bucket of the pass is ready, which is its end."""
        last: dict[tuple[int, int], Bucket] = {}
        for bucket in sorted(self.rank.buckets, key=lambda bucket: bucket.start):
            last[bucket.step, bucket.series] = bucket
        final = {step: max(series for of, series in last if of == step) for step, _ in last}
        return {
            bucket.call: last[bucket.step, bucket.series].start
            for bucket in self.rank.buckets
            if bucket.series != final[bucket.step]
        }

    def _of_named_units(self, gathers: Int64Array) -> None:
        needed = {unit.call: unit.needed for unit in self.rank.units if unit.needed is not None}
        known = gathers[np.isin(self.rows[gathers], list(needed))]
        at = self.work.at(np.array([needed[row] for row in self.rows[known].tolist()], np.int64))
        self.needed[known] = np.maximum(at, self.after[known])
        # No gather waits for a unit that is copied out after its launch: the device, waited for, was not behind then.
        out = np.maximum.accumulate(np.array([needed.get(row, 0) for row in self.rows[gathers].tolist()], np.int64))
        last = np.searchsorted(out, self.launched[gathers], side="right") - 1
        waits = last >= 0
        before, later = gathers[last[waits]], gathers[waits]
        # The first gather of a forward pass waits for the optimizer.
        same = ~((self.phase[before] == _BACKWARD) & (self.phase[later] == _FORWARD))
        self.ready[later[same]] = np.minimum(self.ready[later[same]], self.needed[before[same]])

    def _ahead(self, gathers: Int64Array) -> None:
        phase, after = self.phase[gathers], self.after[gathers]
        begins = np.flatnonzero(np.concatenate([[True], phase[1:] != phase[:-1]]))
        ends = np.append(begins[1:], len(gathers))
        ahead = self._units_ahead(after, phase, begins, ends)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            # The last ones are needed a unit later each than the one before.
            unit = after[end - 1] - after[end - 2] if end - begin > 1 else 0
            places = np.append(after[begin:end], after[end - 1] + unit * np.arange(1, ahead + 1))
            self.needed[gathers[begin:end]] = places[ahead : ahead + end - begin]

    @staticmethod
    def _units_ahead(after: Int64Array, phase: NDArray[np.int8], begins: Int64Array, ends: Int64Array) -> int:
        """How many gathers of a forward pass come before its first kernel, but for the one that this waits for."""
        counts = [
            int(np.count_nonzero(after[begin:end] <= after[begin] + _NEAR_NS)) - 1
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
            if phase[begin] == _FORWARD
        ]
        return min(counts, default=0)
