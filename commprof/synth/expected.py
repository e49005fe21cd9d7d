"""What a diagnosis ought to say about each fault: the finding, and who is late and why."""

from __future__ import annotations

from typing import Any

from commprof.synth.plan import Plan
from commprof.synth.scenario import Fault

_STRAGGLER_CAUSES = {
    "slow-gpu": "slow-device",
    "slow-host": "host",
    "host-pause": "host",
    "gc-pause": "host",
    "loader-stall": "input",
}
_FINDINGS: dict[str, tuple[str, ...]] = {
    "slow-gpu": ("straggler",),
    "slow-host": ("straggler", "host-bound"),
    "host-pause": ("straggler", "host-bound"),
    "gc-pause": ("straggler", "host-bound"),
    "loader-stall": ("straggler", "input-bound"),
    "slow-link": ("slow-link", "low-bandwidth"),
    "flapping-link": ("network-intermittent", "slow-link"),
    "misplaced-group": ("tp-across-hosts",),
    "late-launch": ("host-bound",),
    "blocking-wait": ("blocking-wait", "device-synchronisation"),
    "tiny-buckets": ("buckets-too-small", "tiny-messages"),
    "huge-bucket": ("bucket-too-large", "ddp-tail-bucket"),
    "no-overlap": ("ddp-no-overlap",),
    "profiler-start": ("profiler-start",),
}


def straggler(fault: Fault, plan: Plan) -> dict[str, Any] | None:
    """Which rank or host a fault makes late, and why; ``None`` for faults that hit all ranks or none.

    A host is named only where it holds some of the ranks, not all; a pause that goes round names nobody.
    """
    cause = _STRAGGLER_CAUSES.get(fault.kind)
    if cause is None or plan.mesh.world == 1:
        return None
    if fault.kind == "gc-pause":
        return {"rank": None, "host": None, "cause": cause, "kind": "rotating"}
    if fault.rank is None:
        return None
    host = plan.placement.host(fault.rank)
    if fault.kind == "slow-host":
        alone = len(plan.placement.hosts()) == 1
        return None if alone else {"rank": None, "host": host, "cause": cause, "kind": "persistent"}
    return {"rank": fault.rank, "host": host, "cause": cause, "kind": "persistent"}


def findings(fault: Fault, plan: Plan) -> list[str]:
    """Ids of the findings that a fault should lead to, the best first; others are true as well."""
    ids = list(_FINDINGS[fault.kind])
    if ids[0] == "straggler" and straggler(fault, plan) is None:
        return ids[1:] or ids
    sharded = plan.scenario.strategy in ("fsdp", "hsdp", "zero3")
    if fault.kind == "no-overlap" and sharded:
        return ["fsdp-no-prefetch"]
    if fault.kind == "late-launch" and sharded:
        return [*ids, "fsdp-late-launch"]
    return ids
