"""Counts the parameters of a model, whatever has split them over the ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import nn

from commprof.manifest import Parameters


class _Count(NamedTuple):
    dtype: Any
    trainable: bool
    whole: int  # elements before anything was split
    local: int


def count_parameters(modules: Iterable[tuple[str, nn.Module]]) -> Parameters | None:
    """Parameters of all ``modules`` together, each once; ``None`` without modules."""
    roots = [module for _, module in modules]
    if not roots:
        return None
    counts = list(_counts(roots))
    buffers = {id(buffer): buffer for root in roots for buffer in root.buffers()}.values()
    by_dtype: Counter[str] = Counter()
    for count in counts:
        by_dtype[dtype_name(count.dtype)] += count.whole
    return Parameters(
        count=sum(c.whole for c in counts),
        bytes=sum(c.whole * c.dtype.itemsize for c in counts),
        by_dtype=dict(sorted(by_dtype.items())),
        trainable_count=sum(c.whole for c in counts if c.trainable),
        trainable_bytes=sum(c.whole * c.dtype.itemsize for c in counts if c.trainable),
        local_count=sum(c.local for c in counts),
        local_bytes=sum(c.local * c.dtype.itemsize for c in counts),
        buffer_count=sum(buffer.numel() for buffer in buffers),
        buffer_bytes=sum(buffer.numel() * buffer.dtype.itemsize for buffer in buffers),
    )


def whole_and_local(parameter: Any) -> tuple[int, int]:
    """Elements of the parameter before it was split, and of what this rank holds."""
    if hasattr(parameter, "ds_numel"):  # DeepSpeed's ZeRO-3 leaves an empty tensor behind
        share = getattr(parameter, "ds_tensor", None)
        return int(parameter.ds_numel), parameter.numel() if share is None else share.numel()
    local = getattr(parameter, "_local_tensor", parameter)  # of a DTensor, whose numel() is the whole
    return parameter.numel(), local.numel()


def dtype_name(dtype: Any) -> str:
    """``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def flat_handles(module: nn.Module) -> Iterator[tuple[str, nn.Module, Any]]:
    """FSDP1's units below ``module``: their name, their module and their handle."""
    for name, part in module.named_modules():
        handle = part.__dict__.get("_handle")
        if handle is not None and hasattr(handle, "flat_param"):
            yield name, part, handle


def _counts(roots: list[nn.Module]) -> Iterator[_Count]:
    seen: set[int] = set()
    for root in roots:
        # FSDP1 keeps a piece of one long tensor; the parameters that it shows are pieces of that piece.
        for _, _, handle in flat_handles(root):
            flat = handle.flat_param
            if id(flat) not in seen:
                seen.add(id(flat))
                seen.update(id(view) for view in (*(flat._params or ()), *(flat._shared_params or ())))
                yield _Count(flat.dtype, flat.requires_grad, sum(flat._numels), flat.numel())
    for root in roots:
        for parameter in root.parameters():
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield _Count(parameter.dtype, parameter.requires_grad, *whole_and_local(parameter))
