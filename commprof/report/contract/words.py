"""Kinds of values in the report: units are in the names of the keys, the vocabularies stand here."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from commprof.analysis.lateness import REASONS
from commprof.analysis.places import CAUSES, FLAGS, PHASES
from commprof.analysis.wait_chain import WAITING
from commprof.diagnosis.catalogue import FINDING_IDS
from commprof.diagnosis.model import SEVERITIES
from commprof.report.causes import IDLE, LATE, LATE_KINDS, ROLES
from commprof.report.note_words import NOTES
from commprof.trace.model import SOURCES
from commprof.trace.operations import OPERATIONS

BOTTLENECKS = (
    "communication", "straggler", "pipeline", "imbalance", "host", "input", "compute", "copy", "balanced", "unknown",
)  # fmt: skip


def _one_of(*words: str) -> Meta:
    return Meta(extra_json_schema={"enum": list(words)})


Ns = Annotated[int, Meta(description="nanoseconds")]
Length = Annotated[int, Meta(ge=0, description="nanoseconds")]
Bytes = Annotated[int, Meta(ge=0, description="bytes")]
Count = Annotated[int, Meta(ge=0)]
Gbps = Annotated[float, Meta(ge=0, description="1e9 bytes per second")]
Share = Annotated[float, Meta(ge=0, le=1)]

Operation = Annotated[str, _one_of(*OPERATIONS)]
Source = Annotated[str, _one_of(*SOURCES)]
RankSource = Annotated[str, _one_of("distributedInfo", "manifest", "filename", "default")]
Windows = Annotated[str, _one_of("launch", "annotation", "none")]
Phase = Annotated[str, _one_of(*PHASES)]
Flag = Annotated[str, _one_of(*FLAGS)]
Cause = Annotated[str, _one_of(*CAUSES)]
IdleCause = Annotated[str, _one_of(*IDLE)]
Members = Annotated[str, _one_of("known", "partly", "unknown")]
Role = Annotated[str, Meta(description=f"{', '.join(ROLES)}, unknown, or several joined")]
LayoutKind = Annotated[str, _one_of("first-iteration", "rebuilt", "static", "unknown")]
LastBy = Annotated[str, _one_of("clock", "duration")]
LateKind = Annotated[str, _one_of(*LATE_KINDS)]
LateCause = Annotated[str, _one_of(*LATE)]
LateReason = Annotated[str, _one_of(*REASONS, WAITING)]
By = Annotated[str, _one_of("op", "group", "bucket", "module", "phase", "stream", "stage", "cause")]
Direction = Annotated[str, _one_of("forward", "backward")]
FindingId = Annotated[str, _one_of(*FINDING_IDS)]
Severity = Annotated[str, _one_of(*SEVERITIES)]
Confidence = Annotated[str, _one_of("measured", "bound", "estimate")]
NoteCode = Annotated[str, Meta(description="\n".join(f"{code}: {word.meaning}" for code, word in NOTES.items()))]
Bottleneck = Annotated[str, _one_of(*BOTTLENECKS)]
