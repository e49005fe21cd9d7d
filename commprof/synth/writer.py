"""A rank's timeline as a Kineto trace: text in pieces, so that no rank is ever held as a whole document."""

from __future__ import annotations

import json
from collections.abc import Iterator

from commprof.synth.clock import BASE_NS
from commprof.synth.eras import OPS, CommArgs, annotation, kernel_name
from commprof.synth.plan import Plan
from commprof.synth.program import Instruction, Kind
from commprof.synth.timeline import RankTimeline
from commprof.synth.traffic import Matrix, traffic

_PIECE = 512  # events per piece of text
_CHANNELS = 16
_PID = 10_000
_RUNTIME_IDS = 1 << 20  # correlation ids and External ids come from separate ranges


class TraceWriter:
    """Writes the trace of one rank.

    ``shown`` holds the times of the trace (:func:`commprof.synth.clock.observe`). ``lean`` leaves out flows and
    the device's copies of annotations, which no analysis needs.
    """

    def __init__(self, plan: Plan, rank: int, shown: RankTimeline, *, lean: bool = False) -> None:
        self.plan, self.rank, self.shown, self.lean = plan, rank, shown, lean
        self.scenario = plan.scenario
        self.era = plan.scenario.era
        self.pid = _PID + rank
        self.device = plan.placement.device(rank)
        self.instructions = plan.program(rank).instructions
        self._external = 0
        self._args: dict[object, CommArgs] = {}
        self._sequence: dict[tuple[int, bool], int] = {}
        self._open: list[tuple[Instruction, int, int]] = []
        self._origin = BASE_NS if self.era == "2.1" else 0
        self._whole = plan.tick_ns > 1

    def pieces(self) -> Iterator[str]:
        """The file's text, from the opening to the closing brace."""
        yield self._head()
        batch = self._metadata_events()
        for i, ins in enumerate(self.instructions):
            batch.extend(self._events(i, ins))
            if len(batch) >= _PIECE:
                yield ",\n".join(batch) + ",\n"
                batch = []
        batch.append(self._span())
        yield ",\n".join(batch)
        yield "\n]\n}\n"

    # document

    def _head(self) -> str:
        plan, cluster = self.plan, self.scenario.cluster
        backends = {"backend_config": "cuda:nccl"}
        described = self.scenario.described_groups
        info: dict[str, object] = {"backend": "nccl", "rank": self.rank, "world_size": plan.mesh.world}
        if self.era != "2.1":
            info["pg_count"] = len(plan.mesh.groups)
            info["pg_config"] = [
                {
                    "pg_name": str(g.id),
                    "pg_desc": g.description if described or g.axis == "world" else "undefined",
                    **backends,
                    "pg_size": len(g.ranks),
                    "ranks": list(g.ranks),
                }
                for g in plan.mesh.groups_of(self.rank)
            ]
            info["nccl_version"] = "2.27.5" if self.era == "2.13" else "2.20.5"
        device = {
            "id": self.device, "name": cluster.device_name, "totalGlobalMem": cluster.memory_bytes,
            "computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024, "warpSize": 32, "numSms": cluster.sms,
        }  # fmt: skip
        head: dict[str, object] = {
            "schemaVersion": 1, "deviceProperties": [device], "distributedInfo": info, "record_shapes": 1,
            "host_name": f"host{plan.placement.host(self.rank)}", "displayTimeUnit": "ms",
            "traceName": f"simulated rank {self.rank}",
        }  # fmt: skip
        if self.era != "2.1":
            head["baseTimeNanoseconds"] = BASE_NS
        return json.dumps(head)[:-1] + ',\n"traceEvents": [\n'

    def _metadata_events(self) -> list[str]:
        rows: list[tuple[str, object, object, dict[str, object]]] = [
            ("process_name", self.pid, 0, {"name": "python"}),
            ("process_labels", self.pid, 0, {"labels": "CPU"}),
            ("process_sort_index", self.pid, 0, {"sort_index": self.pid}),
            ("process_name", self.device, 0, {"name": "python"}),
            ("process_labels", self.device, 0, {"labels": f"GPU {self.device}"}),
            ("process_sort_index", self.device, 0, {"sort_index": 5_000_000}),
            ("thread_name", self.pid, self.pid, {"name": f"thread {self.pid} (python)"}),
            ("thread_name", self.pid, self.pid + 1, {"name": f"thread {self.pid + 1} (pt_autograd_0)"}),
        ]
        streams = sorted({ins.stream for ins in self.instructions if ins.stream >= 0})
        rows += [("thread_name", self.device, s, {"name": f"stream {s} "}) for s in streams]
        return [
            json.dumps({"name": name, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args})
            for name, pid, tid, args in rows
        ]

    def _span(self) -> str:
        first, last = min(self.shown.cpu_start), max(max(self.shown.cpu_end), max(self.shown.dev_end))
        return (
            f'{{"ph": "X", "cat": "Trace", {self._time(first, last)}, "pid": "Spans", "tid": "PyTorch Profiler", '
            f'"name": "PyTorch Profiler (0)", "args": {{"Op count": 0}}}}'
        )

    # events

    def _events(self, i: int, ins: Instruction) -> list[str]:
        shown = self.shown
        if ins.kind == Kind.BEGIN:
            self._external += 1
            self._open.append((ins, shown.cpu_start[i], self._external))
            return []
        if ins.kind == Kind.END:
            opened, start, external = self._open.pop()
            return [self._cpu(opened.op, opened.name, opened.thread, start, shown.cpu_end[i], external)]
        if ins.kind == Kind.HOST:
            if not ins.name or not ins.work_ns:
                return []
            self._external += 1
            return [self._cpu(ins.op, ins.name, ins.thread, shown.cpu_start[i], shown.cpu_end[i], self._external)]
        if ins.kind == Kind.SYNC:
            return [self._runtime(ins.name, ins.thread, shown.cpu_start[i], shown.cpu_end[i], _RUNTIME_IDS + i)]
        return self._launch(i, ins)

    def _launch(self, i: int, ins: Instruction) -> list[str]:
        """Operator, runtime call and device event of one launch."""
        shown = self.shown
        start, launch, end = shown.cpu_start[i], shown.launch[i], shown.cpu_end[i]
        returned = runtime_end(launch, end, self.plan.tick_ns)
        correlation = _RUNTIME_IDS + i
        if ins.comm is not None:
            return self._communication(i, ins, (start, launch, returned, end), correlation)
        self._external += 1
        external = self._external
        events = [self._cpu("cpu_op", ins.op, ins.thread, start, end, external)]
        if ins.kind == Kind.COPY:
            events.append(self._runtime("cudaMemcpyAsync", ins.thread, launch, returned, correlation, external))
            detail = f', "bytes": {ins.nbytes}'
            category, name = "gpu_memcpy", ins.name
        else:
            events.append(self._runtime("cudaLaunchKernel", ins.thread, launch, returned, correlation, external))
            detail = self._shape(ins.grid, 256)
            category, name = "kernel", ins.name
        events.append(self._device_event(i, ins, category, name, external, correlation, detail))
        return events + self._flows(i, ins, launch, correlation)

    def _communication(self, i: int, ins: Instruction, times: tuple[int, int, int, int], correlation: int) -> list[str]:
        start, launch, returned, end = times
        comm = ins.comm
        assert comm is not None
        group = self.plan.group(self.rank, ins)
        assert group is not None
        args = self._comm_args(ins)
        point_to_point = comm.peer is not None
        key = (group.id, point_to_point)
        number = self._sequence[key] = self._sequence.get(key, 0) + 1
        sequence = args.sequence(number, group.id, point_to_point)
        self._external += 3
        outer, inner, around = self._external - 2, self._external - 1, self._external
        third, tail = (launch - start) // 3, (end - returned) // 3
        label = annotation(comm, group, self.rank)
        asynchronous = f', "Is asynchronized op": {str(ins.asynchronous).lower()}' if self.era == "2.13" else ""
        names = OPS[comm.op]
        events = [
            self._cpu("cpu_op", names.operator, ins.thread, start, end, outer, args.arguments),
            self._cpu(
                "cpu_op", "record_param_comms", ins.thread, start + third, end - tail, inner,
                args.operator + sequence + asynchronous,
            ),
            self._cpu(
                "user_annotation", label, ins.thread, start + 2 * third, end - 2 * tail, around,
                args.shapes if self.era == "2.1" else "",
            ),
            self._runtime("cudaLaunchKernelExC", ins.thread, launch, returned, correlation, inner),
            self._device_event(
                i, ins, "kernel", kernel_name(comm, self.era), inner, correlation,
                self._shape(_CHANNELS, 544) + args.kernel + (sequence if args.kernel else ""),
            ),
        ]  # fmt: skip
        if not self.lean:
            a, b = self.shown.dev_start[i], self.shown.dev_end[i]
            events.append(
                f'{{"ph": "X", "cat": "gpu_user_annotation", "name": "{label}", "pid": {self.device}, '
                f'"tid": {ins.stream}, {self._time(a, b)}, "args": {{"External id": {around}}}}}'
            )
        return events + self._flows(i, ins, launch, correlation)

    def _comm_args(self, ins: Instruction) -> CommArgs:
        comm = ins.comm
        assert comm is not None
        found = self._args.get(comm)
        if found is None:
            group = self.plan.group(self.rank, ins)
            assert group is not None
            matrix: Matrix | None = None
            if comm.traffic is not None:
                matrix = traffic(
                    self.plan.seed, group.id, comm.traffic, len(group.ranks), comm.nelems_in,
                    self.scenario.imbalance_permille,
                )  # fmt: skip
            described = self.scenario.described_groups or group.axis == "world"
            found = self._args[comm] = CommArgs(comm, group, self.rank, self.era, described, matrix)
        return found

    def _device_event(
        self, i: int, ins: Instruction, category: str, name: str, external: int, correlation: int, detail: str
    ) -> str:
        return (
            f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {self.device}, "tid": {ins.stream}, '
            f'{self._time(self.shown.dev_start[i], self.shown.dev_end[i])}, "args": {{"External id": {external}, '
            f'"device": {self.device}, "context": 1, "stream": {ins.stream}, "correlation": {correlation}{detail}}}}}'
        )

    def _shape(self, grid: int, block: int) -> str:
        return f', "registers per thread": 96, "grid": [{grid}, 1, 1], "block": [{block}, 1, 1]'

    def _cpu(self, category: str, name: str, thread: int, start: int, end: int, external: int, extra: str = "") -> str:
        return (
            f'{{"ph": "X", "cat": "{category}", "name": "{name}", "pid": {self.pid}, "tid": {self.pid + thread}, '
            f'{self._time(start, end)}, "args": {{"External id": {external}{extra}}}}}'
        )

    def _runtime(
        self, name: str, thread: int, start: int, end: int, correlation: int, external: int | None = None
    ) -> str:
        link = f'"External id": {external}, ' if external is not None else ""
        return (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "{name}", "pid": {self.pid}, "tid": {self.pid + thread}, '
            f'{self._time(start, end)}, "args": {{{link}"cbid": 211, "correlation": {correlation}}}}}'
        )

    def _flows(self, i: int, ins: Instruction, launch: int, correlation: int) -> list[str]:
        if self.lean:
            return []
        common = f'"id": {correlation}, "cat": "ac2g", "name": "ac2g"'
        begin, end = self._stamp(launch), self._stamp(self.shown.dev_start[i])
        return [
            f'{{"ph": "s", {common}, "pid": {self.pid}, "tid": {self.pid + ins.thread}, "ts": {begin}}}',
            f'{{"ph": "f", {common}, "pid": {self.device}, "tid": {ins.stream}, "ts": {end}, "bp": "e"}}',
        ]

    def _time(self, start: int, end: int) -> str:
        """``ts`` and ``dur`` in microseconds: exact nanoseconds as decimals, or whole numbers."""
        length = end - start
        if self._whole:
            return f'"ts": {(start + self._origin) // 1000}, "dur": {length // 1000}'
        return f'"ts": {start // 1000}.{start % 1000:03d}, "dur": {length // 1000}.{length % 1000:03d}'

    def _stamp(self, at: int) -> str:
        if self._whole:
            return str((at + self._origin) // 1000)
        return f"{at // 1000}.{at % 1000:03d}"


def runtime_end(launch: int, operator_end: int, tick_ns: int) -> int:
    """When the runtime call returned: a little before the operator ends, in whole ticks of the trace."""
    end = operator_end - min(500, (operator_end - launch) // 4)
    return launch + (end - launch) // tick_ns * tick_ns
