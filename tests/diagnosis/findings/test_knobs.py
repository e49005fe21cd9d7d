"""Advice names only knobs that the user of a strategy has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from commprof.analysis.purposes import GRADIENTS, PARAMETERS
from commprof.diagnosis.findings.case import Case, Claim
from commprof.diagnosis.findings.knobs import advised_for, strategy_kind
from commprof.diagnosis.model import Evidence
from commprof.trace.operations import OPERATIONS

DDP_KNOBS = ("bucket_cap_mb", "DistributedDataParallel", "bf16_compress_hook", "delay_all_reduce")
REDUCTIONS = ("ddp-tail-bucket", "bucket-too-large", "buckets-too-small", "ddp-no-overlap", "reduction-alternates")


def analysis(name: str | None, gathered_by: str = "all_gather") -> Any:
    """One rank that reduces gradients and gives updated parameters to the others."""
    calls = SimpleNamespace(operation=np.array([OPERATIONS.index("all_reduce"), OPERATIONS.index(gathered_by)]))
    rank = SimpleNamespace(calls=calls, places=SimpleNamespace(purpose=np.array([GRADIENTS, PARAMETERS])))
    return SimpleNamespace(strategy=name and SimpleNamespace(name=name), ranks=[rank])


def of_ddp(identity: str, cause: str | None = None) -> Case:
    """A case as a rule makes it, in DDP's words."""
    return Case(
        identity, "The last gradient bucket is late", Claim(), ("lower DistributedDataParallel(bucket_cap_mb)",),
        (Evidence("exposed", 1, "ns"), Evidence("predicted gain of bucket_cap_mb=12", 1, "ns")), cause=cause,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("fsdp", "sharded"),
        ("hsdp", "hybrid"),
        ("tp+hsdp", "hybrid"),
        ("zero3", "sharded"),
        ("tp+fsdp", "sharded"),
        ("zero1", "partitioned"),
        ("tp+pp+zero2", "partitioned"),
        ("ddp", None),
        ("tp+ddp", "model-parallel"),
        ("ep+ddp", "model-parallel"),
        ("none", None),
        (None, None),
    ],
)
def test_whose_knobs_a_strategy_has(name: str | None, kind: str | None) -> None:
    assert strategy_kind(analysis(name)) == kind


def test_the_optimizer_of_torch_works_beside_ddp() -> None:
    """ZeroRedundancyOptimizer broadcasts the parameters that it updated; the gradients are DDP's."""
    assert strategy_kind(analysis("zero1", "broadcast")) is None


@pytest.mark.parametrize("kind", ["sharded", "partitioned"])
@pytest.mark.parametrize("identity", [*REDUCTIONS, "repeated-reduction"])
def test_nobody_without_ddp_is_told_of_its_knobs(identity: str, kind: str) -> None:
    told = advised_for(of_ddp(identity), kind)

    assert not any(knob in line for knob in DDP_KNOBS for line in told.advice)
    assert [entry.what for entry in told.evidence] == ["exposed"]
    assert ("bucket" in told.title) == (kind == "partitioned")


@pytest.mark.parametrize(
    ("kind", "identity", "knob"),
    [
        ("partitioned", "ddp-tail-bucket", "reduce_bucket_size"),
        ("partitioned", "buckets-too-small", "allgather_bucket_size"),
        ("partitioned", "ddp-no-overlap", "overlap_comm=True"),
        ("partitioned", "ddp-no-overlap", "--overlap-grad-reduce"),
        ("partitioned", "bucket-copies", "contiguous_gradients"),
        # DeepSpeed refuses no_sync() in stage 2, which keeps no whole gradients to add to.
        ("partitioned", "repeated-reduction", "stage 1"),
        ("sharded", "repeated-reduction", "set_requires_gradient_sync(False)"),
        ("sharded", "ddp-no-overlap", "fully_shard"),
        ("model-parallel", "ddp-tail-bucket", "--ddp-bucket-size"),
    ],
)
def test_the_knob_of_the_framework_is_named(kind: str, identity: str, knob: str) -> None:
    assert any(knob in line for line in advised_for(of_ddp(identity), kind).advice)


def test_stage_2_is_not_told_to_use_no_sync() -> None:
    told = advised_for(of_ddp("repeated-reduction"), "partitioned")

    assert not any("no_sync" in line for line in told.advice)


def test_beside_model_parallelism_the_advice_of_ddp_stays() -> None:
    told = advised_for(of_ddp("ddp-tail-bucket"), "model-parallel")

    assert told.advice[0] == "lower DistributedDataParallel(bucket_cap_mb)"
    assert len(told.advice) == 2


@pytest.mark.parametrize("kind", ["sharded", "partitioned", "model-parallel", None])
def test_other_findings_keep_their_advice(kind: str | None) -> None:
    case = Case("host-bound", "The CPU launches too late", Claim(), ("Launch less.",))

    assert advised_for(case, kind).advice == ("Launch less.",)
    assert advised_for(case, kind).title == case.title


@pytest.mark.parametrize("kind", ["sharded", "partitioned"])
def test_without_a_cause_there_is_no_knob(kind: str) -> None:
    case = of_ddp("ddp-tail-bucket", "unknown")

    assert advised_for(case, kind) is case


@pytest.mark.parametrize(
    ("of_ddp", "of_units"),
    [
        (
            "The last gradient bucket (bucket 7) is reduced after the backward pass has ended",
            "The last gradient reduction runs after the backward pass has ended",
        ),
        (
            "The last 3 gradient buckets are reduced after the backward pass has ended",
            "The last 3 gradient reductions run after the backward pass has ended",
        ),
        (
            "Gradient buckets are too small: 40 reductions where 2 would do",
            "Gradient reductions are too small: 40 reductions where 2 would do",
        ),
    ],
)
def test_a_title_speaks_of_reductions_where_there_are_no_buckets(of_ddp: str, of_units: str) -> None:
    case = Case("ddp-tail-bucket", of_ddp, Claim(), ())

    assert advised_for(case, "sharded").title == of_units
    assert advised_for(case, "partitioned").title == of_ddp


@pytest.mark.parametrize("identity", ["ddp-tail-bucket", "fsdp-longer-than-compute", "repeated-reduction"])
def test_who_has_hsdp_is_not_told_to_use_it_but_what_the_replicas_cost(identity: str) -> None:
    case = Case(identity, "A title", Claim(), ("shard inside a host and replicate over hosts (HSDP)",), ())

    told = " ".join(advised_for(case, strategy_kind(analysis("hsdp"))).advice)

    assert "HSDP" not in told
    assert "replicate over hosts" not in told
    assert "set_requires_all_reduce(False)" in told or "shard group" in told


@pytest.mark.parametrize("name", ["fsdp", "hsdp", "zero2"])
def test_where_several_reductions_are_left_the_size_of_the_last_one_is_not_the_first_advice(name: str) -> None:
    kind = strategy_kind(analysis(name))
    one, several = (
        advised_for(Case("ddp-tail-bucket", title, Claim(), ("lower bucket_cap_mb",), ()), kind).advice
        for title in (
            "The last gradient bucket (bucket 7) is reduced after the backward pass has ended",
            "The last 9 gradient buckets are reduced after the backward pass has ended",
        )
    )

    assert one[0].startswith("Make the ")
    assert several[0].startswith("Send fewer bytes")
    assert sorted(one) == sorted(several)
