"""Strategy, roles and bytes of public traces of real runs; numbers from the tables beside the traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run, analyze

pytestmark = pytest.mark.traces

Reports = Callable[[str], Run]


@pytest.fixture(scope="module")
def reports(public_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The run of ``commprof analyze`` on each folder of traces, made once."""
    out = tmp_path_factory.mktemp("public")
    return functools.cache(lambda name: analyze(public_traces / name, out / f"{name}.json", "--no-calls"))


def strategy(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.report["strategy"]
    return found


def test_resnet_is_ddp_with_five_buckets_and_two_buffer_broadcasts(reports: Reports) -> None:
    found = strategy(reports("ddp-resnet50-a100"))

    # Elements of the five buckets; two ranks, so each byte counts once. Buffers: 212480 and 424 B.
    gradients = 4 * (2_049_000 + 7_875_584 + 6_563_840 + 6_637_568 + 2_431_040)
    assert found["name"] == "ddp"
    assert found["expected_bytes_per_step"] == gradients
    assert found["measured_bytes_per_step"] == gradients + 212_480 + 424
    (part,) = found["parts"]
    assert (part["kind"], part["degree"]) == ("dp", 2)
    assert part["differences"] == [{"what": "buffer broadcasts", "bytes": 212_904}]
    evidence = " ".join(found["evidence"])
    assert "5 all-reduces per step" in evidence
    assert "2 broadcasts per step" in evidence


def test_one_all_reduce_per_parameter_is_said_to_be_that(reports: Reports) -> None:
    run = reports("tiny-allreduce-v100")

    found = strategy(run)

    assert found["name"] == "ddp"
    assert any("404 all-reduces per step" in line and "one per parameter" in line for line in found["evidence"])
    # Traces of 2022 tell no sizes.
    assert (found["measured_bytes_per_step"], found["expected_bytes_per_step"]) == (None, None)
    assert {row["role"] for row in run.report["groups"]} == {"dp"}


def test_recommendation_model_exchanges_embeddings_beside_ddp(reports: Reports) -> None:
    run = reports("dlrm-8rank-v100")

    found = strategy(run)

    assert found["name"] == "ddp"
    assert any("all-to-alls" in line and "model-parallel embeddings" in line for line in found["evidence"])
    assert {row["op"]: row["role"] for row in run.report["groups"]} == {"all_to_all": "embedding", "all_reduce": "dp"}
    # The three all-reduces of the table beside the trace: 2 x 7/8 of their bytes.
    dp = next(part for part in found["parts"] if part["kind"] == "dp")
    assert dp["measured_bytes"] == round(1.75 * (1_576_964 + 448 + 907_840))


def test_one_rank_alone_has_no_communication(reports: Reports) -> None:
    run = reports("world1-v100")

    assert run.code == 0
    assert strategy(run)["name"] == "none"
    assert strategy(run)["parts"] == []
    assert run.report["groups"] == []


def test_rccl_hides_nothing_that_metadata_tells(reports: Reports) -> None:
    found = strategy(reports("ddp-resnet-mi300x"))

    # Two buckets in bfloat16 over 8 ranks and two broadcasts of buffers.
    assert found["name"] == "ddp"
    assert found["expected_bytes_per_step"] == round(1.75 * (5_746_640 + 17_632_384))
    assert found["measured_bytes_per_step"] == found["expected_bytes_per_step"] + 19_200 + 160
