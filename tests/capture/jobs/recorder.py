"""What a training step really calls: every collective as the dispatcher sees it, without any profiler.

Independent of traces and of their reading: operation, group and tensors come from the arguments of the
``c10d::*`` and ``_c10d_functional::*`` operators themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

# Operator -> (operation, position of the tensors whose bytes count).
# The gathered output, the full input of a reduce-scatter, the whole send buffer, else the tensor itself.
C10D = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "allgather_": ("all_gather", 0),
    "_allgather_base_": ("all_gather", 0),
    "allgather_into_tensor_coalesced_": ("all_gather", 0),
    "reduce_scatter_": ("reduce_scatter", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_base_": ("all_to_all", 1),
    "alltoall_": ("all_to_all", 1),
    "send": ("send", 0),
    "recv_": ("recv", 0),
    "recv_any_source_": ("recv", 0),
    "barrier": ("barrier", 0),
}
# A result does not exist before the call: a gathered one is as often the input as the group has ranks.
FUNCTIONAL = {
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "all_to_all_single": "all_to_all",
}


@dataclass(frozen=True)
class Call:
    """One collective of one rank; ``size`` as ``S`` of the bandwidth table, ``peer`` a rank of the group."""

    step: int
    op: str
    group: str
    size: int
    dtype: str
    phase: str
    peer: int | None = None
    splits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Group:
    """A process group: ``ranks`` are global."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Recorder(TorchDispatchMode):
    """Inside ``with``, keeps all calls of this thread, and those of the backward passes that it runs.

    ``step`` is set by the caller. ``phase``: backward inside the autograd engine, optimizer inside an optimizer's
    ``step``, else forward.
    """

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self.calls: list[Call] = []
        self.groups: dict[str, Group] = {}
        self._optimizing = 0
        self._hooks = [
            register_optimizer_step_pre_hook(lambda *_: self._optimizer(1)),
            register_optimizer_step_post_hook(lambda *_: self._optimizer(-1)),
        ]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind.__name__ in ("DTensor", "AsyncCollectiveTensor") for kind in types):
            return NotImplemented  # what they call comes by again
        name = getattr(getattr(func, "_schema", None), "name", "")
        space, _, op = name.partition("::")
        if space == "c10d" and op in C10D:
            self._c10d(op, args, kwargs or {})
        elif space == "_c10d_functional" and op in FUNCTIONAL:
            self._functional(FUNCTIONAL[op], func, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def json(self) -> dict[str, Any]:
        return {"calls": [asdict(call) for call in self.calls], "groups": [asdict(g) for g in self.groups.values()]}

    def _optimizer(self, change: int) -> None:
        self._optimizing += change

    def _phase(self) -> str:
        if torch._C._current_graph_task_id() != -1:
            return "backward"
        return "optimizer" if self._optimizing else "forward"

    def _c10d(self, op: str, args: Any, kwargs: Any) -> None:
        operation, position = C10D[op]
        # Given back by the dispatcher as a script object; the functional operators give a name.
        boxed = next(arg for arg in (*args, *kwargs.values()) if isinstance(arg, torch.ScriptObject))
        group = self._known(dist.ProcessGroup.unbox(boxed))
        tensors = list(_tensors(args[position]))
        peer = args[2] if operation in ("send", "recv") else None
        splits = tuple(args[4]) if op == "alltoall_base_" else ()
        self._keep(operation, group, tensors, 1, peer, splits)

    def _functional(self, operation: str, func: Any, args: Any, kwargs: Any) -> None:
        named = dict(zip((a.name for a in func._schema.arguments), args, strict=False)) | kwargs
        group = self._known(_resolve_process_group(named["group_name"]))
        tensors = list(_tensors(args[0]))
        factor = len(group.ranks) if operation == "all_gather" else 1
        self._keep(operation, group, tensors, factor, None, tuple(named.get("input_split_sizes", ())))

    def _keep(
        self, op: str, group: Group, tensors: list[Tensor], factor: int, peer: int | None, splits: tuple[int, ...]
    ) -> None:
        size = factor * sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
        self.calls.append(Call(self.step, op, group.name, size, dtype, self._phase(), peer, splits))

    def _known(self, group: Any) -> Group:
        name = group.group_name
        if name not in self.groups:
            self.groups[name] = Group(name, group.group_desc, tuple(dist.get_process_group_ranks(group)))
        return self.groups[name]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
