"""Forward, backward, optimizer or input: the part of the training step in which something was launched.

Decided for an instant of a CPU thread, in this order:

1. inside the autograd engine (``autograd::engine::evaluate_function*``) or a hook of the backward pass: backward, also
   where activations are computed again;
2. inside ``Optimizer.step#*``: optimizer; inside ``enumerate(DataLoader)*``: input; inside a hook of the forward pass
   or a wrapper's ``forward``: forward;
3. on a thread that holds the engine and no mark of the loop: backward;
4. else by place in the step. Between two pieces of a backward pass: backward. Before one: forward. After the last one
   of the step: optimizer, for all that follows gradients updates with them (norms, parameters gathered again).
   A send belongs to the compute launched before it and a receive to the compute launched after it: pipelines send
   between passes.

Where no pass of the engine is in the step, and no range says more, the phase is unknown. In a trace that links
nothing to its launch the same rules are applied to the instant at which a call starts on the device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.places import NOWHERE, PHASES
from commprof.analysis.ranges import Ranges, contained, find_ranges
from commprof.analysis.scene import Scene
from commprof.analysis.windows import Marks
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.links import thread_keys
from commprof.trace.model import NOT_LAUNCHED, RankTrace
from commprof.trace.operations import OPERATIONS

FORWARD, BACKWARD, OPTIMIZER, INPUT = range(4)
assert PHASES == ("forward", "backward", "optimizer", "input")

Phase = NDArray[np.int8]

_ENGINE = r"autograd::engine::evaluate_function"
_BACKWARD = (
    r"FSDP::(?:pre_backward|post_backward|backward_prefetch|root_post_backward)"
    r"|FullyShardedDataParallel\._(?:pre|post)_backward|Backward \d|CompiledFunctionBackward"
)
_OPTIMIZER = r"Optimizer\.step#"
_INPUT = r"enumerate\(DataLoader\)"
_FORWARD = (
    r"DistributedDataParallel\.forward|FSDP::(?:root_pre_forward|pre_forward|post_forward|forward_prefetch)"
    r"|FullyShardedDataParallel\.(?:forward|_root_pre_forward|_pre_forward|_post_forward)|Forward \d"
)
_KINDS = {"engine": _ENGINE, "backward": _BACKWARD, "optimizer": _OPTIMIZER, "input": _INPUT, "forward": _FORWARD}
_ANY = re.compile("|".join(rf"^(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()))
_RANGED = (("forward", FORWARD), ("input", INPUT), ("optimizer", OPTIMIZER))
_SENDS, _RECEIVES = OPERATIONS.index("send"), (OPERATIONS.index("recv"), OPERATIONS.index("send_recv"))
EVERYWHERE = 0


@dataclass(slots=True, eq=False)
class Phases:
    """Answers which phase an instant of a thread belongs to.

    ``passes`` are the pieces of backward passes over all threads, joined where no other work was launched between;
    ``borders`` cut the capture into steps.
    """

    ranged: dict[str, dict[int, IntervalSet]]
    backward_threads: list[int]
    passes: IntervalSet
    borders: Int64Array

    def of(self, thread: Int64Array, instant: Int64Array) -> Phase:
        """Phase of each instant (``NOT_LAUNCHED``: unknown) of a thread; shape ``(n,)``."""
        out, placed = self._by_range(thread, instant)
        rest = np.flatnonzero(~placed)
        out[rest] = self.by_place(instant[rest])
        out[instant == NOT_LAUNCHED] = NOWHERE
        return out

    def told(self, thread: Int64Array, instant: Int64Array) -> NDArray[np.bool_]:
        """Whether a range or the thread says the phase, and not only the place in the step."""
        return self._by_range(thread, instant)[1]

    def _by_range(self, thread: Int64Array, instant: Int64Array) -> tuple[Phase, NDArray[np.bool_]]:
        out = np.full(len(instant), NOWHERE, np.int8)
        out[np.isin(thread, self.backward_threads)] = BACKWARD
        for kind, phase in _RANGED:
            out[contained(self.ranged[kind], thread, instant)] = phase
        for kind in ("engine", "backward"):
            out[contained(self.ranged[kind], thread, instant)] = BACKWARD
        return out, out != NOWHERE

    def by_place(self, instant: Int64Array) -> Phase:
        """Phase by place in the step alone."""
        out = np.full(len(instant), NOWHERE, np.int8)
        if not len(self.passes):
            return out
        low = np.searchsorted(self.borders, instant, side="right")
        begin = np.concatenate([[np.iinfo(np.int64).min], self.borders])[low]
        end = np.concatenate([self.borders, [np.iinfo(np.int64).max]])[low]
        following = np.searchsorted(self.passes.starts, instant, side="right")
        comes = following < len(self.passes)
        comes[comes] = self.passes.starts[following[comes]] < end[comes]
        before = following > 0
        before[before] = self.passes.ends[following[before] - 1] > begin[before]
        out[before] = OPTIMIZER
        out[comes] = FORWARD
        out[self.passes.contains(instant)] = BACKWARD
        return out


def find_phases(scene: Scene) -> Phases:
    """Prepare the phases of one rank."""
    ranges = find_ranges(scene.rank, _ANY)
    kind_of = {code: _kind(scene.rank.names[code]) for code in np.unique(ranges.name).tolist()}
    kinds = np.array([kind_of[code] for code in ranges.name.tolist()], np.str_)
    ranged = {kind: ranges.spans(kinds == kind) for kind in _KINDS}
    backward = set(ranged["engine"]) - set(ranged["optimizer"]) - set(ranged["forward"]) - set(ranged["input"])
    threads = sorted(backward - _marked_threads(scene.rank, scene.marks))
    pieces = union(*_of(ranges, np.isin(kinds, ["engine", "backward"])))
    other = ranges.start[np.isin(kinds, ["forward", "optimizer", "input"])]
    launched = _main_work(ranged, threads, scene.launch, scene.thread)
    passes = _joined(pieces, np.sort(np.concatenate([launched, other[~pieces.contains(other)]])))
    borders = scene.marks.start if len(scene.marks.start) else np.unique(ranges.end[kinds == "optimizer"])
    if scene.by_time:
        # Without launches a range holds for whatever runs on the device meanwhile.
        ranged = {kind: {EVERYWHERE: union(*_of(ranges, kinds == kind))} for kind in _KINDS}
        return Phases(ranged, [], passes, borders)
    return Phases(ranged, threads, passes, borders)


def phases_of_calls(phases: Phases, scene: Scene) -> Phase:
    """Phase of every call, shape ``(calls,)``."""
    calls = scene.calls
    if scene.by_time:
        return phases.of(np.full(len(calls), EVERYWHERE), calls.start)
    out = phases.of(calls.thread, calls.issued)
    passing = np.isin(calls.operation, [_SENDS, *_RECEIVES]) & (calls.issued != NOT_LAUNCHED)
    passing &= ~phases.told(calls.thread, calls.issued)
    known = scene.launch != NOT_LAUNCHED
    if not passing.any() or not known.any():
        return out
    order = np.argsort(scene.launch[known], kind="stable")
    times, threads = scene.launch[known][order], scene.thread[known][order]
    after = np.searchsorted(times, calls.issued, side="left")
    neighbour = np.where(calls.operation == _SENDS, after - 1, after)
    there = np.flatnonzero(passing & (neighbour >= 0) & (neighbour < len(times)))
    out[there] = phases.of(threads, times)[neighbour[there]]
    return out


def _kind(name: str) -> str:
    match = _ANY.search(name)
    assert match is not None
    return str(match.lastgroup)


def _of(ranges: Ranges, chosen: NDArray[np.bool_]) -> tuple[Int64Array, Int64Array]:
    return ranges.start[chosen], ranges.end[chosen]


def _marked_threads(rank: RankTrace, marks: Marks) -> set[int]:
    """Threads that hold a step mark: those of the loop."""
    names = set(marks.names)
    codes = [code for code, name in enumerate(rank.names) if name in names]
    found: set[int] = set()
    for table in (rank.operators, rank.annotations):
        rows = np.isin(table.name, codes)
        found |= set(thread_keys(table.pid[rows], table.tid[rows]).tolist())
    return found


def _main_work(
    ranged: dict[str, dict[int, IntervalSet]], backward: list[int], launch: Int64Array, thread: Int64Array
) -> Int64Array:
    """Instants at which something outside every backward pass was launched."""
    inside = np.isin(thread, backward) | (launch == NOT_LAUNCHED)
    for kind in ("engine", "backward"):
        inside |= contained(ranged[kind], thread, launch)
    outside: Int64Array = launch[~inside]
    return outside


def _joined(pieces: IntervalSet, work: Int64Array) -> IntervalSet:
    """Pieces of backward passes, joined where no other work was launched between them; ``work`` is sorted."""
    if not len(pieces):
        return pieces
    apart = np.searchsorted(work, pieces.starts[1:]) > np.searchsorted(work, pieces.ends[:-1])
    return IntervalSet(pieces.starts[np.concatenate([[True], apart])], pieces.ends[np.concatenate([apart, [True]])])
