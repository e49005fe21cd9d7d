"""The manifest of one rank."""

from __future__ import annotations

import statistics
from typing import Literal

import msgspec

from commprof.manifest.model_facts import (
    DdpModule,
    FsdpUnit,
    Mesh,
    Optimizer,
    Parameters,
    Pipeline,
    Placement,
    ProcessGroup,
)
from commprof.manifest.run_facts import Clock, ClockSample, CoreWait, CudaGraph, FlightEntry, SlowStep, StepTimes

FORMAT = "commprof.capture"
VERSION = 1

RankSource = Literal["process group", "environment RANK", "default"]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank of a capture says about itself.

    ``trace`` is the file name of its trace in the same folder, null where none was written; then
    ``partial`` is set and ``reason`` says why. ``recorded_steps`` are the steps recorded whole, as they
    are named in the trace; ``cut_step`` is the one that the end of the recording cut, if any.
    What is known of the model is null or empty where there is no such thing, or where it was not found.
    ``environment`` holds the variables that change communication, ``cores`` the number of cores that the
    process may use, ``cpu_affinity`` their numbers, ``core_wait`` how long its
    training thread had none while it was recorded. Two ranks with one ``boot_id`` run on one kernel and
    share its clock, whatever their host names. ``selection`` is the option ``ranks``, ``step_source`` what
    marked the steps.
    """

    rank: int
    rank_source: RankSource
    world_size: int
    host: str
    boot_id: str | None = None
    format: str = FORMAT
    version: int = VERSION
    commprof_version: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    trace: str | None = None
    partial: bool = False
    reason: str | None = None
    recorded_steps: tuple[str, ...] = ()
    cut_step: str | None = None
    clock: Clock = Clock()
    steps: StepTimes = StepTimes()
    export_ns: int | None = None
    torch_version: str | None = None
    cuda_version: str | None = None
    nccl_version: str | None = None
    backend: str | None = None
    device: str | None = None
    pci_bus_id: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    ddp: tuple[DdpModule, ...] = ()
    parameters: Parameters | None = None
    fsdp: tuple[FsdpUnit, ...] = ()
    meshes: tuple[Mesh, ...] = ()
    placements: tuple[Placement, ...] = ()
    pipeline: Pipeline | None = None
    optimizers: tuple[Optimizer, ...] = ()
    environment: dict[str, str] = {}
    cores: int | None = None
    cpu_affinity: str | None = None
    core_wait: CoreWait | None = None
    flight: tuple[FlightEntry, ...] = ()
    clock_samples: tuple[ClockSample, ...] = ()
    cuda_graphs: tuple[CudaGraph, ...] = ()
    slow_steps: tuple[SlowStep, ...] = ()
    selection: str = "all"
    step_source: str = "step()"
    notes: tuple[str, ...] = ()

    @property
    def recorded_indices(self) -> tuple[int, ...]:
        """Loop indices of the recorded steps: ``ProfilerStep#5`` is 5."""
        return tuple(int(name.rpartition("#")[2]) for name in self.recorded_steps)

    @property
    def profiled_step_ns(self) -> int | None:
        """Median length of the recorded steps by the hook's clock; null without one."""
        return _median([d for i, d in self._durations() if i in set(self.recorded_indices)])

    @property
    def unprofiled_step_ns(self) -> int | None:
        """Median length of the steps outside the window; null without one.

        The first two steps are left out: memory, caches and DDP's buckets settle in them.
        """
        recorded = set(self.recorded_indices)
        cut = {int(self.cut_step.rpartition("#")[2])} if self.cut_step else set()
        return _median([d for i, d in self._durations() if i >= 2 and i not in recorded | cut])

    def _durations(self) -> list[tuple[int, int]]:
        return [(self.steps.first + k, d) for k, d in enumerate(self.steps.duration_ns)]


def _median(values: list[int]) -> int | None:
    return round(statistics.median(values)) if values else None
