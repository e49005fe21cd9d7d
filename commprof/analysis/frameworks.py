"""What the program's own ranges and operators say about the libraries that communicate for it, counted per step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from commprof.analysis.ranges import codes_of
from commprof.analysis.windows import Marks
from commprof.trace.model import RankTrace

_KINDS: dict[str, re.Pattern[str]] = {
    "ddp": re.compile(r"^DistributedDataParallel\.forward"),
    "reducer": re.compile(r"^torch(?:::distributed::reducer::|\.distributed\.ddp\.reducer)"),
    "fsdp": re.compile(r"^(?:FSDP::|fsdp::|FullyShardedDataParallel\.)"),
    "fsdp-forward": re.compile(r"^(?:FSDP::root_pre_forward|FullyShardedDataParallel\._root_pre_forward)"),
    "zero-optimizer": re.compile(r"^Optimizer\.step#ZeroRedundancyOptimizer"),
    "gradients": re.compile(r"^autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
}
_EMBEDDING_BAG = re.compile(r"embedding_?bag|split_embedding|batched_embedding", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FrameworkMarks:
    """``per_step`` counts ranges by kind (``ddp``, ``reducer``, ``fsdp``, ``fsdp-forward``, ``zero-optimizer``,
    ``gradients``), as the median over step marks, or over the whole capture where there are none. ``embedding_bags``:
    the device ran kernels of embedding bags."""

    per_step: Mapping[str, int] = field(default_factory=dict)
    embedding_bags: bool = False

    def has(self, kind: str) -> bool:
        """Whether the trace holds a range of that kind."""
        return kind in self.per_step


def framework_marks(rank: RankTrace, marks: Marks) -> FrameworkMarks:
    """Count the ranges of one rank."""
    found: dict[str, int] = {}
    for kind, pattern in _KINDS.items():
        codes = codes_of(rank, pattern)
        tables = (rank.operators, rank.annotations)
        starts = np.concatenate([table.start[np.isin(table.name, codes)] for table in tables])
        if not len(starts):
            continue
        step = marks.step_of(starts)
        counts = np.bincount(step[step >= 0], minlength=len(marks.names))
        found[kind] = int(np.median(counts)) if len(marks.names) else len(starts)
    names = np.unique(rank.device.name).tolist()
    return FrameworkMarks(found, any(_EMBEDDING_BAG.search(rank.names[code]) for code in names))
