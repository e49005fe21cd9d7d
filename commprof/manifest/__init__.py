"""The file format between a capture and its analysis.

A capture folder holds, for every recorded rank, one Kineto trace ``rank-00003.pt.trace.json.gz`` and one
manifest ``rank-00003.manifest.json``: strict JSON with a format name and a version. The manifest holds what a
trace alone does not tell: where the rank came from, who is in which process group, DDP's buckets, the time of
every step.

Readers ignore fields they do not know, so a new field leaves ``VERSION`` alone; a field that changes its
meaning or goes away raises it. All times are integer nanoseconds, sizes bytes.
"""

from __future__ import annotations

from commprof.manifest.files import (
    SLOW_PREFIX,
    SUFFIX,
    manifest_name,
    read_manifest,
    read_manifests,
    slow_folder,
    step_name,
    trace_name,
    write_manifest,
)
from commprof.manifest.model_facts import (
    Bucket,
    DdpModule,
    FsdpUnit,
    Layout,
    Mesh,
    Optimizer,
    Parameters,
    Pipeline,
    PipelineStage,
    Placement,
    ProcessGroup,
)
from commprof.manifest.rank_manifest import (
    FORMAT,
    VERSION,
    Manifest,
    RankSource,
)
from commprof.manifest.run_facts import (
    Clock,
    ClockSample,
    CoreWait,
    CudaGraph,
    FlightEntry,
    GraphCall,
    SlowStep,
    StepTimes,
)

__all__ = [
    "FORMAT",
    "SLOW_PREFIX",
    "SUFFIX",
    "VERSION",
    "Bucket",
    "Clock",
    "ClockSample",
    "CoreWait",
    "CudaGraph",
    "DdpModule",
    "FlightEntry",
    "FsdpUnit",
    "GraphCall",
    "Layout",
    "Manifest",
    "Mesh",
    "Optimizer",
    "Parameters",
    "Pipeline",
    "PipelineStage",
    "Placement",
    "ProcessGroup",
    "RankSource",
    "SlowStep",
    "StepTimes",
    "manifest_name",
    "read_manifest",
    "read_manifests",
    "slow_folder",
    "step_name",
    "trace_name",
    "write_manifest",
]
