"""What of the critical path of the run a cause takes: the most that comes back without it.

Each part of the path is promised once, to the first finding that asks for it. A part is a kind of time on one rank; of
what all ranks do now and then, only what one does beyond the median of the others of its role is its fault. What CPUs
do on the path comes back until devices and communication are the longest path (:mod:`commprof.diagnosis.cpu_room`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.critical_path import CriticalPath, beyond_role, usual_of_role
from commprof.analysis.stragglers import Straggler
from commprof.intervals import Int64Array

KINDS = ("own", "launching", "inputs", "pauses", "cpu")
"""Parts of the path that lie on one rank, fields of :class:`CriticalPath`."""
TRANSFERS = "transfers"
"""Its part that lies on no rank: what calls of several ranks take."""


@dataclass(slots=True, eq=False)
class OnPath:
    """What a case asks for of the path: nanoseconds over all steps by kind, each of shape ``(ranks,)``, and how many
    ``ranks`` are to blame for it.

    ``at_most``, per step, holds where nothing tells what the CPUs could give back at all: a device may be short of work
    for less time than its CPU is on the path. ``transfers`` is asked of those of the matches of the path, shape
    ``(matches,)``. Without ``sure`` it is known how much of the path goes, but not which instants of it.
    """

    parts: dict[str, Int64Array]
    at_most: int | None = None
    ranks: int = 0
    transfers: Int64Array | None = None
    sure: bool = True

    @property
    def turn(self) -> float:
        """The fewest ranks first; what is sure of no instant comes with those that the path does not tell."""
        return math.inf if self.at_most is not None or not self.sure else float(self.ranks)


class PathLedger:
    """What of the path nobody has asked for yet, and of the ``room`` that faster CPUs have before the device is what
    the step waits for, nanoseconds per step; ``None`` where that is not known."""

    def __init__(self, path: CriticalPath | None, room: int | None = None) -> None:
        self.steps = 1 if path is None else path.steps
        self._room, self._given = room, 0
        self._left = {} if path is None else {kind: getattr(path, kind).copy() for kind in (*KINDS, TRANSFERS)}
        self.transfers = None if path is None else -(-int(path.transfers.sum()) // path.steps)
        """What calls take on the path, nanoseconds per step: all that hiding every one of them would give back."""

    def take(self, wanted: OnPath) -> int:
        """Nanoseconds per step that are left of what is wanted."""
        total = on_cpu = 0
        asked = dict(wanted.parts) if wanted.transfers is None else {**wanted.parts, TRANSFERS: wanted.transfers}
        for kind, ns in asked.items():
            got = np.minimum(self._left[kind], ns)
            self._left[kind] -= got
            total += int(got.sum())
            on_cpu += int(got.sum()) if kind not in ("own", TRANSFERS) else 0
        if not wanted.sure:
            # Calls that are not made take their time on the device with them, and leave the CPU to all other causes.
            return total // self.steps
        on_device = (total - on_cpu) // self.steps
        return on_device + self.of_room(total // self.steps - on_device, remainder=wanted.at_most is not None)

    def of_room(self, wanted: int, *, remainder: bool = False) -> int:
        """As much of it as faster CPUs could give back at all, nanoseconds per step. A cause that can go alone may
        take all of that, whatever others do; the ``remainder`` is what they leave."""
        if self._room is None:
            return wanted
        got = min(wanted, max(self._room - self._given, 0) if remainder else self._room)
        self._given += got
        return got


def all_of(path: CriticalPath | None, *kinds: str, at_most: int | None = None) -> OnPath | None:
    """These parts of all ranks."""
    return None if path is None else OnPath({kind: getattr(path, kind) for kind in kinds}, at_most, len(path.role))


def of_late(
    path: CriticalPath | None, numbers: Sequence[int], row: Straggler, own: Int64Array | None = None,
    on_cpu: Int64Array | None = None,
) -> OnPath | None:  # fmt: skip
    """What late ranks add to the path; ``numbers`` are the ranks of the input. ``None`` where the path does not tell
    what makes them late.

    ``own`` is what of it slow devices take longer, ``on_cpu`` what late CPUs may; nanoseconds of shape ``(ranks,)``.
    """
    if path is None:
        return None
    if row.kind == "rotating":
        return (
            OnPath({"pauses": path.pauses}, None, len(path.role)) if row.cause == "host" and path.pauses.any() else None
        )
    late = np.isin(np.array(numbers), row.members)
    if own is not None:
        found = {"own": own}
    elif row.cause == "input":
        found = {"inputs": beyond_role(path.inputs, path.fetched, path.role, late)}
    elif row.cause == "host":
        found = {"pauses": beyond_role(path.pauses, path.paused, path.role, late)}
        slower = 1 - usual_of_role(path.gap, path.role, late) / np.maximum(path.gap, 1.0)
        found |= {kind: (getattr(path, kind) * slower).astype(np.int64) for kind in ("launching", "cpu")}
        found = found if on_cpu is None else _filled(path, found, np.where(late, on_cpu, 0))
    else:
        return None
    return OnPath(found, None, int(late.sum())) if any(ns.any() for ns in found.values()) else None


def _filled(path: CriticalPath, found: dict[str, Int64Array], wanted: Int64Array) -> dict[str, Int64Array]:
    """These parts of the path, and what each rank lacks of ``wanted`` from what is left of them."""
    lacks = np.maximum(wanted - sum(found.values()), 0)
    out = {}
    for kind, ns in found.items():
        more = np.minimum(lacks, getattr(path, kind) - ns)
        out[kind], lacks = ns + more, lacks - more
    return out
