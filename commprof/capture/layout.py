"""How a model lies on its ranks: device meshes, placements of parameters, pipeline stages, optimizers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch.distributed as dist
from torch import nn

from commprof.capture.inventory import parameters_of
from commprof.capture.parameters import whole_and_local
from commprof.manifest import Mesh, Optimizer, Pipeline, PipelineStage, Placement

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def describe_meshes(meshes: Iterable[Any]) -> tuple[Mesh, ...]:
    """The device meshes with named dimensions, each once; slices of a mesh that is listed are left out."""
    named = {_mesh(mesh): None for mesh in meshes if mesh.mesh_dim_names}
    found = sorted(named, key=lambda mesh: (-len(mesh.ranks), -len(mesh.names), mesh.names))
    whole: list[Mesh] = []
    for mesh in found:
        if not any(set(mesh.names) <= set(it.names) and set(mesh.ranks) <= set(it.ranks) for it in whole):
            whole.append(mesh)
    return tuple(whole)


def _mesh(mesh: Any) -> Mesh:
    names = tuple(str(name) for name in mesh.mesh_dim_names)
    return Mesh(
        names=names,
        shape=tuple(int(n) for n in mesh.shape),
        ranks=tuple(int(rank) for rank in mesh.mesh.flatten().tolist()),
        groups=tuple(_group_of(mesh, name) for name in names),
    )


def _group_of(mesh: Any, dimension: str) -> str | None:
    try:
        return str(mesh.get_group(dimension).group_name)
    except Exception:
        return None  # this rank is not in the mesh, or the group is gone


def describe_placements(modules: Iterable[tuple[str, nn.Module]]) -> tuple[Placement, ...]:
    """Placements of all distributed parameters; names that differ in numbers alone are one pattern."""
    rows: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()
    for prefix, module in modules:
        for name, parameter in module.named_parameters(prefix=prefix):
            mesh, placed = (getattr(parameter, what, None) for what in ("device_mesh", "placements"))
            if mesh is not None and placed is not None:
                names = tuple(str(n) for n in mesh.mesh_dim_names or ("",) * mesh.ndim)
                rows[_NUMBER.sub("*", name), names, tuple(map(repr, placed))] += 1
    return tuple(Placement(pattern=p, mesh=m, placements=w, parameters=n) for (p, m, w), n in rows.items())


def describe_pipeline(stages: Iterable[Any], schedules: Iterable[Any]) -> Pipeline | None:
    """The stages of PyTorch's own pipelining; ``None`` without one."""
    rows = sorted((_stage(stage) for stage in stages), key=lambda row: row.index)
    if not rows:
        return None
    plans = list(schedules)
    only = plans[0] if len({(type(p).__name__, p._n_microbatches) for p in plans}) == 1 else None
    return Pipeline(
        stages=tuple(rows),
        schedule=None if only is None else type(only).__name__,
        microbatches=None if only is None else int(only._n_microbatches),
    )


def _stage(stage: Any) -> PipelineStage:
    group = stage.group if stage.group is not None else dist.group.WORLD
    return PipelineStage(
        index=int(stage.stage_index),
        stages=int(stage.num_stages),
        group=None if group is None else str(group.group_name),
        count=sum(whole_and_local(parameter)[0] for parameter in stage.submod.parameters()),
    )


def describe_optimizers(optimizers: Iterable[Any]) -> tuple[Optimizer, ...]:
    """The optimizers that hold parameters; one inside another is named by it."""
    found = list(optimizers)
    inner = {id(getattr(it, "optim", None)) for it in found} | {id(getattr(it, "optimizer", None)) for it in found}
    rows = [_optimizer(it) for it in found if id(it) not in inner]
    return tuple(row for row in rows if row.count)


def _optimizer(optimizer: Any) -> Optimizer:
    inside = getattr(optimizer, "optim", None) or getattr(optimizer, "optimizer", None)
    switches = ("parameters_as_bucket_view", "overlap_with_ddp", "_overlap_with_ddp")
    return Optimizer(
        name=type(optimizer).__name__,
        inner=None if inside is None else type(inside).__name__,
        count=sum(whole_and_local(parameter)[1] for parameter in parameters_of(optimizer)),
        options={s.lstrip("_"): int(bool(getattr(optimizer, s))) for s in switches if hasattr(optimizer, s)},
    )
