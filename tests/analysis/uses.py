"""Groups and their calls by hand, without a trace: what one member does in one step, as (operation, bytes, phase)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commprof.analysis.group_use import GroupUse, decide
from commprof.analysis.places import PHASES
from commprof.analysis.traffic import Traffic
from commprof.trace.model import GroupFacts
from commprof.trace.operations import OPERATIONS, bus_factor

Call = tuple[str, int, str | None]

F, B, O = "forward", "backward", "optimizer"  # noqa: E741


def codes(calls: Sequence[Call]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operations, sizes and phases as columns."""
    operation = np.array([OPERATIONS.index(op) for op, _, _ in calls], np.int8)
    size = np.array([size for _, size, _ in calls], np.int64)
    phase = np.array([-1 if where is None else PHASES.index(where) for _, _, where in calls], np.int8)
    return operation, size, phase


def use(
    calls: Sequence[Call],
    ranks: tuple[int, ...],
    *,
    group: int = 0,
    description: str | None = None,
    peers: Sequence[int] | None = None,
    place: Sequence[float] | None = None,
    member: int | None = None,
    width: int = 4,
    messages_of: tuple[int, ...] = (),
) -> GroupUse:
    """One step of the first rank of a group (or of ``member``), with its purposes decided."""
    operation, size, phase = codes(calls)
    found = GroupUse(
        group=group,
        facts=GroupFacts(str(group), description, ranks, len(ranks), "known"),
        member=ranks[0] if member is None else member,
        operation=operation,
        size=size,
        width=np.full(len(calls), width, np.int64),
        phase=phase,
        unit=np.zeros(len(calls), np.int64),
        units=1,
        place=np.full(len(calls), np.nan) if place is None else np.array(place, np.float64),
        peer=np.full(len(calls), -1, np.int64) if peers is None else np.array(peers, np.int64),
        messages_of=messages_of,
    )
    decide(found)
    return found


def traffic(calls: Sequence[Call], members: int, width: int = 4) -> Traffic:
    """One step of one rank in one group of ``members`` ranks."""
    operation, size, phase = codes(calls)
    count = len(calls)
    factor = np.array([bus_factor(op, members) or 0.0 for op, _, _ in calls])
    zeros = np.zeros(count, np.int64)
    return Traffic(
        rank=zeros, group=zeros, operation=operation, phase=phase, unit=zeros, size=size,
        width=np.full(count, width, np.int64), floating=np.ones(count, np.bool_), moved=size * factor,
        place=np.full(count, np.nan), peer=np.full(count, -1, np.int64),
        units=np.ones(1, np.int64),
    )  # fmt: skip
