"""Where in the step a rank communicates, and why its communication is exposed: all that needs its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.bucket_copies import find_bucket_copies
from commprof.analysis.buckets import find_buckets
from commprof.analysis.causes import find_causes
from commprof.analysis.contention import find_contention
from commprof.analysis.flags import flag_starts
from commprof.analysis.hiders import find_hiders
from commprof.analysis.host_delays import HostDelays, find_delays
from commprof.analysis.idle import find_idle
from commprof.analysis.modules import find_modules
from commprof.analysis.passes import NEVER, backward_pass, compute_phase, ends_of_passes
from commprof.analysis.phases import Phase, Phases, find_phases, phases_of_calls
from commprof.analysis.places import CallPlaces, PieceCauses, no_places
from commprof.analysis.purposes import purposes_of
from commprof.analysis.scene import Scene
from commprof.analysis.stage_facts import StageFacts, stage_facts
from commprof.analysis.syncs import find_syncs
from commprof.analysis.timing import timing_of
from commprof.analysis.trail import Trail, find_trail
from commprof.analysis.units import find_units
from commprof.analysis.where_model import Bucket, BucketCopies, Contention, IdleTime, Unit
from commprof.intervals import Int64Array
from commprof.manifest import DdpModule
from commprof.trace.model import NOT_LAUNCHED


@dataclass(slots=True, eq=False)
class Where:
    """Places of the calls, causes of the pieces, and the tables of one rank."""

    places: CallPlaces
    causes: PieceCauses
    buckets: list[Bucket]
    idle: list[IdleTime]
    units: list[Unit]
    contention: list[Contention]
    stage: StageFacts | None
    delays: HostDelays
    bucket_copies: list[BucketCopies]
    trail: Trail | None


def locate(scene: Scene, ddp: Sequence[DdpModule] = ()) -> Where:
    """Find the place of every call and the cause of every piece of exposed time.

    ``ddp`` is what the capture says of the buckets of the rank.
    """
    places = no_places(len(scene.calls))
    phases = find_phases(scene)
    places.phase = phases_of_calls(phases, scene)
    modules = find_modules(scene)
    places.module, places.modules = modules.of_call, modules.names
    places.purpose = purposes_of(scene, places.phase, modules)
    compute = [compute_phase(phases, scene, device) for device in scene.devices]
    backward = [backward_pass(phase, scene, device) for phase, device in zip(compute, scene.devices, strict=True)]
    places.hidden_by, places.hiders = find_hiders(scene)
    places.flag, warnings = flag_starts(scene.calls)
    scene.rank.warnings += [f"rank {scene.rank.rank}: {warning}" for warning in warnings]
    buckets = find_buckets(scene, phases, places, backward, ddp)
    syncs = find_syncs(scene)
    causes = find_causes(scene, places, timing_of(scene, compute), syncs, backward, _pass_ends(scene, phases, compute))
    return Where(
        places,
        causes,
        buckets,
        find_idle(scene, places, syncs),
        find_units(scene, places, backward),
        find_contention(scene),
        stage_facts(scene, places, compute, backward),
        find_delays(scene, syncs, causes.host),
        find_bucket_copies(scene, buckets),
        find_trail(scene, syncs),
    )


def _pass_ends(scene: Scene, phases: Phases, compute: list[Phase]) -> Int64Array:
    """For each call the end of the last compute of the backward pass in or after which it was launched."""
    calls = scene.calls
    out = np.full(len(calls), NEVER)
    instant = calls.start if scene.by_time else calls.issued
    place = np.searchsorted(phases.passes.starts, instant, side="right")
    for device, phase in zip(scene.devices, compute, strict=True):
        mine = (calls.device == device.work.device) & (instant != NOT_LAUNCHED)
        out[mine] = ends_of_passes(phases, phase, scene, device)[place[mine]]
    return out
