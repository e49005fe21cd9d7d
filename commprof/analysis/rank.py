"""One rank from its columns to its numbers; afterwards the columns can be forgotten."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.behaviour import find_behaviour
from commprof.analysis.coverage import cover_calls, cover_device
from commprof.analysis.devices import cpu_work, device_work
from commprof.analysis.frameworks import FrameworkMarks, framework_marks
from commprof.analysis.hostbound import unlaunched
from commprof.analysis.model import Coverage, DeviceAnalysis, RankAnalysis, Step
from commprof.analysis.named_spans import named_spans
from commprof.analysis.scene import DeviceScene, Scene
from commprof.analysis.selection import StepSelection
from commprof.analysis.shares import Shares
from commprof.analysis.split import Splitter
from commprof.analysis.timeline import timeline
from commprof.analysis.where import locate
from commprof.analysis.windows import Marks, Windows, find_windows, incomplete_steps, optimizer_marks, step_marks
from commprof.analysis.work import Work
from commprof.errors import CannotAnswer
from commprof.intervals import Int64Array
from commprof.manifest import DdpModule
from commprof.trace.calls import device_calls, graph_rows
from commprof.trace.classify import classify
from commprof.trace.clip import clip_lost_ends
from commprof.trace.gloo import gloo_calls
from commprof.trace.heap import give_back
from commprof.trace.links import NONE, launch_rows
from commprof.trace.model import COMM, NOT_LAUNCHED, Calls, RankTrace

_MANY_ROWS = 100_000
_BLOCKING = re.compile(r"Synchronize|Memcpy")


@dataclass(slots=True, eq=False)
class _Sorted:
    """A rank whose device work is told apart: its works by device, its calls, and how much of it was understood."""

    works: list[Work]
    calls: Calls
    coverage: Coverage
    patterns_used: set[str]


def analyze_rank(
    rank: RankTrace,
    patterns: Sequence[re.Pattern[str]] = (),
    *,
    steps: StepSelection | None = None,
    cut_step: str | None = None,
    with_timeline: bool = True,
    ddp: Sequence[DdpModule] = (),
    consume: bool = False,
) -> RankAnalysis:
    """Split, windows, calls, their shares of exposed time and where they stand, for one rank.

    ``ddp`` is what the capture says of DDP's buckets. ``cut_step`` is the step in which the recording ended, if the
    capture knows: it is open like a step without a successor. With ``consume`` columns go as soon as nothing here
    needs them any more: a large rank needs less memory, and is of no use afterwards. Raises
    :class:`~commprof.errors.CannotAnswer` for a trace without device work.
    """
    marks = step_marks(rank)
    found = _on_device(rank, patterns) if len(rank.device) else _on_cpu(rank)
    cover_calls(found.coverage, found.calls)
    incomplete = incomplete_steps(rank, marks)
    frameworks = framework_marks(rank, marks)
    if consume:
        rank.device.forget()
        rank.runtime.forget_ids()
    return _measure(rank, marks, found, incomplete, frameworks, steps, cut_step, with_timeline, ddp)


def _on_device(rank: RankTrace, patterns: Sequence[re.Pattern[str]]) -> _Sorted:
    launches = launch_rows(rank.device, rank.runtime, rank.file.path)
    coverage = Coverage(device_events=len(rank.device), linked_device_events=int((launches != NONE).sum()))
    kinds = classify(rank, launches, patterns)
    graph = graph_rows(rank, launches)
    rank.file.repaired["clipped"] += clip_lost_ends(rank.device, (kinds.kind != COMM) & ~graph)
    calls = device_calls(rank, kinds, launches)
    works = device_work(rank, kinds, launches)
    cover_device(coverage, rank, kinds, launches)
    coverage.graph_kernels = int(graph.sum())
    return _Sorted(works, calls, coverage, kinds.patterns_used)


def _on_cpu(rank: RankTrace) -> _Sorted:
    work = cpu_work(rank)
    if work is None and rank.file.truncated:
        raise CannotAnswer(
            f"{rank.file.path}: the file is cut after {rank.file.events:,} events, and there is no GPU kernel among "
            "them",
            hint="copy the whole file again, or capture again and wait for the export before the job ends",
        )
    if work is None:
        raise CannotAnswer(
            f"{rank.file.path}: no GPU kernels in this trace",
            hint="on GPUs: was ProfilerActivity.CUDA on? On CPUs: no collective was recorded, was "
            "init_process_group called?",
        )
    return _Sorted([work], gloo_calls(rank), Coverage(), set())


def _measure(
    rank: RankTrace,
    marks: Marks,
    sorted_work: _Sorted,
    incomplete: set[int],
    frameworks: FrameworkMarks,
    steps: StepSelection | None,
    cut_step: str | None,
    with_timeline: bool,
    ddp: Sequence[DdpModule],
) -> RankAnalysis:
    works, calls = sorted_work.works, sorted_work.calls
    blocking = _blocking_rows(rank)
    shares = Shares(calls, marks)
    devices, scenes = [], []
    for work in works:
        windows = find_windows(work, marks)
        if steps is not None:
            windows = steps.apply(windows, rank.file.path)
        linked = bool((work.compute_launch != NOT_LAUNCHED).any())
        host, blocked = unlaunched(work, rank.runtime, blocking)
        scene = DeviceScene(work, windows, host if linked else None, blocked)
        scenes.append(scene)
        devices.append(_device(work, windows, Splitter(work, scene.host), incomplete, cut_step))
        shares.add(scene)
    found = shares.result()
    everything = Scene(rank, marks, calls, found, scenes, not len(rank.device))
    _give_back(rank)
    located = locate(everything, ddp)
    _give_back(rank)
    lanes = [timeline(rank, s.work, s.windows, calls, found.exposed) for s in scenes] if with_timeline else []
    return RankAnalysis(
        file=rank.file,
        base_ns=rank.base_ns,
        first_ns=min(int(work.all_start.min()) for work in works),
        devices=devices,
        calls=calls,
        shares=found,
        exposure=shares.rows(located.places),
        coverage=sorted_work.coverage,
        timeline=lanes,
        on_cpu=not len(rank.device),
        world_size=rank.world_size,
        backend=rank.backend,
        device_name=_device_name(rank, works),
        patterns_used=sorted_work.patterns_used,
        warnings=rank.warnings,
        sm_counts={number: count for number, count in enumerate(rank.sm_counts) if count is not None},
        configured_groups=sum(group.size != 1 for group in rank.groups),
        optimizer_marks=optimizer_marks(rank, marks),
        places=located.places,
        frameworks=frameworks,
        spans=named_spans(rank, marks),
        delays=located.delays,
        trail=located.trail,
        causes=located.causes,
        buckets=located.buckets,
        bucket_copies=located.bucket_copies,
        idle=located.idle,
        units=located.units,
        contention=located.contention,
        stage=located.stage,
        behaviour=find_behaviour(everything),
    )


def _give_back(rank: RankTrace) -> None:
    """Between parts that each need much memory for a while, where there is much: freed pieces lie among kept ones."""
    if len(rank.device) > _MANY_ROWS:
        give_back()


def _device(
    work: Work, windows: Windows, splitter: Splitter, incomplete: set[int], cut_step: str | None
) -> DeviceAnalysis:
    start = np.array([window.start for window in windows.windows], np.int64)
    end = np.array([window.end for window in windows.windows], np.int64)
    whole = splitter.split(np.array([work.all_start.min()]), np.array([work.all_end.max()]))[0]
    steps = [
        Step(
            window.name,
            split,
            window.open or window.name == cut_step,
            window.mark in incomplete,
            _last_compute(work, split.start, split.end),
        )
        for window, split in zip(windows.windows, splitter.split(start, end), strict=True)
    ]
    marks = [window.mark for window in windows.windows]
    return DeviceAnalysis(work.device, windows.kind, whole, steps, marks, windows.without, windows.main_stream)


def _last_compute(work: Work, start: int, end: int) -> int | None:
    """End of the last compute inside a window."""
    index = int(np.searchsorted(work.compute.starts, end, side="left")) - 1
    if index < 0 or work.compute.ends[index] <= start:
        return None
    return min(int(work.compute.ends[index]), end)


def _blocking_rows(rank: RankTrace) -> Int64Array:
    codes = [code for code, name in enumerate(rank.names) if _BLOCKING.search(name)]
    return np.flatnonzero(np.isin(rank.runtime.name, codes))


def _device_name(rank: RankTrace, works: list[Work]) -> str | None:
    number = works[0].device
    if not len(rank.device) or not 0 <= number < len(rank.device_names):
        return None
    return rank.device_names[number] or None
