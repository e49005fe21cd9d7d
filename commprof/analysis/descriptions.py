"""What the description of a process group says about its role.

Megatron-Core gives its groups descriptions in capitals (``parallel_state.py``), PyTorch's device mesh writes
``mesh_`` and the name of the dimension (``torch/distributed/device_mesh.py``), whose names are the user's: those of
torchtitan and of the tutorials are known here. DeepSpeed describes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Described:
    """``role`` in the words of the report; ``product`` where the group spans several dimensions; ``otherwise`` is
    a second meaning of the word."""

    role: str
    product: str | None = None
    otherwise: str | None = None


_MEGATRON: tuple[tuple[str, Described], ...] = (
    ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", Described("control", "expert tensor x expert x pipeline")),
    ("EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP", Described("ep", "expert tensor x expert parallel")),
    ("EXPERT_TENSOR_PARALLEL_GROUP", Described("tp", "tensor parallel of experts")),
    ("EXPERT_MODEL_PARALLEL_GROUP", Described("ep")),
    ("EXPERT_DATA_PARALLEL_GROUP", Described("edp")),
    ("TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP", Described("control", "tp x dp x cp")),
    ("TENSOR_AND_DATA_PARALLEL_GROUP", Described("control", "tp x dp")),
    ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", Described("control", "tp x cp")),
    ("TENSOR_AND_EXPERT_PARALLEL_GROUP", Described("ep", "tp x ep")),
    ("TENSOR_MODEL_PARALLEL_GROUP", Described("tp")),
    ("PIPELINE_MODEL_PARALLEL_GROUP", Described("pp")),
    ("MODEL_PARALLEL_GROUP", Described("control", "tp x pp")),
    ("DATA_PARALLEL_GROUP_WITH_CP", Described("dp", "dp x cp")),
    ("DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", Described("control", "optimizer instances")),
    ("DATA_PARALLEL_GROUP", Described("dp")),
    ("CONTEXT_PARALLEL_GROUP", Described("cp")),
    ("EMBEDDING_GROUP", Described("embedding")),
    ("DATA_MODULO_EXPERT_PARALLEL_GROUP", Described("edp")),
)
"""The first that a description holds counts, so longer names stand before those that they hold."""

_DIMENSIONS: dict[str, str] = {
    "dp": "dp", "ddp": "dp", "data": "dp", "data_parallel": "dp", "batch": "dp",
    "tp": "tp", "tensor": "tp", "tensor_parallel": "tp", "mp": "tp",
    "pp": "pp", "pipe": "pp", "pipeline": "pp", "stage": "pp", "pipeline_parallel": "pp",
    "ep": "ep", "expert": "ep", "experts": "ep", "expert_parallel": "ep",
    "edp": "edp", "efsdp": "edp", "edp_shard": "edp", "dp_shard_mod_ep": "edp", "expert_data": "edp",
    "cp": "cp", "context": "cp", "context_parallel": "cp", "ulysses": "cp", "ring": "cp", "sp_ulysses": "cp",
    "shard": "shard", "dp_shard": "shard", "fsdp": "shard", "fs": "shard", "sharded": "shard",
    "rep": "replicate", "replicate": "replicate", "dp_replicate": "replicate", "replica": "replicate",
    "dp_rep": "replicate", "ddp_replicate": "replicate", "embedding": "embedding", "loss": "control",
    "sp": "tp", "sequence": "tp", "sequence_parallel": "tp", "etp": "tp",
}  # fmt: skip


_AMBIGUOUS = {"sp": "cp", "sequence": "cp", "sequence_parallel": "cp"}
"""Sequence parallel is a part of tensor parallel in Megatron and context parallel in DeepSpeed-Ulysses."""


def described_role(description: str | None) -> Described | None:
    """The role that a description names, ``None`` where it names none that is known here."""
    if not description:
        return None
    upper = description.upper()
    for name, described in _MEGATRON:
        if name in upper:
            return described
    name = re.sub(r"[^a-z0-9]+", "_", description.lower()).strip("_").removeprefix("mesh_")
    if name in _DIMENSIONS:
        return Described(_DIMENSIONS[name], otherwise=_AMBIGUOUS.get(name))
    parts = _split(name)
    return _product(parts) if parts else None


def _split(name: str) -> list[str] | None:
    """The dimensions of a flattened mesh, such as ``dp_shard_cp``; the longest known names first."""
    words = name.split("_")
    found: list[str] = []
    while words:
        for length in range(len(words), 0, -1):
            if "_".join(words[:length]) in _DIMENSIONS:
                found.append("_".join(words[:length]))
                words = words[length:]
                break
        else:
            return None
    return found


def _product(parts: list[str]) -> Described:
    """Data parallel over context parallel is data parallel for parameters; what spans model dimensions is control."""
    roles = [_DIMENSIONS[part] for part in parts]
    product = " x ".join(parts)
    data = {"dp", "shard", "replicate"}
    if set(roles) <= data | {"cp"} and set(roles) & data:
        return Described("shard" if "shard" in roles and "replicate" not in roles else "dp", product)
    if set(roles) == {"ep", "tp"}:
        return Described("ep", product)
    return Described("control", product)
