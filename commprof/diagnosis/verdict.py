"""Is communication the bottleneck (``spec``: section 11), in a sentence that a person can act on."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.model import Analysis
from commprof.analysis.steps import Unit, units
from commprof.diagnosis.model import Finding, Verdict
from commprof.diagnosis.thresholds import DEFAULTS, Thresholds
from commprof.trace.operations import OPERATIONS
from commprof.units import format_ns, format_share

_CUT = " The trace is cut, so this may not hold for the whole run (low confidence)."
_PROFILER = " Profiled steps took longer than unprofiled ones: the profiler itself may be the cause (low confidence)."


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

    def share(self, ns: int) -> float:
        """Share of step time."""
        return ns / self.duration if self.duration else 0.0


def verdict_of(analysis: Analysis, findings: Sequence[Finding], thresholds: Thresholds = DEFAULTS) -> Verdict:
    """The verdict on an analysis with these findings."""
    totals = _totals(analysis)
    if totals is None or not totals.duration:
        summary = "Cannot tell from this trace: it holds no step with device work."
        return Verdict("unknown", summary, None, None)
    bottleneck = _bottleneck(totals, thresholds)
    doubt = _doubt(analysis, bottleneck, thresholds)
    communicates = any((~rank.calls.fused).any() for rank in analysis.ranks)
    recoverable = totals.share(totals.blocking) if communicates else 0.0
    return Verdict(
        bottleneck,
        _summary(analysis, totals, bottleneck, communicates) + doubt,
        totals.share(totals.exposed_comm),
        recoverable,
        _gain(analysis, totals) if communicates else None,
        _where(analysis) if communicates else None,
        "low" if doubt else "measured",
    )


def _totals(analysis: Analysis) -> Totals | None:
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
        total("exposed_copy"), total("idle"), total("comm"), total("overlap"),
    )  # fmt: skip


def _bottleneck(totals: Totals, limits: Thresholds) -> str:
    share = totals.share
    if share(totals.blocking) >= limits.communication and totals.blocking >= limits.share_of_idle * totals.idle:
        return "communication"
    if share(totals.exposed_comm + totals.exposed_copy + totals.idle) < limits.quiet:
        return "compute"
    host, copies = share(totals.idle + totals.host), share(totals.exposed_copy)
    if abs(host - copies) <= limits.balanced:
        return "balanced"
    return "host" if host > copies else "copy"


def step_word(analysis: Analysis) -> str:
    """``step`` where the trace marks steps, ``window`` where it does not."""
    return "window" if all(rank.devices[0].windows == "none" for rank in analysis.ranks) else "step"


def _summary(analysis: Analysis, totals: Totals, bottleneck: str, communicates: bool) -> str:
    of = "of step time" if step_word(analysis) == "step" else "of window"
    exposed = format_share(totals.share(totals.exposed_comm))
    idle = format_share(totals.share(totals.idle))
    if not communicates:
        return f"No communication found: the device computes {format_share(totals.share(totals.compute))} {of}."
    if bottleneck == "communication":
        return (
            f"Communication is the bottleneck: {exposed} {of} goes to communication (waiting for peers included) "
            "that nothing hides."
        )
    if bottleneck == "compute":
        return (
            f"Communication is not the bottleneck: {exposed} {of} is exposed communication; "
            "the device is busy computing."
        )
    if bottleneck == "host":
        late = format_share(totals.share(totals.host))
        also = f", and {late} {of} is communication that ran while the host was late" if totals.host else ""
        return (
            f"Communication is not the bottleneck: the device idles {idle} {of}{also}; "
            f"exposed communication is {exposed} {of}."
        )
    if bottleneck == "copy":
        return f"Copies are the bottleneck: {format_share(totals.share(totals.exposed_copy))} {of} is exposed copies."
    return f"No single bottleneck: idle time and copies weigh about the same; exposed communication is {exposed} {of}."


def _gain(analysis: Analysis, totals: Totals) -> str:
    word = step_word(analysis)
    per = totals.duration // totals.count
    gain = totals.blocking // totals.count
    of = "of step time" if word == "step" else "of window"
    each = "per step " if word == "step" else ""
    sentence = (
        f"At most {format_ns(gain)} {each}({format_share(totals.share(totals.blocking))} {of}) would come back if all "
        f"communication were hidden: {format_ns(per)} would become {format_ns(per - gain)}."
    )
    if totals.blocking < totals.exposed_comm:
        sentence += " Exposed communication during which the host had launched nothing else is not counted."
    return sentence


def _where(analysis: Analysis) -> str | None:
    """The operation and the kind of group with the most exposed time, in the steps that the verdict is about."""
    exposed: Counter[tuple[str, str]] = Counter()
    count: Counter[tuple[str, str]] = Counter()
    members: dict[tuple[str, str], set[int]] = defaultdict(set)
    for rank, groups in zip(analysis.ranks, analysis.group_of, strict=True):
        calls, shares = rank.calls, rank.shares
        chosen = {
            name for device in rank.devices for unit in units(device, rank.optimizer_marks) for name in unit.names
        }
        wanted = np.array([name in chosen for name in shares.step_names], np.bool_)
        parts = wanted[shares.part_step]
        ns = np.zeros(len(calls), np.int64)
        np.add.at(ns, shares.part_call[parts], shares.part_ns[parts])
        for operation, group in sorted(set(zip(calls.operation.tolist(), calls.group.tolist(), strict=True))):
            mine = (calls.operation == operation) & (calls.group == group) & ~calls.fused
            active = mine & np.isin(np.arange(len(calls)), shares.part_call[parts])
            where = -1 if group < 0 else groups[group]
            key = (OPERATIONS[operation], _kind_of_group(analysis, where))
            exposed[key] += int(ns[mine].sum())
            count[key] += int(active.sum())
            members[key].add(where)
    total = exposed.total()
    if not total:
        return None
    key, most = min(exposed.items(), key=lambda item: (-item[1], item[0]))
    number = f"{count[key]} {'call' if count[key] == 1 else 'calls'}"
    return (
        f"{format_share(most / total)} of exposed communication sits in {key[0].replace('_', '-')} "
        f"{_group_text(analysis, members[key], key[1])}({number})."
    )


def _kind_of_group(analysis: Analysis, group: int) -> str:
    """What groups of one purpose have in common: their description, else their name."""
    if group < 0:
        return ""
    facts = analysis.groups[group]
    return facts.description or facts.name or ""


def _group_text(analysis: Analysis, groups: set[int], kind: str) -> str:
    if analysis.group_assumed:
        return ""
    if groups == {-1}:
        return "of an unknown group "
    if len(groups) > 1:
        return f"of the {len(groups)} groups {kind} "
    facts = analysis.groups[next(iter(groups))]
    members = f", ranks {ranks_text(facts.ranks)}" if facts.ranks else ""
    return f"of group {kind}{members} "


def _doubt(analysis: Analysis, bottleneck: str, limits: Thresholds) -> str:
    """Why the verdict may not hold, as a sentence; empty where nothing speaks against it."""
    if any(rank.file.truncated for rank in analysis.ranks):
        return _CUT
    profiled, plain = analysis.capture.get("profiled_step_ns"), analysis.capture.get("unprofiled_step_ns")
    if bottleneck == "host" and profiled and plain and profiled > (1 + limits.profiler_cost) * plain:
        return _PROFILER
    return ""
