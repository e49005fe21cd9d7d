"""Where the time of all ranks and steps together went."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis, Split
from commprof.analysis.steps import Unit, units
from commprof.analysis.waiting import CallWaits
from commprof.intervals import union


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over ranks and steps, nanoseconds; ``count`` is the number of steps over all ranks."""

    count: int
    duration: int
    compute: int
    exposed_comm: int
    blocking: int
    host: int
    exposed_copy: int
    idle: int
    comm: int
    overlap: int
    fused: int

    def share(self, ns: int) -> float:
        """Share of step time."""
        return ns / self.duration if self.duration else 0.0


def totals_of(analysis: Analysis) -> Totals | None:
    """Sums over the steps that means are taken over; ``None`` without any."""
    chosen: list[Unit] = [
        unit for rank in analysis.ranks for device in rank.devices for unit in units(device, rank.optimizer_marks)
    ]
    if not chosen:
        return None

    def total(name: str) -> int:
        return sum(unit.total(name) or 0 for unit in chosen)

    # Where nothing links work to launches, all exposed communication may be what blocks.
    blocking = sum(
        known if (known := unit.total("exposed_blocking")) is not None else unit.total("exposed_comm") or 0
        for unit in chosen
    )
    return Totals(
        len(chosen), total("duration"), total("compute"), total("exposed_comm"), blocking, total("exposed_host"),
        total("exposed_copy"), total("idle"), total("comm"), total("overlap"), total("fused"),
    )  # fmt: skip


def transfer_of(analysis: Analysis) -> int | None:
    """Communication without waiting, summed over the steps that means are taken over: at least so much is transferred.

    Calls whose waiting is not known count as if they were nothing else, of the others what comes after their wait.
    ``None`` where no waiting is known.
    """
    if not any(((waits.wait >= 0) & ~waits.bound).any() for waits in analysis.waiting):
        return None
    return sum(
        _transferred(rank, waits, device.device, split)
        for rank, waits in zip(analysis.ranks, analysis.waiting, strict=True)
        for device in rank.devices
        for unit in units(device, rank.optimizer_marks)
        for split in unit.splits
    )


def _transferred(rank: RankAnalysis, waits: CallWaits, device: int, window: Split) -> int:
    calls = rank.calls
    mine = (calls.device == device) & ~calls.fused & (waits.wait >= 0) & ~waits.bound
    start, end = calls.start[mine] + waits.wait[mine], calls.end[mine]
    found = union(np.maximum(start, window.start), np.minimum(end, window.end))
    return min(window.comm, found.total())
