"""How much of the exposed communication each collective answers for, shared out stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.oracle.model import Rank, Work, busy
from tests.oracle.windows import Window


@dataclass
class Exposure:
    """One collective's part: ``sole <= exposed <= touched``; only ``exposed`` adds up over collectives."""

    exposed: int = 0
    sole: int = 0
    touched: int = 0
    by_step: dict[str, int] = field(default_factory=dict)


def calls_of(rank: Rank) -> dict[int, list[Work]]:
    """The kernels of each collective, in the order of the file."""
    calls: dict[int, list[Work]] = {}
    for work in rank.of("comm"):
        assert work.call is not None
        calls.setdefault(work.call, []).append(work)
    return calls


def exposures(rank: Rank, windows: list[Window]) -> dict[int, Exposure]:
    """The exposure of every collective of the rank."""
    calls = calls_of(rank)
    result = {call: Exposure() for call in calls}
    # Earliest start first, then the lower stream, then the order in the file: who gets a remainder.
    order = {work: place for place, work in enumerate(rank.work)}
    first = {call: min(kernels, key=lambda k: (k.start, k.stream, order[k])) for call, kernels in calls.items()}
    rank_of = {call: (k.start, k.stream, order[k]) for call, k in first.items()}
    for begin, end in _stretches(rank, windows):
        length = end - begin
        active = [call for call, kernels in calls.items() if busy(kernels, begin)]
        if not active or busy(rank.of("compute"), begin):
            continue
        resumes = min((work.start for work in rank.of("compute") if work.start >= begin), default=None)
        waited_for = [c for c in active if resumes is None or max(k.end for k in calls[c]) <= resumes]
        sharing = sorted(waited_for or active, key=rank_of.__getitem__)
        for place, call in enumerate(sharing):
            part = length // len(sharing) + (length % len(sharing) if place == 0 else 0)
            result[call].exposed += part
            for window in windows:
                if window.start <= begin < window.end:
                    result[call].by_step[window.name] = result[call].by_step.get(window.name, 0) + part
        for call in active:
            result[call].touched += length
            result[call].sole += length if len(active) == 1 else 0
    return result


def _stretches(rank: Rank, windows: list[Window]) -> Iterator[tuple[int, int]]:
    """Stretches of the whole capture, cut at every start, every end and every window border."""
    cuts = {edge for work in rank.work for edge in (work.start, work.end)}
    cuts |= {edge for window in windows for edge in (window.start, window.end)}
    begin = rank.start
    for tick in range(rank.start + 1, rank.end + 1):
        if tick in cuts:
            yield begin, tick
            begin = tick
