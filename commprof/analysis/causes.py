"""Why communication is exposed: one cause for every piece of exposed time.

The host-bound part of a piece comes first (``spec``: section 3): nothing was enqueued that could have computed. For
the rest the first of these that holds decides; what is said of a call holds for all its pieces.

1. ``profiler-start``, ``first-use``: the call is flagged as one.
2. ``structural``: activations that the compute before made and the compute after needs (tensor, sequence and expert
   parallel); with compute beside at least a twentieth of it, ``longer-than-compute``. A launch or a queue that held
   it up for at least half of its exposed time goes first.
3. ``on-compute-stream``: it runs on the stream of the kernels, which nothing there can overlap with.
4. ``tail``: gradients after the last compute of their backward pass, parameters and norms after it in the optimizer.
   Only a launch so late that the call would have been hidden in time goes first.
5. ``rate-limiter``, ``blocking-wait``, ``device-synchronisation``: the next compute was not launched because its
   thread waited for the device; or the thread waited most of the time before it launched the call. On a CPU
   ``blocking-wait`` is a call during which its thread did nothing else.
6. ``late-launch``: the data was ready and the device free, the CPU launched later. For gathers of parameters, which
   could have been launched long before, any lateness counts; else at least half of the exposed time.
7. ``queued`` behind another call on its stream, ``serialised`` with calls of its group on other streams, for at least
   half of the exposed time.
8. ``no-prefetch``: parameters gathered only when the compute before had ended, with nothing of it hidden. The first
   gather of the forward pass, which waits for the optimizer, is ``structural``.
9. ``longer-than-compute``: it ran beside compute from its start on, and compute ended first.
10. ``structural``: it started when the compute before ended, nothing was beside it, and compute waited for it.
11. ``unknown``.

Without launches only 1, 3 and 9 can be told; for 9 the call must then have started no later than the compute beside it.
Waiting for a peer is taken out later, when other ranks tell (:mod:`commprof.analysis.peer_waits`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.passes import BackwardPass
from commprof.analysis.phases import FORWARD, OPTIMIZER
from commprof.analysis.places import CAUSES, FLAGS, NOWHERE, UNKNOWN_CAUSE, CallPlaces, PieceCauses
from commprof.analysis.purposes import ACTIVATIONS, GRADIENTS, PARAMETERS, POINT_TO_POINT
from commprof.analysis.scene import DeviceScene, Scene
from commprof.analysis.syncs import BLOCKING_WAIT, BY_SYNCS, Syncs, held_up
from commprof.analysis.timing import NEAR_NS, Timing, waited_for
from commprof.intervals import Int64Array, union
from commprof.trace.model import NOT_LAUNCHED

Cause = NDArray[np.int8]
Bools = NDArray[np.bool_]

(
    LATE, QUEUED, NO_PREFETCH, LONGER, TAIL, INLINE, SERIALISED, STRUCTURAL
) = (
    CAUSES.index(name)
    for name in (
        "late-launch", "queued", "no-prefetch", "longer-than-compute", "tail", "on-compute-stream", "serialised",
        "structural",
    )
)  # fmt: skip
_FLAG_CAUSE = np.array([CAUSES.index(FLAGS[0]), CAUSES.index(FLAGS[1]), UNKNOWN_CAUSE], np.int8)
_HIDDEN_SHARE = 20
"""Less than one part in this many hidden is chance: a kernel of another stream, or an edge."""


def find_causes(
    scene: Scene,
    places: CallPlaces,
    timing: Timing,
    syncs: Syncs,
    backward: list[BackwardPass],
    pass_end: Int64Array,
) -> PieceCauses:
    """The causes of every piece of exposed time of one rank.

    ``pass_end`` is for each call the end of the last compute of the backward pass that it belongs to, on its device.
    """
    pieces, calls = scene.shares.pieces, scene.calls
    found = PieceCauses(
        np.full(len(pieces), UNKNOWN_CAUSE, np.int8), host_parts(scene), np.zeros(len(pieces), np.int64)
    )
    if not len(pieces):
        return found
    facts = _Facts(scene, places, timing)
    by_call, operator = _of_calls(facts, syncs)
    found.cause, found.operator = by_call[pieces.call], operator[pieces.call]
    found.operators = syncs.names
    movable = ~facts.flagged & ~(facts.structural & (by_call != LATE)) & ~facts.inline
    blocked = _blocked(scene, found.host) & movable[pieces.call]
    _by_syncs(found, blocked, pieces.start, pieces.end, syncs)
    late = facts.late_enough(backward)
    tail = _after_backward(scene, backward) | (pieces.start >= pass_end[pieces.call])
    tail &= facts.ends_the_step[pieces.call] & movable[pieces.call] & ~late[pieces.call]
    found.cause[tail], found.operator[tail] = TAIL, NOWHERE
    found.wait[calls.sync[pieces.call]] = (pieces.ns - found.host)[calls.sync[pieces.call]]
    return found


class _Facts:
    """What is known of every call of a rank, arrays of shape ``(calls,)``."""

    def __init__(self, scene: Scene, places: CallPlaces, timing: Timing) -> None:
        calls, shares = scene.calls, scene.shares
        self.scene, self.timing, self.places = scene, timing, places
        self.exposed = shares.exposed
        self.linked: Bools = timing.launched != NOT_LAUNCHED
        self.flagged: Bools = places.flag != NOWHERE
        self.gathers: Bools = places.purpose == PARAMETERS
        self.activations: Bools = (places.purpose == ACTIVATIONS) & self.linked
        self.messages: Bools = places.purpose == POINT_TO_POINT
        self.hidden: Bools = hidden_by_compute(scene) * _HIDDEN_SHARE >= np.maximum(calls.duration, 1)
        self.structural = self.activations
        self.inline = self._inline() & ~self.activations
        # What follows gradients ends with the step; a gather in the passes feeds compute.
        self.ends_the_step: Bools = (places.purpose == GRADIENTS) | (places.phase == OPTIMIZER)

    def _inline(self) -> Bools:
        main = {device.work.device: device.windows.main_stream for device in self.scene.devices}
        calls = self.scene.calls
        out = np.zeros(len(calls), np.bool_)
        if not self.scene.on_cpu:
            for number, stream in main.items():
                out |= (calls.device == number) & (calls.stream == (-1 if stream is None else stream))
        return out

    @property
    def half(self) -> Int64Array:
        """Half of the exposed time, at least 1 ns."""
        return np.maximum(self.exposed // 2, 1)

    @property
    def late(self) -> Bools:
        """Calls that their launch held up for long enough: they started when they were launched, after being ready."""
        timing, calls = self.timing, self.scene.calls
        base = np.maximum(timing.ready, timing.stream_end)
        right_after = self.linked & (timing.launched > base) & (calls.start - timing.launched <= NEAR_NS)
        found: Bools = right_after & (timing.lag > 0) & (self.gathers | (timing.lag >= self.half))
        return found

    def late_enough(self, backward: list[BackwardPass]) -> Bools:
        """Late calls that the rest of the backward pass would have hidden for half of their exposed time."""
        calls, step = self.scene.calls, self.scene.shares.step
        end = np.full(len(calls), NOT_LAUNCHED)
        for device, passed in zip(self.scene.devices, backward, strict=True):
            mine = np.flatnonzero((calls.device == device.work.device) & (step >= 0))
            known = passed.known[step[mine]]
            end[mine[known]] = passed.end[step[mine[known]]]
        ready = self.timing.ready
        room = np.where((end != NOT_LAUNCHED) & (ready != NOT_LAUNCHED), end - np.where(ready < end, ready, end), 0)
        found: Bools = self.late & (np.minimum(room, self.timing.lag) >= self.half)
        return found

    def behind(self, end: Int64Array) -> Bools:
        """Calls that started right after ``end`` and had waited for it for at least half of their exposed time."""
        timing = self.timing
        base = np.where(self.gathers, timing.launched, np.maximum(timing.launched, timing.ready))
        waited = np.where(end != NOT_LAUNCHED, end - base, 0)
        return self.linked & waited_for(self.scene.calls.start, end, base) & (waited >= self.half)

    @property
    def blocking(self) -> Bools:
        """On a CPU: calls from whose launch to whose end the rank computed next to nothing."""
        calls = self.scene.calls
        out = np.zeros(len(calls), np.bool_)
        rows = np.flatnonzero(self.linked & ~self.messages & ~self.activations)
        if self.scene.on_cpu and len(rows):
            begin = np.minimum(calls.issued[rows], calls.start[rows])
            busy = self.scene.devices[0].work.compute.within(begin, calls.end[rows])
            out[rows] = busy * _HIDDEN_SHARE <= calls.end[rows] - begin
        return out

    @property
    def in_chain(self) -> Bools:
        """Activations behind activations of the same group: the one is made from the other."""
        before, group = self.timing.stream_call, self.scene.calls.group
        found: Bools = self.activations & self.activations[before] & (before >= 0) & (group == group[before])
        return found

    @property
    def after_compute(self) -> Bools:
        """Calls that started right when compute of the main stream ended, launched before that."""
        timing, start = self.timing, self.scene.calls.start
        known = self.linked & (timing.after != NOT_LAUNCHED)
        found: Bools = known & (start - np.where(known, timing.after, start) <= NEAR_NS)
        return found

    @property
    def after_activations(self) -> Bools:
        """Calls that started right when activations had been exchanged: tensor parallelism within sharded layers."""
        calls = self.scene.calls
        ends = np.sort(calls.end[self.activations])
        if not len(ends):
            return np.zeros(len(calls), np.bool_)
        place = np.searchsorted(ends, calls.start, side="right") - 1
        found: Bools = self.linked & (place >= 0) & (calls.start - ends[np.maximum(place, 0)] <= NEAR_NS)
        return found


def _of_calls(facts: _Facts, syncs: Syncs) -> tuple[Cause, NDArray[np.int32]]:
    """Cause of every call by the rules that hold for calls as a whole, in reverse order; and who synchronised."""
    places, timing = facts.places, facts.timing
    count = len(facts.exposed)
    cause = np.full(count, UNKNOWN_CAUSE, np.int8)
    operator = np.full(count, NOWHERE, np.int32)
    placed = facts.linked & (places.phase != NOWHERE) & ~facts.messages
    cause[placed & facts.after_compute] = STRUCTURAL
    cause[(facts.linked | _spans_compute(facts.scene)) & facts.hidden & ~facts.messages] = LONGER
    cause[facts.gathers & (facts.after_compute | facts.after_activations) & ~facts.hidden] = NO_PREFETCH
    cause[facts.behind(timing.group_end) & ~facts.activations] = SERIALISED
    cause[facts.behind(timing.stream_end) & ~facts.in_chain] = QUEUED
    begins = facts.gathers & facts.linked & ~facts.hidden & ~np.isin(cause, [SERIALISED, QUEUED])
    begins &= (places.phase == FORWARD) & (timing.ready_phase != FORWARD)
    cause[begins] = STRUCTURAL
    cause[facts.blocking] = BLOCKING_WAIT
    late = facts.late & ~begins
    cause[late] = LATE
    held = held_up(syncs, facts.scene)
    by_sync = late & (held != NOWHERE)
    cause[by_sync] = syncs.cause[held[by_sync]]
    operator[by_sync] = syncs.operator[held[by_sync]]
    cause[facts.inline] = INLINE
    own = facts.structural & ~np.isin(cause, [LATE, QUEUED, SERIALISED])
    cause[own] = np.where(facts.hidden, LONGER, STRUCTURAL)[own]
    cause[facts.flagged] = _FLAG_CAUSE[places.flag[facts.flagged]]
    operator[~np.isin(cause, BY_SYNCS)] = NOWHERE
    return cause, operator


def hidden_by_compute(scene: Scene) -> Int64Array:
    """Nanoseconds of each call beside compute that does not itself exist for communication (bucket copies, packing)."""
    calls = scene.calls
    out = np.zeros(len(calls), np.int64)
    for device in scene.devices:
        work = device.work
        compute = union(work.compute_start[~work.compute_for_comm], work.compute_end[~work.compute_for_comm])
        mine = np.flatnonzero(calls.device == device.work.device)
        single = calls.last[mine] - calls.first[mine] == 1
        out[mine] = compute.within(calls.start[mine], calls.end[mine])
        for row in mine[~single].tolist():
            kernels = slice(int(calls.first[row]), int(calls.last[row]))
            out[row] = (union(calls.kernel_start[kernels], calls.kernel_end[kernels]) & compute).total()
    return out


def _spans_compute(scene: Scene) -> Bools:
    """Calls without a launch that started no later than the compute beside them and ended after it."""
    calls = scene.calls
    out = np.zeros(len(calls), np.bool_)
    for device in scene.devices:
        compute = device.work.compute
        mine = np.flatnonzero((calls.device == device.work.device) & (calls.issued == NOT_LAUNCHED))
        if not len(compute) or not len(mine):
            continue
        first = np.searchsorted(compute.ends, calls.start[mine], side="right")
        there = first < len(compute)
        first = np.minimum(first, len(compute) - 1)
        start, end = compute.starts[first], compute.ends[first]
        out[mine] = there & (start >= calls.start[mine]) & (end < calls.end[mine])
    return out


def _after_backward(scene: Scene, backward: list[BackwardPass]) -> Bools:
    """Pieces after the last backward compute of their window."""
    pieces, calls = scene.shares.pieces, scene.calls
    out = np.zeros(len(pieces), np.bool_)
    for device, passed in zip(scene.devices, backward, strict=True):
        if not len(passed.end) or passed.assumed:
            continue
        mine = (calls.device[pieces.call] == device.work.device) & (pieces.window >= 0)
        out |= mine & (pieces.start >= passed.end[np.maximum(pieces.window, 0)])
    return out


def _blocked(scene: Scene, host: Int64Array) -> Bools:
    """Pieces during most of whose rest the launch of the next compute was held up by a thread that waited."""
    pieces, calls = scene.shares.pieces, scene.calls
    out = np.zeros(len(pieces), np.bool_)
    for device in scene.devices:
        mine = np.flatnonzero(calls.device[pieces.call] == device.work.device)
        blocked = device.blocked.within(pieces.start[mine], pieces.end[mine])
        bound = 0 if device.host is None else device.host.within(pieces.start[mine], pieces.end[mine])
        rest = pieces.end[mine] - pieces.start[mine] - bound
        out[mine] = (2 * blocked >= rest) & (blocked > 0)
    return out & (host < pieces.ns)


def _by_syncs(found: PieceCauses, chosen: Bools, start: Int64Array, end: Int64Array, syncs: Syncs) -> None:
    if not len(syncs):
        return
    rows = np.flatnonzero(chosen)
    row = syncs.covering(start[rows], end[rows])
    there = row != NOWHERE
    found.cause[rows[there]] = syncs.cause[row[there]]
    found.operator[rows[there]] = syncs.operator[row[there]]


def host_parts(scene: Scene) -> Int64Array:
    """Host-bound nanoseconds of each piece; those of one stretch add up to what of the stretch is host-bound, in
    windows where that is known."""
    pieces, calls = scene.shares.pieces, scene.calls
    out = np.zeros(len(pieces), np.int64)
    for device in scene.devices:
        mine = np.flatnonzero(calls.device[pieces.call] == device.work.device) if len(pieces) else np.empty(0, np.int64)
        if device.host is None or not len(mine):
            continue
        start, ns = pieces.start[mine], pieces.ns[mine]
        first = np.concatenate([[True], start[1:] != start[:-1]])
        stretch = np.cumsum(first) - 1
        sharing = np.bincount(stretch)
        host = device.host.within(start[first], pieces.end[mine][first])
        # Equal parts like the piece itself; what the division leaves goes where there is room for it.
        equal, left = host // sharing, host % sharing
        place = np.arange(len(mine)) - np.flatnonzero(first)[stretch]
        smallest = np.minimum.reduceat(ns, np.flatnonzero(first))
        full = equal >= smallest
        more = np.where(full[stretch], np.where(first, left[stretch], 0), place < left[stretch])
        out[mine] = np.where(_unlinked(scene, device)[pieces.window[mine]], 0, equal[stretch] + more)
    return out


def _unlinked(scene: Scene, device: DeviceScene) -> Bools:
    """For each step, and last for none, whether nothing is known of the host in its window."""
    out = np.zeros(len(scene.shares.step_names) + 1, np.bool_)
    out[device.steps] = ~device.linked
    return out
