"""Time that the CPU spends per step in ranges which single findings are about."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from commprof.analysis.ranges import find_ranges
from commprof.analysis.windows import Marks
from commprof.intervals import Int64Array
from commprof.trace.model import RankTrace

SPANS: dict[str, re.Pattern[str]] = {
    "unused-search": re.compile(r"^torch\.distributed\.ddp\.reducer::search_unused_parameters"),
    "compiled-backward": re.compile(r"^(?:autograd::engine::evaluate_function: )?CompiledFunctionBackward"),
}


@dataclass(frozen=True, slots=True, eq=False)
class SpanTimes:
    """Ranges of one kind by the step mark in which they start, arrays of shape ``(marks,)``: how many and how long."""

    count: Int64Array
    ns: Int64Array


def named_spans(rank: RankTrace, marks: Marks) -> dict[str, SpanTimes]:
    """The kinds of :data:`SPANS` that the rank has; without step marks all of its ranges are in one entry."""
    found = {}
    for kind, pattern in SPANS.items():
        ranges = find_ranges(rank, pattern)
        if not len(ranges):
            continue
        step = marks.step_of(ranges.start) if len(marks.start) else np.zeros(len(ranges), np.int64)
        inside = step >= 0
        size = max(1, len(marks.names))
        ns = np.zeros(size, np.int64)
        np.add.at(ns, step[inside], (ranges.end - ranges.start)[inside])
        found[kind] = SpanTimes(np.bincount(step[inside], minlength=size).astype(np.int64), ns)
    return found
