"""The module that a call works for, where the program says so: FSDP2 names every range after its parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.ranges import NONE, Ranges, find_ranges
from commprof.analysis.scene import Scene
from commprof.intervals import Int64Array

ROOT = "(root)"
"""Name of the module whose parameters no other unit holds."""

_RANGE = re.compile(r"^FSDP::|^FullyShardedDataParallel\.")
_NAMED = re.compile(r"^FSDP::(?P<what>\w+?)(?: \((?P<module>[^)]*)\)| for (?P<other>\S+))?(?: \[pg=\d+\])?$")
_ROOT_RANGES = ("all_gather", "pre_forward", "pre_backward", "post_backward_reduce", "post_backward_accumulate")


@dataclass(slots=True, eq=False)
class Modules:
    """``names`` of all modules, and for each call the index of its own (-1) and whether FSDP launched it."""

    names: list[str]
    of_call: NDArray[np.int32]
    sharded: NDArray[np.bool_]


def find_modules(scene: Scene) -> Modules:
    """The modules of the calls of one rank."""
    calls = scene.calls
    ranges = find_ranges(scene.rank, _RANGE)
    of_call = np.full(len(calls), NONE, np.int32)
    sharded = np.zeros(len(calls), np.bool_)
    if not len(ranges) or not len(calls):
        return Modules([], of_call, sharded)
    names: dict[str, int] = {}
    code_of = {code: _index(names, module_of(scene.rank.names[code])) for code in np.unique(ranges.name).tolist()}
    row = ranges.innermost(calls.thread, calls.issued)
    sharded = row != NONE
    for _ in range(3):
        # The innermost range names the module whose parameters move; one without a name may lie in one that has it.
        module = _modules(ranges, row, code_of)
        of_call = np.where(of_call == NONE, module, of_call).astype(np.int32)
        row = ranges.outwards(row)
    return Modules(list(names), of_call, sharded)


def module_of(name: str) -> str | None:
    """Module in the name of a range of FSDP: ``FSDP::all_gather (layers.0)`` works for ``layers.0``."""
    match = _NAMED.match(name)
    if match is None:
        return None
    found = match["module"] or match["other"]
    return found or (ROOT if match["what"] in _ROOT_RANGES else None)


def _index(names: dict[str, int], module: str | None) -> int:
    return NONE if module is None else names.setdefault(module, len(names))


def _modules(ranges: Ranges, row: Int64Array, code_of: dict[int, int]) -> Int64Array:
    found = np.full(len(row), NONE, np.int64)
    there = np.flatnonzero(row != NONE)
    found[there] = [code_of[code] for code in ranges.name[row[there]].tolist()]
    return found
