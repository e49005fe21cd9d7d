"""Finds what a training consists of: its modules, optimizers, meshes and pipelines, named by the user or not.

Looks once, before the window, at every object that the garbage collector knows (about 0.2 us each); so it
finds other profilers too.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.autograd.profiler as autograd_profiler
from torch import nn


@dataclass(frozen=True)
class Inventory:
    """``modules`` are the roots that are trained, with a name where the user gave several ("" else)."""

    modules: tuple[tuple[str, nn.Module], ...] = ()
    optimizers: tuple[Any, ...] = ()
    meshes: tuple[Any, ...] = ()
    stages: tuple[Any, ...] = ()
    schedules: tuple[Any, ...] = ()


class Sighting:
    """What one look at all objects found, held by weak references: nothing lives longer for having been seen."""

    def __init__(self) -> None:
        self._seen: dict[str, list[weakref.ref[Any]]] = {}

    def add(self, what: str, it: Any) -> None:
        with contextlib.suppress(TypeError):
            self._seen.setdefault(what, []).append(weakref.ref(it))

    def living(self, what: str) -> list[Any]:
        """Those of a kind that are still there: ``modules``, ``optimizers``, ``meshes``, ``profilers`` and so on."""
        return [it for it in (ref() for ref in self._seen.get(what, ())) if it is not None]


def take_inventory(model: Any, seen: Sighting | None = None) -> Inventory:
    """``model``: a module, several of them, or None; then the modules that an optimizer trains are looked for."""
    seen = look_around() if seen is None else seen
    optimizers = seen.living("optimizers")
    modules = tuple(_given(model)) or tuple(
        ("", module) for module in _trained_roots(seen.living("modules"), optimizers)
    )
    theirs = {id(parameter) for _, module in modules for parameter in module.parameters()}
    # What an earlier training left behind may not be collected yet.
    alive = [it for it in optimizers if any(id(parameter) in theirs for parameter in parameters_of(it))]
    return Inventory(
        modules=modules,
        optimizers=tuple(alive or optimizers),
        meshes=tuple(seen.living("meshes")),
        stages=tuple(seen.living("stages")),
        schedules=tuple(seen.living("schedules")),
    )


def _given(model: Any) -> Iterator[tuple[str, nn.Module]]:
    if isinstance(model, nn.Module):
        yield "", model
    elif isinstance(model, dict):
        yield from ((str(name), part) for name, part in model.items() if isinstance(part, nn.Module))
    elif isinstance(model, (list, tuple)):
        yield from ((str(index), part) for index, part in enumerate(model) if isinstance(part, nn.Module))


def look_around() -> Sighting:
    """All objects of interest among those that the garbage collector knows."""
    seen = Sighting()
    wanted = [
        (nn.Module, "modules"),
        (torch.optim.Optimizer, "optimizers"),
        (autograd_profiler.profile, "profilers"),
        *_loaded("torch.distributed.device_mesh", "DeviceMesh", "meshes"),
        *_loaded("torch.distributed.pipelining.stage", "_PipelineStageBase", "stages"),
        *_loaded("torch.distributed.pipelining.schedules", "_PipelineSchedule", "schedules"),
    ]
    objects = gc.get_objects()
    # isinstance() would ask each object for its __class__, which a lazy proxy answers by doing its work.
    kinds = {
        kind: next((what for base, what in wanted if issubclass(kind, base)), None) for kind in set(map(type, objects))
    }
    kept = {kind: what for kind, what in kinds.items() if what is not None}
    for it in [it for it in objects if type(it) in kept]:
        seen.add(kept[type(it)], it)
    return seen


def _loaded(module: str, name: str, what: str) -> list[tuple[type, str]]:
    """The class, if the program has imported it: an object of it cannot exist else."""
    kind = getattr(sys.modules.get(module), name, None)
    return [(kind, what)] if isinstance(kind, type) else []


def _trained_roots(modules: list[nn.Module], optimizers: list[Any]) -> list[nn.Module]:
    """Modules that are in no other module and hold a parameter of an optimizer."""
    trained = {id(parameter) for optimizer in optimizers for parameter in parameters_of(optimizer)}
    inside = {id(child) for module in modules for child in module.__dict__.get("_modules", {}).values()}
    roots = [module for module in modules if "_modules" in module.__dict__ and id(module) not in inside]
    return [root for root in roots if any(id(parameter) in trained for parameter in root.parameters())]


def parameters_of(optimizer: Any) -> Iterable[Any]:
    """The tensors that an optimizer updates; none for one that keeps no groups."""
    groups = getattr(optimizer, "param_groups", ())
    return [parameter for group in groups for parameter in group.get("params", ())]
