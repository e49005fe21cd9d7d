"""The exact split and exposure of one rank, by walking over every instant at which something starts or ends.

This is the simulator's own derivation of the definitions (steps, split, exposure of one collective, host-bound
part). It is written to be obviously right, one stretch of time after the other, and shares no code with the analysis.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise

from commprof.synth.plan import Plan
from commprof.synth.program import Kind
from commprof.synth.timeline import RankTimeline
from commprof.synth.writer import runtime_end

COMPUTE, COMM, COPY = "compute", "comm", "copy"
SPLIT_KEYS = (
    "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "copy_ns", "exposed_copy_ns", "idle_ns",
    "exposed_host_ns", "idle_host_ns",
)  # fmt: skip


@dataclass(slots=True)
class Work:
    """One device event: ``index`` is its instruction, ``launch`` and ``thread`` where it was launched."""

    start: int
    end: int
    kind: str
    stream: int
    index: int
    launch: int
    thread: int
    step: int


@dataclass(slots=True)
class Window:
    """A span of time whose split is wanted."""

    name: str
    start: int
    end: int
    open: bool = False
    split: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SPLIT_KEYS, 0))


@dataclass(slots=True)
class Exposure:
    """Exposed time of one collective: its share, the part as only collective, and all it touched; per window."""

    exposed: int = 0
    sole: int = 0
    touched: int = 0
    by_window: dict[str, int] = field(default_factory=dict)
    stretches: list[tuple[int, int, int]] = field(default_factory=list)

    def until(self, instant: int) -> int:
        """The part of ``exposed`` before ``instant``; a stretch that holds it is cut in proportion, rounded down."""
        part = 0
        for start, end, share in self.stretches:
            part += share if end <= instant else max(0, instant - start) * share // (end - start)
        return part


@dataclass(slots=True)
class RankTruth:
    """Windows of the steps, the whole, and the exposure of each collective by instruction."""

    steps: list[Window]
    whole: Window
    without_window: list[tuple[str, str]]
    exposure: dict[int, Exposure]
    work: list[Work]
    main_stream: int

    def launched_before(self, call: Work) -> Work | None:
        """The last compute on the main stream that the thread of ``call`` launched before it."""
        found = None
        for w in self.work:
            if w.index >= call.index:
                break
            if w.kind == COMPUTE and w.stream == self.main_stream and w.thread == call.thread:
                found = w
        return found


def device_work(plan: Plan, rank: int, shown: RankTimeline) -> list[Work]:
    """Everything that ran on the device of ``rank``, in the order of the file."""
    kinds = {Kind.COMPUTE: COMPUTE, Kind.COPY: COPY}
    return [
        Work(
            shown.dev_start[i], shown.dev_end[i], kinds.get(ins.kind, COMM), ins.stream, i, shown.launch[i],
            ins.thread, ins.step,
        )
        for i, ins in plan.program(rank).launches()
    ]  # fmt: skip


def rank_truth(plan: Plan, rank: int, shown: RankTimeline) -> RankTruth:
    """Split and exposure of one rank on its own clock."""
    work = device_work(plan, rank, shown)
    steps, missing = _windows(plan, rank, shown, work)
    whole = Window("whole", min(w.start for w in work), max(w.end for w in work))
    blocking = _blocking_calls(plan, rank, shown)
    exposure = {w.index: Exposure() for w in work if w.kind == COMM}
    _walk(work, steps, whole, exposure, blocking)
    return RankTruth(steps, whole, missing, exposure, work, _main_stream(work))


def _windows(
    plan: Plan, rank: int, shown: RankTimeline, work: list[Work]
) -> tuple[list[Window], list[tuple[str, str]]]:
    """Step windows: from the first compute on the main stream that step ``k`` launched to that of the next step."""
    marks = [
        (ins.name, shown.cpu_start[i])
        for i, ins in enumerate(plan.program(rank).instructions)
        if ins.kind == Kind.BEGIN and ins.name.startswith("ProfilerStep#")
    ]
    finish = _last_mark_end(plan, rank, shown)
    cut = [start for _, start in marks[1:]] + [finish]
    main = _main_stream(work)
    inside: list[list[Work]] = [[w for w in work if a <= w.launch < b] for (_, a), b in zip(marks, cut, strict=True)]
    starts: list[int | None] = [
        min((w.start for w in launched if w.kind == COMPUTE and w.stream == main), default=None) for launched in inside
    ]
    last_end = max((w.end for launched in inside for w in launched), default=0)
    windows, missing = [], []
    for k, (name, _) in enumerate(marks):
        start = starts[k]
        if start is None:
            missing.append((name, "no main compute" if inside[k] else "no device work"))
            continue
        later = [s for s in starts[k + 1 :] if s is not None]
        if k + 1 < len(marks) and starts[k + 1] is not None:
            windows.append(Window(name, start, later[0]))
        elif later:
            windows.append(Window(name, start, min(later[0], max(w.end for w in inside[k]))))
        else:
            windows.append(Window(name, start, last_end, open=True))
    return windows, missing


def _last_mark_end(plan: Plan, rank: int, shown: RankTimeline) -> int:
    """Where the annotation of the last step ends on the CPU."""
    depth, end = [], 0
    for i, ins in enumerate(plan.program(rank).instructions):
        if ins.kind == Kind.BEGIN:
            depth.append(ins.name)
        elif ins.kind == Kind.END and depth.pop().startswith("ProfilerStep#"):
            end = shown.cpu_end[i]
    return end


def _main_stream(work: list[Work]) -> int:
    total: dict[int, int] = {}
    for w in work:
        if w.kind == COMPUTE:
            total[w.stream] = total.get(w.stream, 0) + w.end - w.start
    return min(total, key=lambda s: (-total[s], s))


def _blocking_calls(plan: Plan, rank: int, shown: RankTimeline) -> list[tuple[int, int, int]]:
    """Thread, start and end of the runtime calls that synchronise or copy."""
    calls = []
    for i, ins in enumerate(plan.program(rank).instructions):
        if ins.kind == Kind.SYNC:
            calls.append((ins.thread, shown.cpu_start[i], shown.cpu_end[i]))
        elif ins.kind == Kind.COPY:
            calls.append((ins.thread, shown.launch[i], runtime_end(shown.launch[i], shown.cpu_end[i], plan.tick_ns)))
    return calls


def _walk(
    work: list[Work],
    windows: list[Window],
    whole: Window,
    exposure: dict[int, Exposure],
    blocking: list[tuple[int, int, int]],
) -> None:
    """Go through the stretches between all starts, ends and window borders, and book each one.

    ``windows`` do not overlap; ``whole`` is booked beside them.
    """
    order = sorted(range(len(work)), key=lambda n: (work[n].start, work[n].stream, n))
    borders = {w.start for w in windows} | {w.end for w in windows}
    points = sorted({w.start for w in work} | {w.end for w in work} | borders)
    compute = sorted(((w.start, w.launch, w.thread) for w in work if w.kind == COMPUTE), key=lambda c: c[0])
    compute_starts = [c[0] for c in compute]
    earliest = _earliest_launch(compute)
    active: list[Work] = []
    upcoming = 0
    for p, q in pairwise(points):
        active = [w for w in active if w.end > p]
        while upcoming < len(order) and work[order[upcoming]].start <= p:
            if work[order[upcoming]].end > p:
                active.append(work[order[upcoming]])
            upcoming += 1
        window = next((w for w in windows if w.start <= p < w.end), None)
        computing = any(w.kind == COMPUTE for w in active)
        comms = [w for w in active if w.kind == COMM]
        following = bisect_left(compute_starts, q)
        if comms and not computing:
            resume = compute_starts[following] if following < len(compute) else None
            _share(comms, (p, q), resume, exposure, window)
        host = 0
        if not computing and following < len(compute):
            launch, thread = earliest[following]
            host = _host_bound(p, min(q, launch), thread, blocking)
        copying = any(w.kind == COPY for w in active)
        for booked in (window, whole if whole.start <= p < whole.end else None):
            if booked is not None:
                _book(booked, q - p, computing, bool(comms), copying, host)


def _earliest_launch(compute: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """For each compute event in order of start: the earliest launch among it and all later ones, and its thread."""
    result: list[tuple[int, int]] = []
    best: tuple[int, int] | None = None
    for _, launch, thread in reversed(compute):
        if best is None or launch < best[0]:
            best = (launch, thread)
        result.append(best)
    return result[::-1]


def _host_bound(start: int, end: int, thread: int, blocking: list[tuple[int, int, int]]) -> int:
    """Length of ``[start, end)`` outside the blocking calls of ``thread``."""
    if end <= start:
        return 0
    inside = sum(max(0, min(end, b) - max(start, a)) for on, a, b in blocking if on == thread and a < end and b > start)
    return end - start - inside


def _share(
    comms: list[Work],
    stretch: tuple[int, int],
    resume: int | None,
    exposure: dict[int, Exposure],
    window: Window | None,
) -> None:
    """Give a stretch without compute to the collectives that compute waited for, else to all that are active."""
    length = stretch[1] - stretch[0]
    for w in comms:
        exposure[w.index].touched += length
    if len(comms) == 1:
        exposure[comms[0].index].sole += length
    charged = [w for w in comms if resume is not None and w.end <= resume] or comms
    charged.sort(key=lambda w: (w.start, w.stream, w.index))
    each, rest = divmod(length, len(charged))
    for n, w in enumerate(charged):
        part = each + (rest if n == 0 else 0)
        exposure[w.index].exposed += part
        exposure[w.index].stretches.append((*stretch, part))
        if window is not None:
            by_window = exposure[w.index].by_window
            by_window[window.name] = by_window.get(window.name, 0) + part


def _book(window: Window, length: int, computing: bool, communicating: bool, copying: bool, host: int) -> None:
    split = window.split
    split["compute_ns"] += length if computing else 0
    split["comm_ns"] += length if communicating else 0
    split["copy_ns"] += length if copying else 0
    if computing:
        split["overlap_ns"] += length if communicating else 0
    elif communicating:
        split["exposed_comm_ns"] += length
        split["exposed_host_ns"] += host
    elif copying:
        split["exposed_copy_ns"] += length
    else:
        split["idle_ns"] += length
        split["idle_host_ns"] += host
