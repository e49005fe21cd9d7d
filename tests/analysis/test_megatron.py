"""A job as Megatron lays it out: tensor with sequence parallel, pipeline, sharded optimizer, tied embeddings, norms.

16 ranks as tp 2, dp 4, pp 2 would have no embedding group of its own; so tp 2, dp 2, pp 4, seen from the last stage.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commprof.analysis.run import analyze
from tests.builders.sequence import sequence_trace

MB = 1 << 20
LAYERS, MICROBATCHES = 2, 4
DESCRIPTIONS = {
    "tp": "TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "PIPELINE_MODEL_PARALLEL_GROUP",
    "dp": "DATA_PARALLEL_GROUP_WITH_CP",
    "mp": "MODEL_PARALLEL_GROUP",
    "embedding": "EMBEDDING_GROUP",
}
ROLES = {"tp": "tp", "pp": "pp", "dp": "dp", "mp": "control", "embedding": "embedding"}
# Rank 12: tensor 0, data 0, stage 3. rank = (stage * 2 + data) * 2 + tensor.
MEMBERS = {
    "tp": [12, 13],
    "pp": [0, 4, 8, 12],
    "dp": [12, 14],
    "mp": [0, 1, 4, 5, 8, 9, 12, 13],
    "embedding": [0, 12],
}


def call(op: str, group: str, size: int, phase: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "group": group, "size": size, "dtype": "bfloat16", "phase": phase, **more}


def forward() -> list[dict[str, Any]]:
    """A microbatch of the last stage: activation in, two gathers and scatters per layer, the vocabulary's loss."""
    calls = [call("recv", "pp", 2 * MB, "forward", peer=2)]
    calls += [call(op, "tp", 4 * MB, "forward") for op in ("all_gather", "reduce_scatter") * (2 * LAYERS)]
    return [*calls, *[call("all_reduce", "tp", 8192, "forward")] * 3]


def backward() -> list[dict[str, Any]]:
    """Gradient gathered, input gathered again, result scattered, twice per layer; then the gradient goes back."""
    layer = ("all_gather", "all_gather", "reduce_scatter") * 2
    calls = [call(op, "tp", 4 * MB, "backward") for op in layer * LAYERS]
    return [*calls, call("send", "pp", 2 * MB, "backward", peer=2)]


def sequence() -> dict[str, Any]:
    calls = [one for _ in range(MICROBATCHES) for one in (*forward(), *backward())]
    calls += [call("reduce_scatter", "dp", size, "backward") for size in (40 * MB, 24 * MB)]
    calls += [call("all_reduce", "embedding", 16 * MB, "optimizer"), call("all_reduce", "mp", 4, "optimizer")]
    calls += [call("all_gather", "dp", size, "optimizer") for size in (40 * MB, 24 * MB)]
    groups = [{"name": name, "description": DESCRIPTIONS[name], "ranks": ranks} for name, ranks in MEMBERS.items()]
    return {"rank": 12, "ranks": 16, "groups": groups, "calls": calls}


@pytest.mark.parametrize("described", [True, False], ids=["described", "not described"])
def test_roles_strategy_and_bytes(described: bool, tmp_path: Path) -> None:
    path = sequence_trace(sequence(), described=described, steps=2).write(tmp_path / "rank12.json")

    analysis = analyze(path, jobs=1)

    roles = {facts.name: role.name for facts, role in zip(analysis.groups, analysis.roles, strict=True)}
    assert roles == ROLES
    assert analysis.strategy is not None
    assert analysis.strategy.name == "sp+pp+zero1"
    parts = {part.kind: part.volume for part in analysis.strategy.parts}
    # Ten times b s h (t-1)/t for each of two layers and four microbatches; the loss is no part of the formula.
    assert parts["tp"].expected == 10 * LAYERS * MICROBATCHES * 2 * MB
    assert [(row.what, row.bytes) for row in parts["tp"].differences] == [("other all-reduce calls", 3 * 4 * 8192)]
    # P of 32 Mi elements, gradients and parameters of two bytes over two ranks.
    assert parts["dp"].expected == parts["dp"].measured == 64 * MB
    assert parts["pp"].measured == 2 * MICROBATCHES * 2 * MB
    evidence = {
        facts.name: " ".join(role.evidence) for facts, role in zip(analysis.groups, analysis.roles, strict=True)
    }
    assert ("the product dp x cp" in evidence["dp"]) == described
