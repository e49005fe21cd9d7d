"""Which stretch of device time belongs to which step."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from tests.oracle.model import Rank, Step, Work


@dataclass(frozen=True)
class Window:
    """The window of one step; ``open``: its end is the end of the capture, not the start of the next step."""

    name: str
    start: int
    end: int
    open: bool = False


@dataclass(frozen=True)
class Windows:
    """How the windows were found, the windows, and the steps that have none with the reason."""

    source: str
    windows: list[Window]
    without: dict[str, str]


def cut(steps: list[Step]) -> list[Step]:
    """Marks in order of start, each cut where the next begins: every instant belongs to one of them."""
    ordered = sorted(steps, key=lambda step: step.start)
    ends = [min(step.end, after.start) for step, after in itertools.pairwise(ordered)]
    return [Step(s.name, s.start, e) for s, e in zip(ordered, [*ends, *(s.end for s in ordered[-1:])], strict=True)]


def launched_in(work: Work, step: Step) -> bool:
    """Whether the launch of ``work`` lies inside the (cut) mark."""
    return work.launch is not None and step.start <= work.launch.time < step.end


def main_stream(rank: Rank) -> int | None:
    """The stream with the largest sum of compute durations, ties to the lower number."""
    total: Counter[int] = Counter()
    for work in rank.of("compute"):
        total[work.stream] += work.end - work.start
    return min(total, key=lambda stream: (-total[stream], stream)) if total else None


def find_windows(rank: Rank) -> Windows:
    """The windows of a rank by launches where there are links, else by marks, else one for everything."""
    if not rank.steps:
        return Windows("none", [Window("window", rank.start, rank.end)], {})
    steps = cut(rank.steps)
    by_launch = _by_launch(rank, steps)
    if by_launch.windows:
        return by_launch
    return Windows("annotation", [Window(step.name, step.start, step.end) for step in steps], {})


def step_of(rank: Rank, call: list[Work], windows: list[Window]) -> str | None:
    """The label of a collective: the step of its launch, else the window that holds its start, else none."""
    for step in cut(rank.steps):
        if launched_in(call[0], step):
            return step.name
    start = min(work.start for work in call)
    return next((window.name for window in windows if window.start <= start < window.end), None)


def _by_launch(rank: Rank, steps: list[Step]) -> Windows:
    stream = main_stream(rank)
    begins: dict[int, int] = {}
    without: dict[str, str] = {}
    for number, step in enumerate(steps):
        launched = [work for work in rank.work if launched_in(work, step)]
        on_main = [work.start for work in launched if work.kind == "compute" and work.stream == stream]
        if on_main:
            begins[number] = min(on_main)
        else:
            without[step.name] = "no main compute" if launched else "no device work"
    found = []
    for number, begin in begins.items():
        later = [other for other in begins if other > number]
        last = number == len(steps) - 1
        if last:
            end = max(work.end for work in rank.work if any(launched_in(work, step) for step in steps))
        elif later and later[0] == number + 1:
            end = begins[later[0]]
        else:  # the next step has no window: own work, at most where the next window starts
            own = max(work.end for work in rank.work if launched_in(work, steps[number]))
            end = min([own, *(begins[other] for other in later[:1])])
        if end == begin:
            without[steps[number].name] = "timestamps out of order"
            continue
        found.append(Window(steps[number].name, begin, end, open=last))
    return Windows("launch", found, without)
