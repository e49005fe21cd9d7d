"""The report as types: the one place that its JSON Schema is made from.

A key that the report writes and that is not here, or the other way round, fails a test.
"""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from commprof.report.contract.calls import (
    Bucket,
    BucketAdvice,
    Collective,
    Contention,
    Exposure,
    Group,
    Idle,
    Imbalance,
    Matching,
    Pipeline,
    TensorBlock,
    Unit,
    Waits,
)
from commprof.report.contract.judgement import (
    Accounting,
    Bounds,
    Check,
    Finding,
    Harmless,
    Straggler,
    Strategy,
    Verdict,
    WaitChain,
    WhatIf,
)
from commprof.report.contract.run import Coverage, Input, Note, Overall, PerStep, Rank


class Report(TypedDict):
    """What ``commprof analyze --json`` writes. Times are integer nanoseconds, sizes bytes; null is "not measurable"."""

    schema: str
    commprof_version: str
    input: Input
    ranks: list[Rank]
    overall: Overall | None
    per_step: list[PerStep]
    collectives: list[Collective] | None
    groups: list[Group]
    buckets: list[Bucket]
    bucket_advice: list[BucketAdvice]
    matching: Matching | None
    waits: list[Waits]
    stragglers: list[Straggler]
    late_but_harmless: list[Harmless]
    wait_chain: WaitChain | None
    strategy: Strategy | None
    exposure: list[Exposure]
    idle: list[Idle]
    imbalance: list[Imbalance]
    pipeline: Pipeline | None
    units: list[Unit]
    contention: list[Contention]
    tensor_parallel: list[TensorBlock]
    bounds: Bounds | None
    whatif: list[WhatIf]
    checks: list[Check]
    findings: list[Finding]
    accounting: Accounting | None
    verdict: Verdict
    notes: list[Note]
    coverage: Coverage


def json_schema(name: str) -> dict[str, Any]:
    """JSON Schema (2020-12) of the report; ``name`` is what its key ``schema`` says. Unknown keys are allowed."""
    found = msgspec.json.schema(Report)
    report = found["$defs"]["Report"]
    report["properties"]["schema"] = {"const": name}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':')}",
        "title": f"commprof report, {name}",
        **found,
    }
