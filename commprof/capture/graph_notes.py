"""Notes the collectives of CUDA graphs while they are captured: their replays name no operation, group or size.

A mode on PyTorch's dispatcher sees every collective's operator, from Python, from DDP and from compiled code
alike. It is on only while a graph is captured, so replays cost nothing; it is marked as infrastructure, so
that it does not keep ``torch.compile`` from compiling.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from commprof.capture.parameters import dtype_name
from commprof.manifest import CudaGraph, GraphCall

# Operator: operation, and which of its tensors (the output comes first) make up S, times the group's size or not.
_OPERATIONS = {
    "c10d::allreduce_": ("all_reduce", 0, False),
    "c10d::allreduce_coalesced_": ("all_reduce", 0, False),
    "c10d::_allgather_base_": ("all_gather", 0, False),
    "c10d::allgather_": ("all_gather", 0, False),
    "c10d::allgather_coalesced_": ("all_gather", 0, False),
    "c10d::allgather_into_tensor_coalesced_": ("all_gather", 0, False),
    "c10d::_reduce_scatter_base_": ("reduce_scatter", -1, False),
    "c10d::reduce_scatter_": ("reduce_scatter", -1, False),
    "c10d::reduce_scatter_tensor_coalesced_": ("reduce_scatter", -1, False),
    "c10d::alltoall_base_": ("all_to_all", -1, False),
    "c10d::alltoall_": ("all_to_all", -1, False),
    "c10d::broadcast_": ("broadcast", 0, False),
    "c10d::reduce_": ("reduce", 0, False),
    "c10d::gather_": ("gather", -1, True),
    "c10d::scatter_": ("scatter", 0, True),
    "c10d::barrier": ("barrier", None, False),
    "c10d::send": ("send", 0, False),
    "c10d::recv_": ("recv", 0, False),
    # These hold the ones above, which the mode does not see inside them.
    "_c10d_functional::all_reduce": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_coalesced": ("all_reduce", 0, False),
    "_c10d_functional::all_reduce_coalesced_": ("all_reduce", 0, False),
    "_c10d_functional::all_gather_into_tensor": ("all_gather", 0, True),
    "_c10d_functional::all_gather_into_tensor_out": ("all_gather", 0, True),
    "_c10d_functional::all_gather_into_tensor_coalesced": ("all_gather", 0, True),
    "_c10d_functional::reduce_scatter_tensor": ("reduce_scatter", 0, False),
    "_c10d_functional::reduce_scatter_tensor_out": ("reduce_scatter", 0, False),
    "_c10d_functional::reduce_scatter_tensor_coalesced": ("reduce_scatter", 0, False),
    "_c10d_functional::all_to_all_single": ("all_to_all", 0, False),
    "_c10d_functional::broadcast": ("broadcast", 0, False),
    "_c10d_functional::broadcast_": ("broadcast", 0, False),
    "_c10d_functional::isend": ("send", 0, False),
    "_c10d_functional::irecv": ("recv", 0, False),
}
_ROOTED = {"broadcast", "reduce", "gather", "scatter"}
_MOST_GRAPHS = 1000


_Mode: Any = TorchDispatchMode  # untyped in PyTorch


class _Observer(_Mode):  # type: ignore[misc]
    """Hands every collective to ``note`` and runs all operators as they are."""

    def __init__(self, note: Callable[[str, Any, Any], None]) -> None:
        super().__init__()
        self._note = note

    @classmethod
    def is_infra_mode(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in _OPERATIONS:
            with contextlib.suppress(Exception):
                self._note(func._schema.name, func._schema, (args, kwargs or {}))
        return func(*args, **(kwargs or {}))


class GraphNotes:
    """From ``begin`` to ``end``, ``graphs`` collects what each capture of a CUDA graph held."""

    def __init__(self) -> None:
        self.graphs: list[CudaGraph] = []
        self._calls: list[GraphCall] = []
        self._observer: Any = None
        self._saved: dict[str, tuple[Any, Any]] = {}

    def begin(self, graph_class: Any = None) -> None:
        """Watch ``torch.cuda.CUDAGraph``, or a class with the same two methods."""
        kind = torch.cuda.CUDAGraph if graph_class is None else graph_class
        self._kind = kind
        begin, end = kind.capture_begin, kind.capture_end

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = begin(graph, *args, **kwargs)
            with contextlib.suppress(Exception):
                self._open()
            return result

        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                self._close()
            return end(graph, *args, **kwargs)

        for name, original, ours in (("capture_begin", begin, capture_begin), ("capture_end", end, capture_end)):
            self._saved[name] = (original, ours)
            setattr(kind, name, ours)

    def end(self) -> None:
        """Put both methods back."""
        for name, (original, ours) in self._saved.items():
            if getattr(self._kind, name) is ours:
                setattr(self._kind, name, original)
        self._saved = {}

    def _open(self) -> None:
        if self._saved and self._observer is None and len(self.graphs) < _MOST_GRAPHS:
            self._calls = []
            self._observer = _Observer(self._take)
            self._observer.__enter__()

    def _close(self) -> None:
        observer, self._observer = self._observer, None
        if observer is None:
            return
        observer.__exit__(None, None, None)
        if self._calls:
            self.graphs.append(CudaGraph(captured_ns=time.time_ns(), calls=tuple(self._calls)))

    def _take(self, name: str, schema: Any, given: Any) -> None:
        op, which, times_size = _OPERATIONS[name]
        values = _by_name(schema, *given)
        group = _group(values)
        tensors = [found for value in values.values() if (found := _tensors(value))]
        size = None
        if which is not None and tensors:
            size = sum(t.numel() * t.element_size() for t in tensors[which])
            if times_size:
                size = None if group is None else size * int(group.size())
        self._calls.append(
            GraphCall(
                op=op,
                group=None if group is None else str(group.group_name),
                group_size=None if group is None else int(group.size()),
                dtype=dtype_name(tensors[0][0].dtype) if tensors and which is not None else None,
                size_bytes=size,
                peer=_global(group, values.get("dst", values.get("src"))) if op in {"send", "recv"} else None,
                root=_global(group, values.get("root_rank", values.get("src"))) if op in _ROOTED else None,
            )
        )


def _by_name(schema: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    names = [argument.name for argument in schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in _tensors(part)]
    return []


def _group(values: dict[str, Any]) -> Any:
    given = values.get("process_group", values.get("group_name"))
    if given is None or isinstance(given, dist.ProcessGroup):
        return given
    if isinstance(given, str):
        registry: Any = dist.distributed_c10d
        return registry._resolve_process_group(given)
    return dist.ProcessGroup.unbox(given)


def _global(group: Any, rank: Any) -> int | None:
    """The global rank of a member of the group."""
    return None if group is None or rank is None else int(dist.get_global_rank(group, int(rank)))
