"""From a running program to a capture folder; the only part of commprof that imports torch.

The modules in the order in which a run meets them. A test holds this list to the files.

    hook               ``Capture``: counts steps, records a few, never gets in the way
    selection          which ranks record, and where to
    window             which steps are recorded, how long each took
    slow_steps         notices a slow step
    autorun            the hook of ``commprof run``, which starts by itself
    inject             put on the path of the command's processes, starts ``autorun``
    optimizer_steps    steps by the optimizer, for a script that nobody changed
    engine             what the hook needs from a framework
    torch_engine       the same from PyTorch
    rivals             notices other profilers
    nvtx               NVTX ranges as ranges of the trace
    termination        SIGTERM inside the window

What is noted beside the trace:

    process_groups     rank and groups
    surroundings       host, cores, environment
    inventory          models, optimizers, meshes and pipelines of the process
    ddp_buckets        DDP's buckets
    fsdp_units         what FSDP gathers together
    layout             how the model lies on the ranks
    parameters         how many there are
    flight             sequence numbers from the Flight Recorder
    graph_notes        collectives of CUDA graphs
    clock_exchange     clocks of hosts against each other
    core_wait          how long the training thread had no core

What is left behind:

    recording          one stretch of recorded steps
    descriptions       group descriptions that are broken JSON
    delivery           the local file to the folder, never over another
    folder             trace and manifest, or one warning

Beside the hook:

    integrations       callbacks for trainers
    jobs               the small training jobs of ``commprof demo``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from commprof.capture.hook import Capture

__all__ = ["Capture"]


def __getattr__(name: str) -> Any:
    # ``commprof run`` imports this package in every Python process that the command starts.
    if name == "Capture":
        from commprof.capture.hook import Capture

        return Capture
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
