"""What descriptions of groups say: Megatron's capitals, names of mesh dimensions, products, and nothing."""

from __future__ import annotations

import pytest

from commprof.analysis.descriptions import described_role


@pytest.mark.parametrize(
    ("description", "role", "product"),
    [
        ("mesh_dp", "dp", None),
        ("mesh_tp", "tp", None),
        ("mesh_dp_replicate", "replicate", None),
        ("mesh_dp_shard", "shard", None),
        ("mesh_rep", "replicate", None),
        ("mesh_dp_shard_cp", "shard", "dp_shard x cp"),
        ("mesh_dp_cp", "dp", "dp x cp"),
        ("mesh_dp_replicate_dp_shard", "dp", "dp_replicate x dp_shard"),
        ("mesh_pp_tp", "control", "pp x tp"),
        ("DATA_PARALLEL_GROUP", "dp", None),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp", "dp x cp"),
        ("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", "dp", "dp x cp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp", None),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp", None),
        ("MODEL_PARALLEL_GROUP", "control", "tp x pp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", "control", "tp x dp x cp"),
        ("CONTEXT_PARALLEL_GROUP", "cp", None),
        ("HIERARCHICAL_CONTEXT_PARALLEL_GROUP_0", "cp", None),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep", None),
        ("EXPERT_DATA_PARALLEL_GROUP", "edp", None),
        ("EXPERT_TENSOR_PARALLEL_GROUP", "tp", "tensor parallel of experts"),
        ("EMBEDDING_GROUP", "embedding", None),
        ("POSITION_EMBEDDING_GROUP", "embedding", None),
    ],
)
def test_known_descriptions(description: str, role: str, product: str | None) -> None:
    found = described_role(description)

    assert found is not None
    assert (found.role, found.product) == (role, product)


@pytest.mark.parametrize("description", [None, "", "undefined", "default_pg", "mesh_default", "mesh_x", "my group"])
def test_others_say_nothing(description: str | None) -> None:
    assert described_role(description) is None
