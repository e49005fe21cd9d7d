"""Advice names only knobs that the user of a strategy has."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from commprof.diagnosis.findings.case import Case, Claim
from commprof.diagnosis.findings.knobs import advised_for_shards, shards

DDP_KNOBS = ("bucket_cap_mb", "DistributedDataParallel", "bf16_compress_hook", "no_sync")


@pytest.mark.parametrize(
    ("name", "sharded"),
    [("fsdp", True), ("hsdp", True), ("zero3", True), ("tp+fsdp", True), ("ddp", False), ("tp+ddp", False)],
)
def test_who_shards_parameters(name: str, sharded: bool) -> None:
    assert shards(SimpleNamespace(strategy=SimpleNamespace(name=name))) is sharded  # type: ignore[arg-type]


@pytest.mark.parametrize("identity", ["ddp-tail-bucket", "bucket-too-large", "buckets-too-small"])
def test_sharded_parameters_have_no_buckets_to_size(identity: str) -> None:
    case = Case(
        identity, "The last gradient bucket is late", Claim(), ("lower DistributedDataParallel(bucket_cap_mb)",)
    )

    told = advised_for_shards(case)

    assert not any(knob in line for knob in DDP_KNOBS for line in told.advice)
    assert "bucket" not in told.title


def test_other_findings_keep_their_advice() -> None:
    case = Case("host-bound", "The CPU launches too late", Claim(), ("Launch less.",))

    assert advised_for_shards(case) is case
