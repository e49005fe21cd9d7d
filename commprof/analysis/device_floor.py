"""How long a step takes if its CPU is always ahead: what its device and its communication need in any case.

Compute runs without gaps but for calls that it has to wait for. A call starts when the call before it on its stream is
over and the compute that was launched before it has run; parameters are gathered a call ahead, since they are there
from the start. What computed while a call was under way did not wait for it, what resumed with its end did; reduced
gradients are needed when the last of them is reduced. So each call has a place in compute from which it can start, and
one that needs its end, whatever the CPU did in the trace.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.attribution import Pieces
from commprof.analysis.model import RankAnalysis
from commprof.analysis.places import CAUSES, PHASES, PURPOSES, PieceCauses
from commprof.analysis.trail import Progress
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

_GRADIENTS, _PARAMETERS, _ACTIVATIONS, _MESSAGES = (
    PURPOSES.index(name) for name in ("gradients", "parameters", "activations", "point-to-point")
)
_BACKWARD, _OPTIMIZER = PHASES.index("backward"), PHASES.index("optimizer")
_CPU_WAITS = [CAUSES.index(name) for name in ("blocking-wait", "device-synchronisation")]
_NEAR_NS = 3_000
"""Compute that starts so soon after a call has waited for it."""
_NEVER = 1 << 62
_REDUCES = [OPERATIONS.index(name) for name in ("all_reduce", "reduce_scatter", "reduce")]


@dataclass(frozen=True, slots=True)
class Floor:
    """Nanoseconds that steps of a rank take at least, and those of them up to the last message of a backward pass."""

    whole: int
    pipeline: int


def device_floors(rank: RankAnalysis, transfers: Int64Array, steps: Sequence[tuple[str, ...]]) -> list[Floor] | None:
    """What each of ``steps``, the names of its windows, needs on a rank; ``transfers`` are those of its calls without
    waiting, shape ``(calls,)``. ``None`` where the trace does not tell what was launched before what."""
    if rank.trail is None or rank.trail.progress is None:
        return None
    awaited = _awaited(rank.shares.pieces, rank.causes, rank.calls.end)
    of_window = {
        step.name: _of_window(rank, rank.trail.progress, transfers, awaited, place)
        for place, step in enumerate(rank.devices[0].steps)
    }
    parts = [[of_window[name] for name in names if name in of_window] for names in steps]
    return [Floor(sum(one.whole for one in part), sum(one.pipeline for one in part)) for part in parts]


def _of_window(
    rank: RankAnalysis, progress: Progress, transfers: Int64Array, awaited: NDArray[np.bool_], place: int
) -> Floor:
    calls, split = rank.calls, rank.devices[0].steps[place].split
    rows = np.flatnonzero((calls.start >= split.start) & (calls.start < split.end))
    rows = rows[np.argsort(calls.start[rows], kind="stable")]
    before, at_end = (
        np.clip(at[rows] - progress.at_steps[place], 0, split.compute) for at in (progress.before, progress.at_end)
    )
    purpose, phase = rank.places.purpose[rows], rank.places.phase[rows]
    gathers = (purpose == _PARAMETERS) & (phase != _OPTIMIZER)
    gradients = (purpose == _GRADIENTS) & np.isin(calls.operation[rows], _REDUCES)
    needed = np.where(gradients, before[gradients].max(initial=0), at_end)
    needed[~(gradients | (purpose == _ACTIVATIONS) | (phase == _OPTIMIZER) | awaited[rows])] = _NEVER
    ready = before.copy()
    ready[gathers] = np.append(0, before[gathers])[:-1]
    columns = (transfers[rows], calls.stream[rows])
    # Receives for the next step are posted at the end of this one.
    last = int(before[(purpose == _MESSAGES) & (phase == _BACKWARD)].max(initial=0))
    whole = split.compute + hold_up(ready, needed, *columns, until=split.compute)
    needed[gradients] = _NEVER
    return Floor(whole, last + hold_up(ready, needed, *columns, until=last) if last else 0)


def hold_up(ready: Int64Array, needed: Int64Array, transfers: Int64Array, streams: Int64Array, until: int) -> int:
    """By how much compute is held up before it has come to ``until`` by calls, in order of time, that can start when it
    has come to ``ready`` and whose end it needs at ``needed``."""
    delay = 0
    free: dict[int, int] = {}
    waited: list[tuple[int, int]] = []
    columns = (column.tolist() for column in (ready, needed, transfers, streams))
    for start, at, ns, stream in zip(*columns, strict=True):
        while waited and waited[0][0] <= start:
            place, end = heapq.heappop(waited)
            delay = max(delay, end - place)
        end = free[stream] = max(free.get(stream, 0), start + delay) + ns
        if at <= until:
            heapq.heappush(waited, (at, end))
    return max(delay, *(end - place for place, end in waited), 0)


def _awaited(pieces: Pieces, causes: PieceCauses, end: Int64Array) -> NDArray[np.bool_]:
    """Which calls are over when exposed time ends though the CPU was neither late nor waiting: compute resumed with
    them."""
    found = np.zeros(len(end), np.bool_)
    if not len(pieces):
        return found
    reached = np.maximum.accumulate(pieces.end)
    begins = np.append(True, pieces.start[1:] > reached[:-1])
    last = np.append(np.flatnonzero(begins)[1:] - 1, len(pieces) - 1)
    stretch = np.cumsum(begins) - 1
    by_device = (causes.host < pieces.ns) & ~np.isin(causes.cause, _CPU_WAITS)
    resumed = np.where(by_device[last], reached[last], _NEVER)[stretch]
    found[pieces.call[(end[pieces.call] <= resumed) & (end[pieces.call] + _NEAR_NS >= resumed)]] = True
    return found
