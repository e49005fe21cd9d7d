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
_FINDINGS = {
    "slow-gpu": "straggler",
    "slow-host": "straggler",
    "host-pause": "straggler",
    "gc-pause": "straggler",
    "slow-link": "slow-link",
    "flapping-link": "network-intermittent",
    "misplaced-group": "tp-across-hosts",
    "late-launch": "host-bound",
    "blocking-wait": "blocking-wait",
    "tiny-buckets": "buckets-too-small",
    "huge-bucket": "bucket-too-large",
    "no-overlap": "ddp-no-overlap",
    "profiler-start": "profiler-start",
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


def finding(fault: Fault, plan: Plan) -> str:
    """Id of the finding that a fault should lead to."""
    if fault.kind == "loader-stall" and straggler(fault, plan) is not None:
        return "straggler"
    if fault.kind == "loader-stall":
        return "input-bound"
    if fault.kind in ("slow-host", "host-pause") and straggler(fault, plan) is None:
        return "host-bound"
    if fault.kind == "no-overlap" and plan.scenario.strategy in ("fsdp", "hsdp", "zero3"):
        return "fsdp-no-prefetch"
    return _FINDINGS[fault.kind]
