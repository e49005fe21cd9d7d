"""Ranks that stall on their CPU in every step, where others wait for it in the first steps alone.

A CPU that launches faster than its device computes gets ahead, and later stalls then leave the device with work. Where
the recording begins it is not ahead yet. The waiting shows in single steps, and may look as if a rank had begun late;
but the trace tells what its CPU did meanwhile: fetching or pausing for longer than the CPUs of equal ranks do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.critical_path import CriticalPath, beyond_role
from commprof.diagnosis.findings.case import Case, Claim, all_steps
from commprof.diagnosis.findings.straggler import LATE_BY
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath
from commprof.intervals import Int64Array

_ALL = 0.5
"""Of what a CPU does on the path, stalls have to explain this part at least to be what it is there for."""


def held_at_start(ground: Ground) -> Iterator[Case]:
    """The rank that stalls the longest on the critical path, where nobody is named as late for his CPU or input."""
    path, analysis = ground.analysis.critical_path, ground.analysis
    if path is None or any(row.cause in ("host", "input") for row in (*analysis.stragglers, *analysis.harmless)):
        return
    found = max((_stall(path, index) for index in range(len(path.role))), key=lambda one: one[0])
    total, index, cause = found
    if total < ground.limits.finding * path.length or ground.exposed.host.any() or ground.idle.ns.any():
        return
    rank = analysis.ranks[index].rank
    why, advice = LATE_BY[cause]
    flagged = ground.flag_is("profiler-start")
    rows = np.where(flagged, ground.exposed.wait + ground.exposed.rest, 0)
    share = min(1.0, total / max(int(rows.sum()), 1))
    on_path = np.zeros(len(path.role), np.int64)
    on_path[index] = total
    parts: dict[str, Int64Array] = {}
    for kind in ("inputs", "pauses", "cpu"):
        parts[kind] = np.minimum(getattr(path, kind), on_path)
        on_path = on_path - parts[kind]
    yield Case(
        "straggler",
        f"Rank {rank} makes the others wait: {why}; later in the recording its device has enough to do meanwhile",
        Claim(
            wait=np.floor(np.where(flagged, ground.exposed.wait, 0) * share).astype(np.int64),
            rest=np.floor(np.where(flagged, ground.exposed.rest, 0) * share).astype(np.int64),
        ),
        advice,
        (Evidence("stalls on the critical path beyond those of equal ranks, in all", total, "ns"),),
        cause=cause, ranks=(rank,), steps=all_steps(ground), confidence="bound", by_event=True, host_back=True,
        path=OnPath(parts, None, 1), alone=np.full(len(ground.steps), total // len(ground.steps), np.int64),
    )  # fmt: skip


def _stall(path: CriticalPath, index: int) -> tuple[int, int, str]:
    """What one rank stalls on the path beyond equal ranks, nanoseconds in all, its index, and by what."""
    late = np.arange(len(path.role)) == index
    if not np.isin(path.role[late], path.role[~late]).all():
        return 0, index, "host"
    on_cpu = int(path.inputs[index] + path.pauses[index] + path.cpu[index])
    whole = np.full(len(path.role), on_cpu, np.int64)
    fetched, paused = (int(beyond_role(whole, ns, path.role, late)[index]) for ns in (path.fetched, path.paused))
    stalls = min(fetched + paused, on_cpu)
    if stalls < _ALL * (on_cpu + int(path.launching[index])):
        return 0, index, "host"
    return stalls, index, "input" if fetched > paused else "host"
