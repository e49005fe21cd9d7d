"""Checks of what the traces hold: work, communication, launches, and what is known of each collective."""

from __future__ import annotations

from collections import Counter
from statistics import median_low

import numpy as np

from commprof.analysis.model import RankAnalysis
from commprof.diagnosis.examination import Examination, Examined
from commprof.diagnosis.fitness.check import Check, Limits, count, of_ranks, part_of, short
from commprof.trace.model import UNKNOWN_SIZE
from commprof.units import format_ns, format_share


def device_work(found: Examination, limits: Limits) -> list[Check]:
    """Without work on a device (or of gloo on the CPU) there is nothing to measure."""
    empty = [file for file in found.files if file.analysis is None]
    checks = [Check("device work", "FAIL", *_why_empty(file)) for file in empty]
    events = {file.rank: file.facts.device_events for file in found.files if file.facts.device_events}
    if len(events) > 2:
        typical = median_low(events.values())
        few = [file for file in found.files if file.analysis and file.facts.device_events < limits.few_events * typical]
        checks += [
            Check(
                "device work",
                "WARN",
                f"{of_ranks([file])} holds {count(file.facts.device_events, 'device event')}, "
                f"the median rank {typical:,}: its capture is incomplete",
                "Do not compare it with the others; capture it again.",
            )
            for file in few
        ]
    if checks:
        return checks
    if events:
        return [
            Check("device work", "PASS", f"{count(sum(events.values()), 'device event')}: kernels, copies and fills")
        ]
    return [Check("device work", "PASS", "no GPU: gloo's collectives and CPU operators are measured")]


def _why_empty(file: Examined) -> tuple[str, str]:
    where = f"{file.facts.path}: no device work among {count(file.facts.events, 'event')}"
    if file.launches:
        text = f"{where}, though the host launched {count(file.launches, 'kernel')}"
        return text, "Profile with ProfilerActivity.CUDA; if it was on, look for CUPTI errors in the log of the job."
    if file.operators:
        return where, "Profile with ProfilerActivity.CUDA, and record steps that train."
    return where, "This may be no trace of PyTorch's profiler; give what export_chrome_trace wrote."


def communication(found: Examination, limits: Limits) -> list[Check]:
    """Collectives must be recognised before anything can be said about them."""
    if not found.analyses:
        return []
    calls = sum(int((~rank.calls.fused).sum()) for rank in found.analyses)
    checks = _unnamed(found.analyses, limits)
    world = found.world_size
    silent = [file for file in found.files if file.analysis and not len(file.analysis.calls)]
    if calls and silent:
        text = f"{of_ranks(silent)}: no collective recognised, while other ranks hold {calls:,}"
        checks.append(Check("collectives", "WARN", text, "Capture the same steps on every rank."))
    elif not calls and world == 1:
        checks.append(Check("collectives", "PASS", "none, as expected of a job of one rank"))
    elif not calls:
        text = (
            f"none recognised, although the job has {world} ranks" if world else "none, right if the job had one rank"
        )
        advice = "Name your kernels with --comm-pattern, and record steps that synchronise gradients."
        checks.append(Check("collectives", "FAIL" if world else "WARN", text, advice))
    if calls and not checks:
        checks.append(Check("collectives", "PASS", f"{calls:,} recognised"))
    return checks


def _unnamed(ranks: list[RankAnalysis], limits: Limits) -> list[Check]:
    """Kernels that no rule knows and that take much of the time may be communication."""
    total = sum(rank.coverage.kernel_ns for rank in ranks)
    time: Counter[str] = Counter()
    for rank in ranks:
        time.update(rank.coverage.unnamed_ns)
    checks = [
        Check(
            "collectives",
            "WARN",
            f"{short(name)}: no rule knows this kernel ({format_share(ns / total)} of kernel time)",
            "It counts as compute. If it communicates, name it with --comm-pattern.",
        )
        for name, ns in time.most_common(3)
        if ns > limits.unnamed * total
    ]
    copies = sum(rank.coverage.possible_comm_calls for rank in ranks)
    if copies:
        ns = sum(rank.coverage.possible_comm_ns for rank in ranks)
        text = f"{count(copies, 'peer-to-peer copy')} without operator ({format_ns(ns)})"
        checks.append(Check("collectives", "WARN", text, "They count as copies; they may be communication."))
    return checks


