"""The hook's engine for PyTorch: the Kineto profiler, driven step by step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import torch.autograd.profiler as autograd_profiler
from torch.profiler import ProfilerActivity, record_function
from torch.profiler.profiler import _KinetoProfile

from commprof.capture.clock_exchange import ClockExchange, open_exchange
from commprof.capture.ddp_buckets import describe_ddp
from commprof.capture.descriptions import mend_descriptions, need_mending
from commprof.capture.engine import RunFacts, Whereabouts
from commprof.capture.flight import flight_entries
from commprof.capture.fsdp_units import describe_fsdp
from commprof.capture.graph_notes import GraphNotes
from commprof.capture.inventory import Inventory, Sighting, look_around, take_inventory
from commprof.capture.layout import describe_meshes, describe_optimizers, describe_pipeline, describe_placements
from commprof.capture.nvtx import NvtxRanges
from commprof.capture.parameters import count_parameters
from commprof.capture.process_groups import whereabouts
from commprof.capture.rivals import RivalWatch, another_records, another_warms_up
from commprof.manifest import ClockSample

T = TypeVar("T")


class TorchEngine:
    """One profiler session at most, of this thread; see ``commprof.capture.engine.Engine``.

    The low-level profiler is used, without its schedule: nothing runs outside the window, and the steps
    carry the loop's own numbers. Only its export is used, never its Python events.
    """

    def __init__(self, *, with_stack: bool = False, nvtx: bool = True) -> None:
        self._with_stack = with_stack
        self._nvtx = NvtxRanges() if nvtx else None
        self._graphs = GraphNotes()
        # These two change functions of PyTorch; a release in which they cannot costs their facts, no more.
        with contextlib.suppress(Exception):
            self._graphs.begin()
        self._clocks: ClockExchange | None = None
        self._seen: Sighting | None = None
        self._profiler: _KinetoProfile | None = None
        self._recording = False
        self._finished = False
        self._step: Any = None
        self._info: dict[str, Any] | None = None
        self._watch = RivalWatch()

    unix_ns = staticmethod(time.time_ns)
    tick_ns = staticmethod(time.perf_counter_ns)

    def whereabouts(self) -> Whereabouts:
        return whereabouts()

    def facts(self, model: Any, start_ns: int, stop_ns: int) -> RunFacts:
        notes: list[str] = []
        cuda = torch.cuda.is_available()
        found = _attempt(lambda: take_inventory(model, self._seen), Inventory(), "model", notes)
        return RunFacts(
            torch_version=str(torch.__version__),
            cuda_version=torch.version.cuda,
            nccl_version=_attempt(_nccl_version, None, "NCCL version", notes) if cuda else None,
            device=_attempt(torch.cuda.get_device_name, None, "device name", notes) if cuda else None,
            pci_bus_id=_attempt(_pci_bus_id, None, "PCI bus id", notes) if cuda else None,
            ddp=_attempt(lambda: describe_ddp(found.modules), (), "DDP buckets", notes),
            parameters=_attempt(lambda: count_parameters(found.modules), None, "parameters", notes),
            fsdp=_attempt(lambda: describe_fsdp(found.modules), (), "FSDP units", notes),
            meshes=_attempt(lambda: describe_meshes(found.meshes), (), "device meshes", notes),
            placements=_attempt(lambda: describe_placements(found.modules), (), "placements", notes),
            pipeline=_attempt(lambda: describe_pipeline(found.stages, found.schedules), None, "pipeline", notes),
            optimizers=_attempt(lambda: describe_optimizers(found.optimizers), (), "optimizers", notes),
            flight=_attempt(lambda: flight_entries(start_ns, stop_ns, notes), (), "Flight Recorder", notes),
            cuda_graphs=tuple(self._graphs.graphs),
            notes=tuple(notes),
        )

    def clock_samples(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        if self._clocks is None and moment == "before":
            self._clocks = open_exchange(whereabouts(), self.unix_ns)
        return () if self._clocks is None else self._clocks.sample(moment)

    def close(self) -> None:
        self._graphs.end()
        if self._clocks is not None:
            self._clocks.close()

    def occupied(self) -> bool:
        self._seen = look_around()
        return another_records() or another_warms_up(self._seen.living("profilers"))

    def prepare(self, on_rival: Callable[[], None]) -> None:
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profiler = _KinetoProfile(
            activities=activities,
            record_shapes=True,
            with_stack=self._with_stack,
            experimental_config=all_threads(),
        )
        self._profiler.prepare_trace()
        self._watch.begin(getattr(self._profiler, "profiler", None), on_rival)

    def start(self) -> None:
        if self._profiler is None:
            raise RuntimeError("the profiler was not prepared")
        if another_records():
            self._profiler = None
            raise RuntimeError("another profiler records")
        self._profiler.start_trace()
        self._recording = True
        if self._nvtx is not None:
            with contextlib.suppress(Exception):
                self._nvtx.begin()
        self._info = _distributed_info(self._profiler)

    def open_step(self, name: str) -> None:
        self._step = record_function(name)
        self._step.__enter__()

    def close_step(self) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(None, None, None)

    def stop(self, *, wait_for_device: bool) -> None:
        if self._nvtx is not None:
            self._nvtx.end()
        self.close_step()
        self._watch.end()
        profiler = self._profiler
        if profiler is None or self._finished:
            return
        if not self._recording:
            self._cancel(profiler)
            return
        self._recording = False
        # To stop or save a session that somebody else ended crashes the process.
        if not autograd_profiler._is_profiler_enabled:
            self._profiler = None
            raise RuntimeError("the profiler was stopped by somebody else")
        self._end_session(profiler, wait_for_device=wait_for_device)
        self._finished = True

    def export(self, path: Path) -> None:
        profiler, finished = self._profiler, self._finished
        self._profiler, self._finished = None, False
        if profiler is None or not finished:
            raise RuntimeError("nothing was recorded")
        profiler.export_chrome_trace(str(path))
        if self._info is not None and need_mending(self._info):
            mend_descriptions(path, self._info)

    def _cancel(self, profiler: _KinetoProfile) -> None:
        """Undo ``prepare``: a session can be left only by way of a start, which a rival must not suffer."""
        self._profiler = None
        if not another_records():
            profiler.start_trace()
            self._end_session(profiler, wait_for_device=False)

    @staticmethod
    def _end_session(profiler: _KinetoProfile, *, wait_for_device: bool) -> None:
        inner = getattr(profiler, "profiler", None)
        if not wait_for_device and inner is not None:
            # The profiler synchronises the device that it names here before it stops.
            inner.use_device = None
        profiler.stop_trace()


def all_threads() -> Any:
    """Record every thread, where this release can: else collectives of other threads are lost."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return _ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        return None


def _distributed_info(profiler: Any) -> dict[str, Any] | None:
    """What the profiler writes as ``distributedInfo``; ``None`` without a process group."""
    try:
        info: dict[str, Any] | None = profiler._get_distributed_info()
    except Exception:
        return None
    return info


def _pci_bus_id() -> str | None:
    """Of the current device, as the system tools write it: ``0000:1b:00.0``."""
    it: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    if not hasattr(it, "pci_bus_id"):
        return None
    return f"{it.pci_domain_id:04x}:{it.pci_bus_id:02x}:{it.pci_device_id:02x}.0"


def _nccl_version() -> str:
    nccl: Any = torch.cuda.nccl
    version = nccl.version()
    return ".".join(str(part) for part in version)


def _attempt(read: Callable[[], T], default: T, what: str, notes: list[str]) -> T:
    """These are private interfaces of PyTorch: a release without one costs that fact and a note, no more."""
    try:
        return read()
    except Exception as error:
        notes.append(f"{what} not read: {type(error).__name__}: {' '.join(str(error).split())}")
        return default
