"""Finds what a training consists of: its modules, optimizers, meshes and pipelines, named by the user or not.

Looks once, after the window, at every object that the garbage collector knows (about 0.1 us each).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(frozen=True)
class Inventory:
    """``modules`` are the roots that are trained, with a name where the user gave several ("" else)."""

    modules: tuple[tuple[str, nn.Module], ...] = ()
    optimizers: tuple[Any, ...] = ()
    meshes: tuple[Any, ...] = ()
    stages: tuple[Any, ...] = ()
    schedules: tuple[Any, ...] = ()


@dataclass
class _Found:
    modules: list[nn.Module] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    meshes: list[Any] = field(default_factory=list)
    stages: list[Any] = field(default_factory=list)
    schedules: list[Any] = field(default_factory=list)


def take_inventory(model: Any) -> Inventory:
    """``model``: a module, several of them, or None; then the modules that an optimizer trains are looked for."""
    found = _look_around()
    modules = tuple(_given(model)) or tuple(("", module) for module in _trained_roots(found))
    theirs = {id(parameter) for _, module in modules for parameter in module.parameters()}
    # What an earlier training left behind may not be collected yet.
    alive = [it for it in found.optimizers if any(id(parameter) in theirs for parameter in parameters_of(it))]
    return Inventory(
        modules=modules,
        optimizers=tuple(alive or found.optimizers),
        meshes=tuple(found.meshes),
        stages=tuple(found.stages),
        schedules=tuple(found.schedules),
    )


def _given(model: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(model, nn.Module):
        yield "", model
    elif isinstance(model, dict):
        yield from ((str(name), part) for name, part in model.items() if isinstance(part, nn.Module))
    elif isinstance(model, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(model) if isinstance(part, nn.Module))


def _look_around() -> _Found:
    found = _Found()
    wanted = [
        (nn.Module, found.modules),
        (torch.optim.Optimizer, found.optimizers),
        *_loaded("torch.distributed.device_mesh", "DeviceMesh", found.meshes),
        *_loaded("torch.distributed.pipelining.stage", "_PipelineStageBase", found.stages),
        *_loaded("torch.distributed.pipelining.schedules", "_PipelineSchedule", found.schedules),
    ]
    objects = gc.get_objects()
    # isinstance() would ask each object for its __class__, which a lazy proxy answers by doing its work.
    kinds = {
        kind: next((keep for base, keep in wanted if issubclass(kind, base)), None) for kind in set(map(type, objects))
    }
    kept = {kind: keep for kind, keep in kinds.items() if keep is not None}
    for it in [it for it in objects if type(it) in kept]:
        kept[type(it)].append(it)
    return found


def _loaded(module: str, name: str, keep: list[Any]) -> list[tuple[type, list[Any]]]:
    """The class, if the program has imported it: an object of it cannot exist else."""
    kind = getattr(sys.modules.get(module), name, None)
    return [(kind, keep)] if isinstance(kind, type) else []


def _trained_roots(found: _Found) -> list[nn.Module]:
    """Modules that are in no other module and hold a parameter of an optimizer."""
    trained = {id(parameter) for optimizer in found.optimizers for parameter in parameters_of(optimizer)}
    inside = {id(child) for module in found.modules for child in module.__dict__.get("_modules", {}).values()}
    roots = [module for module in found.modules if "_modules" in module.__dict__ and id(module) not in inside]
    return [root for root in roots if any(id(parameter) in trained for parameter in root.parameters())]


def parameters_of(optimizer: Any) -> Iterable[Any]:
    """The tensors that an optimizer updates; none for one that keeps no groups."""
    groups = getattr(optimizer, "param_groups", ())
    return [parameter for group in groups for parameter in group.get("params", ())]