def launch_links(found: Examination, limits: Limits) -> list[Check]:
    """Links to launches tell which step work belongs to, and whether the host was late."""
    on_device = [rank for rank in found.analyses if not rank.on_cpu]
    total = sum(rank.coverage.device_events for rank in on_device)
    if not total:
        return []
    linked = sum(rank.coverage.linked_device_events for rank in on_device)
    early = sum(rank.coverage.clamped_launches for rank in on_device)
    text = f"{part_of(linked, total, 'device event')} linked to a launch"
    if not linked:
        advice = "Keep the events of the runtime (cuda_runtime): without launches, steps are the CPU's marks."
        if not any(file.operators for file in found.files):
            advice = "Profile with ProfilerActivity.CPU too: without it there are no launches and no operators."
        return [Check("launch links", "WARN", text, advice)]
    if linked < limits.linked * total:
        advice = "Add a warm-up step to the schedule: work launched before the capture has no launch."
        return [Check("launch links", "WARN", text, advice)]
    if early > (1 - limits.linked) * linked:
        text += f"; {early:,} start before their launch"
        return [Check("launch links", "WARN", text, "CPU and GPU clocks disagree; host-bound parts are doubtful.")]
    return [Check("launch links", "PASS", text)]


def descriptions(found: Examination, limits: Limits) -> list[Check]:
    """What kind of collective each call is and which process group it belongs to."""
    ranks = [rank for rank in found.analyses if len(rank.calls)]
    calls = sum(len(rank.calls) for rank in ranks)
    if not calls:
        return []
    operation = sum(int((rank.calls.operation != 0).sum()) for rank in ranks)
    group = sum(int((rank.calls.group >= 0).sum()) for rank in ranks)
    members = sum(_with_members(rank) for rank in ranks)
    words: dict[int, list[str]] = {}
    for word, number in (("operation", operation), ("group", group), ("members", members)):
        words.setdefault(number, []).append(word)
    # What is known for all calls goes without saying where something else is not.
    shown = {number: listed for number, listed in words.items() if number < calls} or words
    text = "; ".join(f"{_and(listed)} known for {part_of(number, calls, 'call')}" for number, listed in shown.items())
    if operation < limits.described * calls:
        return [
            Check("metadata", "WARN", text, "PyTorch 2.4 or newer writes them; add a warm-up step to the schedule.")
        ]
    if min(group, members) < limits.described * calls:
        advice = "PyTorch 2.4 or newer writes them; without groups, all ranks are taken as one."
        return [Check("metadata", "WARN", text, advice)]
    return [Check("metadata", "PASS", text)]


def _and(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _with_members(rank: RankAnalysis) -> int:
    known = np.array([*(facts.members == "known" for facts in rank.calls.groups), False], np.bool_)
    return int(known[rank.calls.group].sum())


def sizes(found: Examination, limits: Limits) -> list[Check]:
    """Bandwidth, volumes and buckets need the bytes of each call."""
    ranks = [rank for rank in found.analyses if len(rank.calls)]
    calls = sum(len(rank.calls) for rank in ranks)
    if not calls:
        return []
    unknown = sum(int((rank.calls.size_bytes == UNKNOWN_SIZE).sum()) for rank in ranks)
    text = f"bytes known for {part_of(calls - unknown, calls, 'call')}"
    if unknown <= (1 - limits.described) * calls:
        return [Check("sizes", "PASS", text)]
    types = sum(rank.calls.unknown_dtype for rank in ranks)
    if types:
        return [
            Check("sizes", "WARN", f"{text}; {count(types, 'call')} of a data type unknown here", "Please report it.")
        ]
    if any("record_shapes" in file.options for file in found.files):
        advice = "Add a warm-up step: calls launched before the capture have no size."
    else:
        advice = "Profile with record_shapes=True: without it there is no bandwidth and no volume."
    return [Check("sizes", "WARN", text, advice)]
