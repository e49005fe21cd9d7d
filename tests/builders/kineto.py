"""One rank's Kineto trace, built event by event.

Times are given in µs as ``start, end`` (int, or a decimal string such as ``"10.2"`` where ns matter).
Device rows have the device as ``pid`` and the stream as ``tid``. Conventions of the catalogue of cases:
compute on stream 7, communication on stream 20, no runtime events unless ``launch`` is given.
"""

from __future__ import annotations

import copy
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from tests.builders.text import Raw, Style, gzip_bytes, render

Time = int | str | Decimal
GEMM = "ampere_sgemm_128x64_tn"
CPU_PROCESS = 4242
MAIN_THREAD = 4242
BACKWARD_THREAD = 4300
COMPUTE_STREAM = 7
COMM_STREAM = 20
COPY_STREAM = 30
BASE_NS = 1_759_276_800_000_000_000  # 2025-10-01, the start of a quarter, as Kineto chooses it

NCCL_KERNELS = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "reduce": "ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "barrier": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
}
SEND_RECV = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def micros(ns: int) -> int | Raw:
    """``ns`` as the number of µs that Kineto writes: whole, or with three exact decimals."""
    if ns % 1000 == 0:
        return ns // 1000
    sign = "-" if ns < 0 else ""
    return Raw(f"{sign}{abs(ns) // 1000}.{abs(ns) % 1000:03d}")


def nanos(time: Time) -> int:
    """A time in µs as integer ns; refuses what is finer than a ns."""
    exact = Decimal(time) * 1000
    if exact != exact.to_integral_value():
        raise ValueError(f"{time} µs is not a whole number of ns")
    return int(exact)


