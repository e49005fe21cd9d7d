"""The discrete-event simulator: CPUs that launch, streams that run in order, collectives that meet.

Time is integer nanoseconds. Work whose speed changes (compute beside communication, transfers that share a
link) is counted in nanoseconds at full speed times 1000 and progresses by its rate in thousandths; the end is
rounded up to a whole nanosecond.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Callable

from commprof.synth.cluster import Path
from commprof.synth.mesh import Group
from commprof.synth.plan import Plan, durations, host_gaps
from commprof.synth.program import Kind
from commprof.synth.timeline import Call, RankTimeline, Timeline
from commprof.synth.timing import BUFFER_BYTES, SYNCHRONISING, Timing
from commprof.synth.traffic import traffic

_FULL = 1000
_RUNNING, _QUEUE, _SYNC = 0, 1, 2


class _Running:
    """A compute kernel in progress."""

    __slots__ = ("index", "left", "since", "version")

    def __init__(self, index: int, left: int, since: int) -> None:
        self.index, self.left, self.since, self.version = index, left, since, 0


class _Rank:
    """State of one rank: its CPU, its streams, and the arrays that become its timeline."""

    __slots__ = (
        "after", "blocked", "busy", "call_of", "comm_active", "comms", "computing", "cost", "cpu_end", "cpu_start",
        "dev_end", "dev_start", "gap", "group_of", "id", "kinds", "launch", "missing", "order", "outstanding", "pc",
        "queues", "rate", "streams", "t", "waiters", "work",
    )  # fmt: skip

    def __init__(self, plan: Plan, rank: int, compiled: _Compiled) -> None:
        n = len(compiled.kinds)
        self.id = rank
        self.kinds, self.streams, self.after = compiled.kinds, compiled.streams, compiled.after
        self.comms = compiled.comms
        self.work, self.cost = durations(plan, rank)
        self.gap = host_gaps(plan, rank)
        blank = array("q", [-1]) * n
        self.cpu_start, self.launch, self.cpu_end = blank[:], blank[:], blank[:]
        self.dev_start, self.dev_end = blank[:], blank[:]
        self.call_of = array("i", [-1]) * n
        self.queues: dict[int, deque[int]] = {s: deque() for s in compiled.all_streams}
        self.busy: dict[int, bool] = dict.fromkeys(compiled.all_streams, False)
        self.waiters: dict[int, list[int]] = {}
        self.computing: dict[int, _Running] = {}
        self.missing: set[int] = set()
        self.order: dict[tuple[int, ...], int] = {}
        self.group_of: dict[str, Group | None] = {}
        self.pc = self.t = self.outstanding = self.comm_active = 0
        self.blocked, self.rate = _RUNNING, _FULL


class _Compiled:
    """A program as parallel lists."""

    def __init__(self, plan: Plan, stage: int) -> None:
        instructions = plan.programs[stage].instructions
        self.kinds = [int(ins.kind) for ins in instructions]
        self.streams = [ins.stream for ins in instructions]
        self.after = [ins.after for ins in instructions]
        self.comms = [ins.comm for ins in instructions]
        self.all_streams = sorted({ins.stream for ins in instructions if ins.stream >= 0})


class _Flow:
    """A call whose members have met: what is left to transfer, and at which rate."""

    __slots__ = ("call", "left", "path", "rate", "since", "version")

    def __init__(self, call: Call, left: int, path: Path, now: int) -> None:
        self.call, self.left, self.path, self.since = call, left, path, now
        self.rate, self.version = 0, 0


class Engine:
    """Runs one plan to its end. Use :func:`simulate`."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.scenario = plan, plan.scenario
        self.timing = Timing(plan)
        self.now = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0
        compiled = [_Compiled(plan, stage) for stage in range(len(plan.programs))]
        self.ranks = [_Rank(plan, r, compiled[plan.mesh.stage(r)]) for r in range(plan.mesh.world)]
        self.calls: list[Call] = []
        self._open: dict[tuple[int, ...], int] = {}
        self._paths: dict[tuple[tuple[int, ...], bool], Path] = {}
        self._place_of: dict[tuple[int, ...], dict[int, int]] = {}
        self._flows: dict[int, set[_Flow]] = {}
        slow = _FULL * _FULL // (_FULL + self.scenario.contention_permille)
        self._beside_rate = slow

    def run(self) -> Timeline:
        """Simulate until nothing is left to do; raises ``RuntimeError`` when ranks wait for each other for ever."""
        for rank in self.ranks:
            self._advance(rank)
        heap = self._heap
        while heap:
            self.now, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
        for rank in self.ranks:
            if rank.pc < len(rank.kinds) or rank.outstanding:
                raise RuntimeError(f"deadlock: rank {rank.id} stands at instruction {rank.pc}")
        return Timeline(self.plan, [self._timeline(rank) for rank in self.ranks], self.calls)

    def _timeline(self, rank: _Rank) -> RankTimeline:
        return RankTimeline(rank.cpu_start, rank.launch, rank.cpu_end, rank.dev_start, rank.dev_end, rank.call_of)

    def _at(self, when: int, action: Callable[..., None], *arguments: object) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, action, arguments))

    # CPU

    def _advance(self, rank: _Rank) -> None:
        """Let the CPU run on until it blocks; it may run ahead of the clock, nothing depends on when it is told."""
        kinds, n = rank.kinds, len(rank.kinds)
        while rank.pc < n:
            i = rank.pc
            kind = kinds[i]
            if kind <= Kind.RECV:
                if not self._launch(rank, i, kind):
                    return
            elif kind == Kind.SYNC:
                if rank.cpu_start[i] < 0:
                    rank.cpu_start[i] = rank.launch[i] = rank.t
                rank.missing = {d for d in rank.after[i] if rank.dev_end[d] < 0}
                if rank.missing:
                    rank.blocked = _SYNC
                    return
                rank.t = max(rank.t + rank.cost[i], *(rank.dev_end[d] for d in rank.after[i]), rank.t)
                rank.cpu_end[i] = rank.t
            else:
                rank.cpu_start[i] = rank.launch[i] = rank.t
                if kind == Kind.HOST:
                    rank.t += rank.work[i]
                rank.cpu_end[i] = rank.t
            rank.pc = i + 1

    def _launch(self, rank: _Rank, i: int, kind: int) -> bool:
        """Put instruction ``i`` on its stream; ``False`` when the launch queue is full and the CPU must wait."""
        cost = rank.cost[i]
        if rank.cpu_start[i] < 0:
            if kind >= Kind.COLLECTIVE:
                rank.t += rank.gap
            rank.cpu_start[i] = rank.t
            rank.launch[i] = rank.t + cost * 2 // 5
        if rank.outstanding >= self.scenario.launch_queue:
            rank.blocked = _QUEUE
            return False
        entered = max(rank.t + cost * 2 // 5, rank.launch[i])
        rank.t = entered + cost - cost * 2 // 5
        rank.cpu_end[i] = rank.t
        rank.outstanding += 1
        rank.dev_start[i] = entered + self.scenario.launch_latency_ns  # the earliest start, until it starts
        stream = rank.streams[i]
        queue = rank.queues[stream]
        queue.append(i)
        if kind >= Kind.COLLECTIVE:
            self._enrol(rank, i)
        if len(queue) == 1 and not rank.busy[stream]:
            self._try_start(rank, stream)
        return True

    def _enrol(self, rank: _Rank, i: int) -> None:
        """Find the call that this launch takes part in: the n-th one between these ranks in program order."""
        comm = rank.comms[i]
        assert comm is not None
        if comm.axis not in rank.group_of:
            rank.group_of[comm.axis] = self.plan.mesh.group(rank.id, comm.axis)
        group = rank.group_of[comm.axis]
        assert group is not None
        if comm.peer is None:
            ends: tuple[int, ...] = (group.id, -1, -1)
            members = group.ranks
        else:
            other = group.ranks[comm.peer]
            source, sink = (rank.id, other) if comm.op == "send" else (other, rank.id)
            ends, members = (group.id, source, sink), (source, sink)
        n = rank.order.get(ends, 0)
        rank.order[ends] = n + 1
        number = self._open.get((*ends, n))
        if number is None:
            number = len(self.calls)
            op, blank = "send" if comm.peer is not None else comm.op, array("i", [-1]) * len(members)
            self.calls.append(Call(number, group, op, comm, n, members, blank))
            if len(members) > 1:
                self._open[(*ends, n)] = number
        call = self.calls[number]
        if call.enrolled and not call.comm.meets(comm):
            raise RuntimeError(f"rank {rank.id} calls {comm.op} where group {group.id} calls {call.op}")
        call.indices[self._places(call)[rank.id]] = i
        call.enrolled += 1
        if call.enrolled == len(members):
            self._open.pop((*ends, n), None)
        rank.call_of[i] = number

    def _unblock(self, rank: _Rank, finished: int) -> None:
        if rank.blocked == _QUEUE:
            rank.t = max(rank.t, self.now - rank.cost[rank.pc] * 2 // 5)
        elif rank.blocked == _SYNC:
            rank.missing.discard(finished)
            if rank.missing:
                return
        rank.blocked = _RUNNING
        self._advance(rank)

    # streams

    def _try_start(self, rank: _Rank, stream: int) -> None:
        """Start the head of ``stream`` if it may; else see to it that it is tried again when it may."""
        queue = rank.queues[stream]
        if not queue or rank.busy[stream]:
            return
        i = queue[0]
        for d in rank.after[i]:
            if rank.dev_end[d] < 0:
                rank.waiters.setdefault(d, []).append(stream)
                return
        if rank.dev_start[i] > self.now:
            self._at(rank.dev_start[i], self._try_start, rank, stream)
            return
        rank.dev_start[i] = self.now
        rank.busy[stream] = True
        kind = rank.kinds[i]
        if kind == Kind.COMPUTE:
            running = _Running(i, rank.work[i] * _FULL, self.now)
            rank.computing[stream] = running
            self._at(self.now + -(-running.left // rank.rate), self._compute_done, rank, stream, running, 0)
        elif kind == Kind.COPY:
            self._at(self.now + rank.work[i], self._finish, rank, i)
        else:
            rank.comm_active += 1
            if rank.comm_active == 1:
                self._set_rate(rank, self._beside_rate)
            self._arrive(rank, i)

    def _compute_done(self, rank: _Rank, stream: int, running: _Running, version: int) -> None:
        if running.version == version:
            del rank.computing[stream]
            self._finish(rank, running.index)

    def _set_rate(self, rank: _Rank, rate: int) -> None:
        """Compute goes slower beside communication: it takes SMs and memory bandwidth."""
        if rate == rank.rate:
            return
        for stream, running in rank.computing.items():
            running.left -= (self.now - running.since) * rank.rate
            running.since = self.now
            running.version += 1
            end = self.now + max(0, -(-running.left // rate))
            self._at(end, self._compute_done, rank, stream, running, running.version)
        rank.rate = rate

    def _finish(self, rank: _Rank, i: int) -> None:
        rank.dev_end[i] = self.now
        stream = rank.streams[i]
        rank.busy[stream] = False
        rank.queues[stream].popleft()
        rank.outstanding -= 1
        if rank.kinds[i] >= Kind.COLLECTIVE:
            rank.comm_active -= 1
            if rank.comm_active == 0:
                self._set_rate(rank, _FULL)
        if rank.blocked:
            self._unblock(rank, i)
        self._try_start(rank, stream)
        for waiting in rank.waiters.pop(i, ()):
            self._try_start(rank, waiting)

    # communication

    def _arrive(self, rank: _Rank, i: int) -> None:
        call = self.calls[rank.call_of[i]]
        call.arrived += 1
        if call.first < 0:
            call.first = self.now
        ready = self.now + self._block_delay(call, rank)
        call.ready = max(call.ready, ready)
        buffered = self.scenario.real and call.op not in SYNCHRONISING and call.comm.size_bytes <= BUFFER_BYTES
        if buffered and rank.id == call.source:
            # The source finishes into the buffers of the sink, whether that has entered or not.
            self._at(ready, self._begin, call)
        elif buffered:
            self._sink_entered(call, rank, ready)
        elif call.arrived == len(call.members):
            call.early = self.timing.early_share(self._length(call)[1], call.ready - call.first)
            self._at(call.ready, self._begin, call)

    def _block_delay(self, call: Call, rank: _Rank) -> int:
        """How long the kernel's later blocks wait for SMs behind compute (real model)."""
        if not self.scenario.real or not rank.computing:
            return 0
        left = max(r.left // _FULL - (self.now - r.since) for r in rank.computing.values())
        return self.timing.block_delay(call.key, rank.id, left)

    def _sink_entered(self, call: Call, rank: _Rank, ready: int) -> None:
        if call.done >= 0:
            alpha = self._length(call)[0]
            self._at(max(call.done, ready) + alpha, self._finish, rank, self._index(call, rank.id))
        else:
            call.pending += (rank.id,)

    def _path(self, call: Call) -> Path:
        one_way = call.comm.peer is not None
        path = self._paths.get((call.members, one_way))
        if path is None:
            path = self.plan.placement.path(call.members, one_way=one_way)
            self._paths[call.members, one_way] = path
        return path

    def _length(self, call: Call) -> tuple[int, int]:
        """Latency and transfer of ``call`` in ns, worked out once."""
        if call.length is None:
            call.length = self._work_out(call)
        return call.length

    def _work_out(self, call: Call) -> tuple[int, int]:
        comm, matrix = call.comm, None
        if comm.traffic is not None:
            matrix = traffic(
                self.plan.seed, call.group.id, comm.traffic, len(call.members), comm.nelems_in,
                self.scenario.imbalance_permille,
            )  # fmt: skip
        length = self.timing.length(comm, self._path(call), len(call.members), call.key, matrix)
        return length.alpha_ns, length.transfer_ns

    def _begin(self, call: Call) -> None:
        """All who are needed are here: the latency passes, then bytes flow."""
        alpha, _ = self._length(call)
        self._at(self.now + alpha, self._flow, call)

    def _flow(self, call: Call) -> None:
        _, transfer = self._length(call)
        flow = _Flow(call, (transfer - call.early) * _FULL, self._path(call), self.now)
        for resource in flow.path.resources:
            self._flows.setdefault(resource, set()).add(flow)
        self._share(flow)

    def _share(self, changed: _Flow) -> None:
        """Give every flow that shares a link with ``changed`` its new rate: links are split evenly."""
        affected = {flow for resource in changed.path.resources for flow in self._flows[resource]}
        for flow in sorted(affected, key=lambda f: f.call.number):
            rate = _FULL // max(len(self._flows[resource]) for resource in flow.path.resources)
            if rate == flow.rate:
                continue
            flow.left -= (self.now - flow.since) * flow.rate
            flow.since, flow.rate = self.now, max(1, rate)
            flow.version += 1
            self._at(self.now + max(0, -(-flow.left // flow.rate)), self._flow_done, flow, flow.version)

    def _flow_done(self, flow: _Flow, version: int) -> None:
        if flow.version != version:
            return
        for resource in flow.path.resources:
            self._flows[resource].discard(flow)
        self._share(flow)
        call = flow.call
        call.done = self.now
        # Buffered calls end here for their source alone; all others have all their members.
        whole = call.arrived == len(call.members) and not call.pending
        for member in call.members if whole else (call.source,):
            skew = self.timing.end_skew(call.key, member, flow.path, len(call.members))
            self._end_member(call, member, self.now + skew)
        for member in call.pending:
            alpha = self._length(call)[0]
            self._at(self.now + alpha, self._finish, self.ranks[member], self._index(call, member))
        call.pending = ()
        call.length = None  # of hundreds of thousands of calls only those in progress keep it

    def _end_member(self, call: Call, member: int, when: int) -> None:
        rank = self.ranks[member]
        if when == self.now:
            self._finish(rank, self._index(call, member))
        else:
            self._at(when, self._finish, rank, self._index(call, member))

    def _places(self, call: Call) -> dict[int, int]:
        """Place of each rank among the members of ``call``."""
        places = self._place_of.get(call.members)
        if places is None:
            places = self._place_of[call.members] = {rank: n for n, rank in enumerate(call.members)}
        return places

    def _index(self, call: Call, rank: int) -> int:
        return call.indices[self._places(call)[rank]]


def simulate(plan: Plan) -> Timeline:
    """Run ``plan``; the timeline holds true times in nanoseconds from the start of the run."""
    return Engine(plan).run()
