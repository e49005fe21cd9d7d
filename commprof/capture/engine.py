"""What the hook needs from the framework that it records: an interface that tests can fake."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from commprof.manifest import (
    ClockSample,
    CudaGraph,
    DdpModule,
    FlightEntry,
    FsdpUnit,
    Mesh,
    Optimizer,
    Parameters,
    Pipeline,
    Placement,
    ProcessGroup,
    RankSource,
)


@dataclass(frozen=True)
class Whereabouts:
    """Which process of the job this is, and how that is known."""

    rank: int
    source: RankSource
    world_size: int
    local_rank: int | None = None
    backend: str | None = None
    groups: tuple[ProcessGroup, ...] = ()
    timeout_ns: int | None = None  # of the default process group


@dataclass(frozen=True)
class RunFacts:
    """What the process knows about its run that the trace does not say; see ``commprof.manifest``."""

    torch_version: str | None = None
    cuda_version: str | None = None
    nccl_version: str | None = None
    device: str | None = None
    pci_bus_id: str | None = None
    ddp: tuple[DdpModule, ...] = ()
    parameters: Parameters | None = None
    fsdp: tuple[FsdpUnit, ...] = ()
    meshes: tuple[Mesh, ...] = ()
    placements: tuple[Placement, ...] = ()
    pipeline: Pipeline | None = None
    optimizers: tuple[Optimizer, ...] = ()
    flight: tuple[FlightEntry, ...] = ()
    cuda_graphs: tuple[CudaGraph, ...] = ()
    notes: tuple[str, ...] = ()


class Engine(Protocol):
    """Profiler and facts of one process. Any method may raise; the hook turns that into one warning."""

    def unix_ns(self) -> int:
        """Unix time in nanoseconds, on the clock of the trace."""

    def tick_ns(self) -> int:
        """A monotonic clock in nanoseconds."""

    def whereabouts(self) -> Whereabouts: ...

    def facts(self, model: Any, start_ns: int, stop_ns: int) -> RunFacts:
        """Facts of the run; Flight Recorder entries only of ``[start_ns, stop_ns)``.

        What cannot be read is left out and named in ``notes``.
        """

    def clock_samples(self, moment: Literal["before", "after"]) -> tuple[ClockSample, ...]:
        """This rank's clock against the first rank's; bounded in time, and no collective."""

    def occupied(self) -> bool:
        """Whether somebody else's profiler records or warms up."""

    def prepare(self, on_rival: Callable[[], None]) -> None:
        """Make the profiler ready; until ``stop``, ``on_rival`` is called before another one begins."""

    def start(self) -> None:
        """Begin to record."""

    def open_step(self, name: str) -> None:
        """Open the range ``name`` in the trace."""

    def close_step(self) -> None:
        """Close the range opened last; nothing if none is open."""

    def stop(self, *, wait_for_device: bool) -> None:
        """End recording, or undo ``prepare``; the results stay for ``export``. Without either: nothing."""

    def export(self, path: Path) -> None:
        """Write what was recorded as plain Kineto JSON; afterwards ``prepare`` may begin anew."""

    def close(self) -> None:
        """Put back what the engine changed and end what it started; nothing follows."""