class Trace:
    """A trace under construction; ``events`` and ``top`` are open to any change a test wants to make."""

    def __init__(
        self,
        rank: int | None = 0,
        world_size: int = 2,
        *,
        backend: str = "nccl",
        device: int = 0,
        base_ns: int | None = BASE_NS,
        first_id: int = 1,
    ) -> None:
        self.device = device
        self.world_size = world_size
        self.events: list[Any] = []
        self.top: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": []}
        if rank is not None:
            self.top["distributedInfo"] = distributed_info(rank, world_size, backend)
        self.top["displayTimeUnit"] = "ms"
        if base_ns is not None:
            self.top["baseTimeNanoseconds"] = base_ns
        self._next_id = first_id

    def new_id(self) -> int:
        """A number not yet used as correlation or External id."""
        self._next_id += 1
        return self._next_id - 1

    def add(
        self, cat: str | None, name: str, start: Time, end: Time, pid: Any, tid: Any, args: dict[str, Any]
    ) -> dict[str, Any]:
        """A complete event (``ph`` X) over ``start`` to ``end``."""
        begin = nanos(start)
        event = {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": micros(begin),
            "dur": micros(nanos(end) - begin),
            "args": args,
        }
        self.events.append(event)
        return event

    def step(
        self, number: int, start: Time, end: Time, *, cat: str = "user_annotation", tid: int = MAIN_THREAD
    ) -> dict[str, Any]:
        """The mark ``ProfilerStep#number`` on a CPU thread."""
        return self.annotation(f"ProfilerStep#{number}", start, end, cat=cat, tid=tid)

    def annotation(
        self, name: str, start: Time, end: Time, *, cat: str = "user_annotation", tid: int = MAIN_THREAD
    ) -> dict[str, Any]:
        """A named range of the program, on a CPU thread or (``gpu_user_annotation``) on a device stream."""
        pid = self.device if cat == "gpu_user_annotation" else CPU_PROCESS
        return self.add(cat, name, start, end, pid, tid, {"External id": self.new_id()})

    def cpu_op(
        self, name: str, start: Time, end: Time, *, tid: int = MAIN_THREAD, args: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """A CPU operator; its ``External id`` is what kernels launched under it carry."""
        return self.add("cpu_op", name, start, end, CPU_PROCESS, tid, {"External id": self.new_id(), **(args or {})})

    def runtime(
        self,
        name: str,
        start: Time,
        end: Time,
        *,
        tid: int = MAIN_THREAD,
        correlation: int | None = None,
        under: Any = None,
    ) -> dict[str, Any]:
        """A call of the CUDA runtime."""
        correlation = self.new_id() if correlation is None else correlation
        args = {"cbid": 211, "correlation": correlation}
        if under is not None:
            args["External id"] = under["args"]["External id"]
        return self.add("cuda_runtime", name, start, end, CPU_PROCESS, tid, args)

    def device_event(
        self,
        cat: str,
        name: str,
        start: Time,
        end: Time,
        *,
        stream: int,
        device: int | None = None,
        launch: Time | None = None,
        thread: int = MAIN_THREAD,
        under: Any = None,
        call: str | None = None,
        call_us: Time = 2,
        args: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Work on a device; ``launch`` adds the runtime event that enqueued it, ``under`` is its operator."""
        device = self.device if device is None else device
        full: dict[str, Any] = {"device": device, "context": 1, "stream": stream}
        if launch is not None:
            begin = Decimal(launch)
            default = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
            event = self.runtime(call or default, begin, begin + Decimal(call_us), tid=thread, under=under)
            full["correlation"] = event["args"]["correlation"]
        if under is not None:
            full["External id"] = under["args"]["External id"]
        return self.add(cat, name, start, end, device, stream, {**full, **(args or {})})

    def kernel(self, name: str, start: Time, end: Time, *, stream: int = COMPUTE_STREAM, **more: Any) -> dict[str, Any]:
        """A kernel of any name."""
        return self.device_event("kernel", name, start, end, stream=stream, **more)

    def gemm(self, start: Time, end: Time, **more: Any) -> dict[str, Any]:
        """``G`` of the catalogue: a matrix multiplication on the compute stream."""
        return self.kernel(GEMM, start, end, **more)

    def copy(
        self, start: Time, end: Time, kind: str = "HtoD", *, stream: int = COPY_STREAM, **more: Any
    ) -> dict[str, Any]:
        """A memory copy, by default from the host."""
        return self.device_event("gpu_memcpy", f"Memcpy {kind}", start, end, stream=stream, **more)

    def collective(
        self,
        call: str,
        start: Time,
        end: Time,
        *,
        stream: int = COMM_STREAM,
        name: str | None = None,
        metadata: dict[str, Any] | None = None,
        args: dict[str, Any] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """A NCCL kernel with all collective arguments; ``metadata`` changes them (see :func:`comm_args`)."""
        meta = comm_args(call, **{"ranks": list(range(self.world_size)), **(metadata or {})})
        return self.kernel(
            name or NCCL_KERNELS.get(call, SEND_RECV),
            start,
            end,
            stream=stream,
            args={**meta, **(args or {})},
            **more,
        )

    def all_reduce(self, start: Time, end: Time, **more: Any) -> dict[str, Any]:
        """``AR`` of the catalogue."""
        return self.collective("allreduce", start, end, **more)

    def all_gather(self, start: Time, end: Time, **more: Any) -> dict[str, Any]:
        """``AG`` of the catalogue."""
        return self.collective("_allgather_base", start, end, **more)

    def reduce_scatter(self, start: Time, end: Time, **more: Any) -> dict[str, Any]:
        """``RS`` of the catalogue."""
        return self.collective("_reduce_scatter_base", start, end, **more)

    def comms_op(
        self,
        call: str,
        start: Time,
        end: Time,
        *,
        tid: int = MAIN_THREAD,
        metadata: dict[str, Any] | None = None,
        args: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The CPU operator ``record_param_comms`` of a collective."""
        meta = comm_args(call, **{"ranks": list(range(self.world_size)), **(metadata or {})})
        return self.cpu_op("record_param_comms", start, end, tid=tid, args={**meta, **(args or {})})

    def clone(self) -> Trace:
        """An independent copy, to change one thing in."""
        return copy.deepcopy(self)

    def shift(self, ns: int) -> None:
        """Move every event by ``ns``."""
        for event in self.events:
            if "ts" in event:
                event["ts"] = micros(nanos(str(event["ts"])) + ns)

    def scale(self, factor: int) -> None:
        """Multiply every time by ``factor``."""
        for event in self.events:
            for key in ("ts", "dur"):
                if key in event:
                    event[key] = micros(nanos(str(event[key])) * factor)

    def text(self, style: Style = "spaced", root: Literal["object", "list"] = "object") -> str:
        """The JSON text; keys of the root come before ``traceEvents``."""
        return render(self.events if root == "list" else {**self.top, "traceEvents": self.events}, style) + "\n"

    def write(self, path: Path, style: Style = "spaced", root: Literal["object", "list"] = "object") -> Path:
        """Write the file, gzipped where its name ends in ``.gz``; returns ``path``."""
        data = self.text(style, root).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip_bytes(data) if path.suffix == ".gz" else data)
        return path


def distributed_info(rank: int, world_size: int, backend: str = "nccl") -> dict[str, Any]:
    """``distributedInfo`` as torch writes it, with the default group of all ranks."""
    ranks = list(range(world_size))
    group = {
        "pg_name": "0",
        "pg_desc": "default_pg",
        "backend_config": f"cuda:{backend}",
        "pg_size": world_size,
        "ranks": ranks,
    }
    info = {"backend": backend, "rank": rank, "world_size": world_size, "pg_count": 1, "pg_config": [group]}
    return info | {"nccl_version": "2.27.5"} if backend == "nccl" else info


def comm_args(
    call: str,
    *,
    elements: int = 1_000_000,
    out_elements: int | None = None,
    dtype: str = "Float",
    group: str = "0",
    description: str = "default_pg",
    ranks: list[int] | None = None,
    seq: int | None = None,
    group_size: int | None = None,
    in_split: str = "[]",
    out_split: str = "[]",
    **more: Any,
) -> dict[str, Any]:
    """The arguments of a collective as they stand on ``record_param_comms`` and on its kernel."""
    ranks = [0, 1] if ranks is None else ranks
    size = len(ranks) if group_size is None else group_size
    if out_elements is None:
        out_elements = {"_allgather_base": elements * size, "_reduce_scatter_base": elements // size}.get(
            call, elements
        )
    args: dict[str, Any] = {
        "Collective name": call,
        "In msg nelems": elements,
        "Out msg nelems": out_elements,
        "Group size": size,
        "dtype": dtype,
        "In split size": in_split,
        "Out split size": out_split,
        "Process Group Name": group,
        "Process Group Description": description,
        "Process Group Ranks": str(ranks),
    }
    if seq is not None:
        args["Seq"] = seq
    return {**args, **more}


def t0() -> Trace:
    """``T0`` of the catalogue: step 0–1000, ``G`` 0–600, ``AR`` 500–900; no runtime events."""
    trace = Trace(rank=0, world_size=2)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.all_reduce(500, 900)
    return trace
