"""One stretch of recorded steps, and the manifest that goes with its trace."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from commprof.capture.core_wait import CoreWatch
from commprof.capture.engine import RunFacts, Whereabouts
from commprof.capture.folder import CaptureFolder
from commprof.capture.surroundings import boot_id, communication_environment, cpu_affinity, usable_cores
from commprof.capture.window import StepLog, Window
from commprof.manifest import Clock, ClockSample, CoreWait, Manifest, SlowStep, step_name
from commprof.version import __version__


@dataclass
class Recording:
    """Where it goes, which steps it is to hold, and what came of it.

    ``recorded`` are the steps recorded whole, ``cut`` the one that the end cut, ``reason`` says why it is
    partial.
    """

    folder: CaptureFolder
    window: Window
    recorded: list[int] = field(default_factory=list)
    cut: int | None = None
    reason: str | None = None
    clock: Clock = field(default_factory=Clock)
    facts: RunFacts = field(default_factory=RunFacts)
    watch: CoreWatch | None = None
    core_wait: CoreWait | None = None

    @property
    def complaint(self) -> str | None:
        """Why the trace is partial or not there; ``None`` for a whole one."""
        missing = None if self.folder.trace else "the trace was not written"
        return self.folder.lost or self.reason or missing


@dataclass
class RunState:
    """What is known of the process and its loop, whatever is recorded of it."""

    pid: int
    log: StepLog
    selection: str
    step_source: str
    where: Whereabouts | None = None
    samples: list[ClockSample] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def manifest_of(run: RunState, recording: Recording, slow_steps: Sequence[SlowStep] = ()) -> Manifest:
    """The manifest of ``recording`` as things stand now."""
    where = run.where or Whereabouts(rank=0, source="default", world_size=1)
    facts, trace = recording.facts, recording.folder.trace
    cut = recording.cut if trace else None
    return Manifest(
        rank=where.rank,
        rank_source=where.source,
        world_size=where.world_size,
        local_rank=where.local_rank,
        host=socket.gethostname(),
        boot_id=boot_id(),
        pid=run.pid,
        commprof_version=__version__,
        trace=trace,
        partial=recording.complaint is not None,
        reason=recording.complaint,
        recorded_steps=tuple(map(step_name, recording.recorded)) if trace else (),
        cut_step=None if cut is None else step_name(cut),
        clock=recording.clock,
        steps=run.log.times(),
        export_ns=recording.folder.export_ns,
        torch_version=facts.torch_version,
        cuda_version=facts.cuda_version,
        nccl_version=facts.nccl_version,
        backend=where.backend,
        device=facts.device,
        pci_bus_id=facts.pci_bus_id,
        groups=where.groups,
        ddp=facts.ddp,
        parameters=facts.parameters,
        fsdp=facts.fsdp,
        meshes=facts.meshes,
        placements=facts.placements,
        pipeline=facts.pipeline,
        optimizers=facts.optimizers,
        environment=communication_environment(),
        cores=usable_cores(),
        cpu_affinity=cpu_affinity(),
        core_wait=recording.core_wait,
        flight=facts.flight,
        clock_samples=tuple(run.samples),
        cuda_graphs=facts.cuda_graphs,
        slow_steps=tuple(slow_steps),
        selection=run.selection,
        step_source=run.step_source,
        notes=(*facts.notes, *run.notes),
    )
