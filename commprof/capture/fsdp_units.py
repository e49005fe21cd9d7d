"""What FSDP gathers and reduces together, read from FSDP's own state (both generations, torch 2.13)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from commprof.capture.parameters import dtype_name, flat_handles
from commprof.manifest import FsdpUnit


def describe_fsdp(modules: Iterable[tuple[str, nn.Module]]) -> tuple[FsdpUnit, ...]:
    """Every FSDP unit below ``modules``, in the order of the module tree."""
    return tuple(unit for prefix, module in modules for unit in _units(prefix, module))


def _units(prefix: str, module: nn.Module) -> Iterator[FsdpUnit]:
    for name, part, handle in flat_handles(module):
        yield _flat(_joined(prefix, name), part, handle)
    seen: set[int] = set()
    for name, part in module.named_modules():
        state_of = getattr(type(part), "_get_fsdp_state", None)
        if state_of is None:
            continue
        state = state_of(part)
        for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
            # One group may belong to several modules; it is named after the first.
            if group is not None and id(group) not in seen:
                seen.add(id(group))
                yield _fully_sharded(_joined(prefix, name), group)


def _fully_sharded(name: str, group: Any) -> FsdpUnit:
    parameters, mesh = group.fsdp_params, group.mesh_info
    numbers = [it._orig_size.numel() for it in parameters]
    sent = [it.mp_policy.param_dtype or it.sharded_param.dtype for it in parameters]
    reduced = [it.mp_policy.reduce_dtype or dtype for it, dtype in zip(parameters, sent, strict=True)]
    return FsdpUnit(
        module=name,
        kind="fsdp2",
        count=sum(numbers),
        bytes=_bytes(numbers, sent),
        gradient_bytes=_bytes(numbers, reduced),
        dtype=_one(sent),
        reduce_dtype=_one(reduced),
        reshard_after_forward=group.post_forward_mesh_info is not None,
        shard_size=getattr(mesh, "shard_mesh_size", None),
        replicate_size=getattr(mesh, "replicate_mesh_size", 1),
        shard_group=_group_name(getattr(mesh, "shard_process_group", None)),
        replicate_group=_group_name(getattr(mesh, "replicate_process_group", None)),
    )


def _flat(name: str, part: nn.Module, handle: Any) -> FsdpUnit:
    flat, strategy = handle.flat_param, str(getattr(handle, "_sharding_strategy", "")).rpartition(".")[2]
    number = flat._unpadded_unsharded_size.numel()
    sent = getattr(handle, "_fwd_bwd_param_dtype", None) or flat.dtype
    reduced = getattr(handle, "_reduce_dtype", None) or flat.dtype
    shards = getattr(handle, "process_group", None)
    copies = part.__dict__.get("_inter_node_pg")
    return FsdpUnit(
        module=name,
        kind="fsdp1",
        count=number,
        bytes=number * sent.itemsize,
        gradient_bytes=number * reduced.itemsize,
        dtype=dtype_name(sent),
        reduce_dtype=dtype_name(reduced),
        reshard_after_forward=strategy in {"FULL_SHARD", "HYBRID_SHARD"},
        shard_size=1 if strategy == "NO_SHARD" else shards.size() if shards is not None else None,
        replicate_size=copies.size() if copies is not None else 1,
        shard_group=_group_name(shards),
        replicate_group=_group_name(copies),
    )


def _bytes(numbers: list[int], dtypes: list[Any]) -> int:
    return sum(number * dtype.itemsize for number, dtype in zip(numbers, dtypes, strict=True))


def _one(dtypes: list[Any]) -> str | None:
    """The dtype that all share; ``None`` for a mixture."""
    names = {dtype_name(dtype) for dtype in dtypes}
    return names.pop() if len(names) == 1 else None


def _group_name(group: Any) -> str | None:
    return None if group is None else str(group.group_name)


def _joined(prefix: str, name: str) -> str:
    return ".".join(part for part in (prefix, name) if part)
