"""The exact split of windows into compute, exposed communication, exposed copies and idle (``spec``: section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.model import Split
from commprof.analysis.work import Work
from commprof.intervals import Int64Array, IntervalSet, union
from commprof.trace.model import NOT_LAUNCHED


@dataclass(slots=True, eq=False)
class Splitter:
    """Measures any windows of one device; ``host`` are its host-bound instants, ``None`` if nothing is linked."""

    work: Work
    host: IntervalSet | None

    def split(self, start: Int64Array, end: Int64Array) -> list[Split]:
        """One :class:`Split` per window ``[start[i], end[i])``."""
        work = self.work
        compute, comm, copy = work.compute, work.comm, work.copy
        exposed = comm - compute
        hidden = comm & compute
        exposed_copy = (copy - compute) - comm
        busy = compute | comm | copy
        measured = {
            "compute": compute, "comm": comm, "copy": copy, "exposed_comm": exposed, "overlap": hidden,
            "exposed_copy": exposed_copy, "fused": _where(work, work.compute_fused),
            "overlap_comm_copies": hidden - _where(work, ~work.compute_for_comm),
        }  # fmt: skip
        if work.compute_thin is not None:
            measured["overlap_thin"] = hidden - _where(work, ~work.compute_thin)
        if self.host is not None:
            measured["exposed_host"] = exposed & self.host
            measured["idle_host"] = self.host - busy
        columns = {name: which.within(start, end) for name, which in measured.items()}
        columns["idle"] = (end - start) - columns["compute"] - columns["exposed_comm"] - columns["exposed_copy"]
        linked = self._has_launch(start, end)
        return [
            _one(
                int(start[i]), int(end[i]), {name: int(column[i]) for name, column in columns.items()}, bool(linked[i])
            )
            for i in range(len(start))
        ]

    def _has_launch(self, start: Int64Array, end: Int64Array) -> NDArray[np.bool_]:
        """Whether any compute event that starts in a window is linked to its launch."""
        linked = np.sort(self.work.compute_start[self.work.compute_launch != NOT_LAUNCHED])
        return np.searchsorted(linked, end) > np.searchsorted(linked, start)


def _where(work: Work, chosen: NDArray[np.bool_]) -> IntervalSet:
    return union(work.compute_start[chosen], work.compute_end[chosen])


def _one(start: int, end: int, values: dict[str, int], linked: bool) -> Split:
    split = Split(
        start=start,
        end=end,
        compute=values["compute"],
        fused=values["fused"],
        comm=values["comm"],
        overlap=values["overlap"],
        overlap_comm_copies=values["overlap_comm_copies"],
        overlap_thin=values.get("overlap_thin"),
        exposed_comm=values["exposed_comm"],
        copy=values["copy"],
        exposed_copy=values["exposed_copy"],
        idle=values["idle"],
        exposed_host=values.get("exposed_host") if linked else None,
        idle_host=values.get("idle_host") if linked else None,
    )
    # Cheap, and the whole product rests on it.
    if split.overlap + split.exposed_comm != split.comm or min(values.values()) < 0:
        raise AssertionError(f"split of [{start}, {end}) does not add up: {values}")
    return split
