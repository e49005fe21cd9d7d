"""DDP's gradient buckets, read from what DDP logs about itself: no hook, no change to the run.

Facts of the log (torch 2.13): sizes in bytes in launch order; parameters as indices into those that
require a gradient, in the order of the module tree; the first iteration uses one bucket, unless unused
parameters are searched for, in which case the first layout stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from commprof.manifest import Bucket, DdpModule, Layout

# Statistics of single iterations are no options.
_NOT_OPTIONS = ("_time", "_start", "_end", "bucket_sizes", "_indices", "iteration", "num_buckets_reduced")


def describe_ddp(modules: Iterable[tuple[str, torch.nn.Module]]) -> tuple[DdpModule, ...]:
    """Every DistributedDataParallel module below ``modules``: a module itself, wrapped, compiled or nested."""
    found = [
        (name, part)
        for prefix, module in modules
        for name, part in module.named_modules(prefix=prefix)
        if isinstance(part, DistributedDataParallel)
    ]
    return tuple(_describe(name, ddp) for name, ddp in found)


def _describe(name: str, ddp: Any) -> DdpModule:
    log = ddp._get_ddp_logging_data()
    options = {k: v for k, v in sorted(log.items()) if not k.endswith(_NOT_OPTIONS) and not k.startswith("avg_")}
    module = name or str(log.get("module_name", ""))
    return DdpModule(module=module, buckets=_buckets(log, _names(ddp)), options=options)


def _buckets(log: dict[str, Any], names: list[str]) -> tuple[Bucket, ...]:
    if log.get("rebuilt_bucket_sizes"):
        sizes = _numbers(log["rebuilt_bucket_sizes"], ",")
        members = [_numbers(part, " ") for part in log.get("rebuilt_per_bucket_param_indices", "").split(",")]
        layout: Layout = "rebuilt"
    else:
        sizes = _numbers(log.get("bucket_sizes", ""), ",")
        members = []
        layout = "static" if log.get("find_unused_parameters") and not log.get("static_graph") else "first-iteration"
    if len(sizes) == 1 and not members:
        members = [list(range(len(names)))]
    # Names are given only where the counts say that they are the right ones.
    listed = sum(map(len, members))
    known = len(members) == len(sizes) and listed == len(names) == log.get("num_parameter_tensors")
    return tuple(
        Bucket(
            index=index,
            size_bytes=size,
            parameters=tuple(names[i] for i in members[index]) if known else (),
            layout=layout,
        )
        for index, size in enumerate(sizes)
    )


def _names(ddp: Any) -> list[str]:
    """Names of the parameters that DDP reduces, in the order of its indices; a shared one counts once."""
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    names: list[str] = []
    seen: set[int] = set()
    for prefix, module in ddp.module.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if not parameter.requires_grad or f"{prefix}.{name}" in ignored or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            names.append(f"{prefix}.{name}" if prefix else name)
    return names


def _numbers(text: str, separator: str) -> list[int]:
    return [int(part) for part in text.split(separator) if part.strip()]
