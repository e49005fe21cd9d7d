"""Where the time of a window goes, counted tick by tick."""

from __future__ import annotations

from tests.oracle.model import Blocking, Launch, Rank, Work, busy


def split(rank: Rank, start: int, end: int) -> dict[str, int | None]:
    """The split of ``[start, end)`` under the keys of the report."""
    compute, comm, copies = rank.of("compute"), rank.of("comm"), rank.of("copy")
    launched = _launched(compute)
    count = dict.fromkeys(
        ["compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "copy_ns", "exposed_copy_ns", "idle_ns"], 0
    )
    host = {"exposed_host_ns": 0, "idle_host_ns": 0}
    for tick in range(start, end):
        computes, communicates, moves = busy(compute, tick), busy(comm, tick), busy(copies, tick)
        count["compute_ns"] += computes
        count["comm_ns"] += communicates
        count["copy_ns"] += moves
        count["overlap_ns"] += communicates and computes
        count["exposed_comm_ns"] += communicates and not computes
        count["exposed_copy_ns"] += moves and not computes and not communicates
        count["idle_ns"] += not (computes or communicates or moves)
        if not computes and host_bound(launched, rank.blocking, tick):
            host["exposed_host_ns"] += communicates
            host["idle_host_ns"] += not (communicates or moves)
    linked = any(work.launch is not None for work in rank.work)
    known = {key: value if linked else None for key, value in host.items()}
    blamed = count["exposed_comm_ns"] - host["exposed_host_ns"] if linked else None
    return {"duration_ns": end - start, **count, **known, "exposed_blocking_ns": blamed}


def _launched(compute: list[Work]) -> list[tuple[int, Launch | None]]:
    """Start and launch of the compute work that says something; None: launched before the capture.

    Compute without a link was launched before the capture if it starts before the first linked one, else it is
    left out.
    """
    linked = [work.start for work in compute if work.launch is not None]
    if not linked:
        return []
    return [(work.start, work.launch) for work in compute if work.launch is not None or work.start < min(linked)]


def host_bound(launched: list[tuple[int, Launch | None]], blocking: list[Blocking], tick: int) -> bool:
    """Whether nothing was enqueued at ``tick`` that could have computed, and the CPU was not held up.

    The launch that counts is the earliest among the compute work that starts from now on.
    """
    ahead = [launch for start, launch in launched if start >= tick]
    if not ahead or None in ahead:
        return False
    launch = min((one for one in ahead if one is not None), key=lambda one: one.time)
    held = any(b.thread == launch.thread and b.start <= tick < b.end for b in blocking)
    return tick < launch.time and not held


def union_length(work: list[Work]) -> int:
    """Ticks during which any of this work runs."""
    return sum(busy(work, tick) for tick in range(min(w.start for w in work), max(w.end for w in work)))
