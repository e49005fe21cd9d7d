"""The verdict in words: what is the bottleneck, what would come back, and where it sits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.analysis.model import Analysis
from commprof.analysis.steps import units
from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.thresholds import DEFAULTS
from commprof.diagnosis.totals import Totals, transfer_of
from commprof.diagnosis.waiting import Lost
from commprof.trace.operations import OPERATIONS
from commprof.units import format_ns, format_share


def base_of(analysis: Analysis) -> str:
    """What shares are of: step time, or the window where the trace marks no steps."""
    return "step time" if step_word(analysis) == "step" else "the window"


def step_word(analysis: Analysis) -> str:
    """``step`` where the trace marks steps, ``window`` where it does not."""
    return "window" if all(rank.devices[0].windows == "none" for rank in analysis.ranks) else "step"


_MOST_NAMES = 3
"""So many late ranks are named each."""

_WHY_LATE = {
    "host": "its CPU launches late", "input": "it waits for its input", "copy": "its copies take longer",
    "communication": "its own transfers take longer",
}  # fmt: skip


def mean_of(analysis: Analysis) -> str:
    """What a share of several ranks is: findings, of the rank that loses the most, may be larger."""
    return ", mean over ranks" if len(analysis.ranks) > 1 else ""


def summary_of(analysis: Analysis, totals: Totals, lost: Lost, bottleneck: str, communicates: bool) -> str:
    """The verdict in one sentence."""
    of, mean = f"of {base_of(analysis)}", mean_of(analysis)
    exposed, idle, copies = (
        format_share(totals.share(ns)) for ns in (totals.exposed_comm, totals.idle, totals.exposed_copy)
    )
    on_cpu = all(rank.on_cpu for rank in analysis.ranks)
    device, idles = ("the CPU", "runs no operator for") if on_cpu else ("the device", "idles")
    if not communicates:
        return f"No communication found: {device} computes {format_share(totals.share(totals.compute))} {of}{mean}."
    if bottleneck in ("communication", "straggler", "pipeline", "imbalance"):
        return _blamed(analysis, totals, lost, bottleneck)
    if bottleneck == "copy":
        return f"Copies are the bottleneck: {copies} {of} is exposed copies{mean}."
    if bottleneck == "balanced":
        return (
            f"No single bottleneck: {exposed} {of} is exposed communication, {idle} is idle, {copies} is exposed "
            f"copies{mean}."
        )
    not_it = "Communication is not the bottleneck"
    if bottleneck == "compute":
        return f"{not_it}: {exposed} {of} is exposed communication{mean}; {device} is busy computing."
    if bottleneck == "input":
        waited = format_share(totals.share(lost.input))
        return (
            f"{not_it}: {device} {idles} {idle} {of}, {waited} {of} while the loop waits for its input; exposed "
            f"communication is {exposed} {of}{mean}."
        )
    late = format_share(totals.share(totals.host))
    also = f", and {late} {of} is communication that ran while the host was late" if totals.host else ""
    return f"{not_it}: {device} {idles} {idle} {of}{also}; exposed communication is {exposed} {of}{mean}."


def _blamed(analysis: Analysis, totals: Totals, lost: Lost, bottleneck: str) -> str:
    """The sentence where time that communication can be blamed for decides."""
    of, mean = f"of {base_of(analysis)}", mean_of(analysis)
    exposed = format_share(totals.share(totals.exposed_comm))
    if bottleneck == "straggler":
        return f"Late ranks are the bottleneck: {_cost_of_late(analysis, totals, lost)}."
    if bottleneck == "pipeline":
        bubble = format_share(totals.share(lost.bubble))
        return f"The pipeline is the bottleneck: its bubble takes {bubble} {of}{mean}."
    if bottleneck == "imbalance":
        uneven = format_share(totals.share(lost.uneven))
        untold = any(row.or_cause for row in analysis.stragglers)
        device = ", or with slower devices, which this trace cannot tell apart" if untold else ""
        return (
            f"Unequal work is the bottleneck: ranks wait {uneven} {of} for those with more to do or to send"
            f"{device}{mean}."
        )
    waiting = "; waiting for peers, which one rank cannot tell apart, is part of it"
    if lost.waiting is not None:
        share = totals.share(lost.waiting)
        told = f", of which {format_share(share)} {of} is waiting for peers" if share >= DEFAULTS.little else ""
        waiting = f"{told}{mean}"
    return f"Communication is the bottleneck: {exposed} {of} is communication that nothing hides{waiting}."


def _cost_of_late(analysis: Analysis, totals: Totals, lost: Lost) -> str:
    """What late ranks cost, under the names that the report has for its parts: all of it need not be waiting."""
    of, mean, who = f"of {base_of(analysis)}", mean_of(analysis), _late(analysis)
    late, waited = (format_share(totals.share(ns)) for ns in (lost.late, lost.late_waiting))
    if late == waited:
        return f"waiting for {who} costs {late} {of}{mean}"
    parts = "waiting for a peer, and transfers" if lost.late_waiting else "transfers"
    return f"lateness of {who} costs {late} {of}{mean} ({parts} that came later for it)"


def _late(analysis: Analysis) -> str:
    """Who is late, in words, and why."""
    named: Sequence[Straggler] = [row for row in analysis.stragglers if row.cause != "more-work"]
    if not named or named[0].kind == "rotating":
        return "a different rank in every step"
    if len(named) == 1:
        return _name(named[0]) + _why(named[0])
    if len(named) > _MOST_NAMES:
        return f"{_name(named[0])} and {len(named) - 1} more"
    if all(row.rank is not None for row in named):
        return f"ranks {_listed([str(row.rank) for row in named])}"
    return _listed([_name(row) for row in named])


def _name(row: Straggler) -> str:
    if row.rank is not None:
        return f"rank {row.rank}"
    if row.host is not None and row.role is None:
        return f"host {row.host}"
    return f"ranks {ranks_text(row.members)}"


def _why(row: Straggler) -> str:
    if row.cause not in _WHY_LATE:
        return ""
    why = f" ({_WHY_LATE[row.cause]})"
    several = row.rank is None and (row.host is None or row.role is not None)
    return why.replace("its ", "their ").replace("it waits", "they wait") if several else why


def _listed(words: Sequence[str]) -> str:
    """``7, 1 and 5``."""
    return f"{', '.join(words[:-1])} and {words[-1]}"


def too_large(analysis: Analysis, totals: Totals) -> str | None:
    """That transferring takes longer than all compute, so that some of it stays exposed whatever is done.

    Waiting is no matter of size: nothing is said where it is not known, but of one rank alone, under that condition.
    """
    known, alone = transfer_of(analysis), len(analysis.ranks) == 1
    transfer = totals.comm if known is None and alone else known
    if transfer is None or not totals.compute or transfer <= totals.compute:
        return None
    each = " per step" if step_word(analysis) == "step" else ""
    less, unless = " without waiting", ""
    if known is None:
        less, unless = "", "unless much of that is waiting for other ranks, "
    return (
        f"Communication{less} takes {format_ns(transfer // totals.count)}{each}, all compute beside it "
        f"{format_ns(totals.compute // totals.count)}: {unless}it cannot be hidden at this size. At most "
        f"{format_share(totals.compute / transfer)} of communication time{less} could be hidden."
    )


def where_of(analysis: Analysis) -> str | None:
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
    number = f"{count[key]:,} exposed {'call' if count[key] == 1 else 'calls'}"
    if step_word(analysis) == "step":
        number += " in whole steps"
    part = "All" if most == total else f"{format_share(most / total)} of"
    return (
        f"{part} exposed communication sits in {key[0].replace('_', '-')} "
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
