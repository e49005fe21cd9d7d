"""Ranks that wait for late ones: who is late, and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.behaviour import COMM
from commprof.analysis.charges import Charges
from commprof.analysis.combine import ranks_text
from commprof.analysis.device_pace import excess_on_path
from commprof.analysis.host_delays import DELAYS
from commprof.analysis.late_on_path import cpu_longer
from commprof.analysis.lateness import Float64Array
from commprof.analysis.model import Analysis
from commprof.analysis.slow_links import ranks_on
from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.findings.case import Case, Claim, delayed, idle_of, steps_of
from commprof.diagnosis.findings.on_cpu import computes_on_cpu
from commprof.diagnosis.findings.shorter import given_back
from commprof.diagnosis.findings.stages_apart import longer_on_path, slow_kernels
from commprof.diagnosis.findings.stalls import stalls_by_step
from commprof.diagnosis.ground import P2P, Ground, Mask, ReferenceStep
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath, of_late
from commprof.intervals import Int64Array

_WHY = {
    "slow-device": ("its device runs the same kernels slower", (
        "Look at clocks, power and temperature of this device (nvidia-smi -q -d PERFORMANCE, dcgmi), at other users of "
        "it, and replace or leave it out if it stays slow.",
    )),
    "more-work": ("it has more to compute than its peers", (
        "Even out the work: sequences packed to equal length, balanced experts, equal pipeline stages. The machine is "
        "not "
        "at fault.",
    )),
    "host": ("its CPU launches late", (
        "Look at the CPU of this rank: other processes, cores per rank, NUMA binding, garbage collection "
        "(gc.disable() and gc.collect() at the same step on all ranks), logging and checkpointing on one rank only.",
    )),
    "input": ("it waits for its input", (
        "More DataLoader workers and prefetch on this rank (host memory); look at its storage and at uneven shards.",
    )),
    "copy": ("it copies more or slower", (
        "Look at copies between host and device on this rank: pinned memory, PCIe width and generation.",
    )),
    "communication": ("its own transfers take longer", (
        "Look at the links and adapters of this rank (nvidia-smi nvlink -s, ibstat, ethtool counters).",
    )),
    "inherited": ("it was late already where the capture begins", (
        "Record more steps, and all ranks, to see what makes it late.",
    )),
    "unknown": ("why is not determined", (
        "Record with CPU activity on all ranks: what the late rank did before its calls decides.",
    )),
}  # fmt: skip
LATE_BY = {cause: _WHY[cause] for cause in ("host", "input", "slow-device")}
"""Why ranks are late and what to do about it, for findings that know it from the critical path."""
_WORK_OR_DEVICE = ("it computes longer, for more work or a slow device", (
    "Swap the devices of this stage and another one (another order of ranks or hosts): what stays with the stage is "
    "work, what moves with the device is a slow device. No other rank runs this stage, so this trace cannot tell.",
    "Look at clocks, power and temperature of the device under load too (nvidia-smi -q -d PERFORMANCE, dcgmi). Then "
    "even out the stages, or replace the device.",
))  # fmt: skip
"""Of a stage that is one rank, whose equal kernels last longer than those of other stages."""

_OWN = {"host": ("launch", "pause", "between-operators"), "input": ("input",)}
"""Idle time of a late rank itself, by what makes it late; on a CPU its gaps are between operators."""


def late_input(ground: Ground) -> Iterator[Case]:
    """Ranks that are late because of their input: what the others wait for is theirs, on whatever rank it shows, and
    only what is left is the input of all. In a pipeline a stage that waits for its input is part of the bubble."""
    if ground.analysis.pipeline is None:
        yield from (case for case in _late(ground) if case.cause == "input")


def straggler(ground: Ground) -> Iterator[Case]:
    """Ranks, hosts or stages that are named as late for any other reason."""
    alone = ground.analysis.pipeline is None
    yield from (case for case in _late(ground) if not (alone and case.cause == "input"))


def _late(ground: Ground) -> Iterator[Case]:
    """Exposed waiting for ranks, hosts or stages that are named as late; the largest charge first."""
    rows = sorted(ground.analysis.stragglers, key=lambda row: -row.charged_per_step)
    if not rows:
        return
    late = late_ranks(ground)
    links = late_by_transfer(ground)
    for row in rows:
        if links.intersection(row.members):
            continue
        mine = (late >= 0) if row.kind == "rotating" else np.isin(late, row.members)
        claim, back = _claim(ground, row, mine)
        if not any(part is not None and part.any() for part in (claim.wait, claim.rest, claim.host, claim.idle)):
            claim, back, mine = _from_bubble(ground, row)
            if back is None:
                continue
            calls = ground.calls_in(mine)
        else:
            calls = _calls(ground, row) or ground.calls_in(mine)
        path = _on_path(ground, row, claim)
        why, advice = _WORK_OR_DEVICE if row.or_cause is not None else _WHY.get(row.cause, _WHY["unknown"])
        if row.cause == "inherited" and not ground.analysis.missing_ranks:
            advice = ("Record more steps to see what makes it late.",)
        yield Case(
            "straggler",
            _title(row, why),
            claim,
            advice,
            (
                Evidence("charged per step, mean over the ranks of the job", row.charged_per_step, "ns"),
                Evidence("how often", row.kind, ""),
                *(Evidence(what, value, unit) for what, value, unit in row.evidence[:5]),
                *(slow_kernels(ground, row.members) if row.cause == "more-work" else ()),
            ),
            cause=row.cause, or_cause=row.or_cause, ranks=() if row.kind == "rotating" else tuple(row.members),
            steps=steps_of(ground, mine), group_id=ground.one_group(mine), calls=calls, recoverable=back,
            host_back=True, measured=_measured(ground, row), path=path, alone=stalls_by_step(ground, path),
        )  # fmt: skip


def _on_path(ground: Ground, row: Straggler, claim: Claim) -> OnPath | None:
    """What these ranks add to the critical path."""
    path, ranks = ground.analysis.critical_path, ground.analysis.ranks
    numbers, slow = [rank.rank for rank in ranks], row.cause == "slow-device"
    own = excess_on_path(path, ranks, np.isin(numbers, row.members)) if path is not None and slow else None
    return of_late(path, numbers, row, own, _at_once(ground, row, claim))


def _at_once(ground: Ground, row: Straggler, claim: Claim) -> Int64Array | None:
    """What the CPUs of these ranks do longer than those of the others, together up to what they are charged with or
    what is claimed for them: a pause that is short beside the gaps between launches shows in no gap, but in when the
    calls after it come."""
    path, charges = ground.analysis.critical_path, ground.analysis.charges
    if path is None or charges is None or row.cause != "host" or row.kind == "rotating":
        return None
    late = np.isin([rank.rank for rank in ground.analysis.ranks], row.members)
    longer = np.where(late, cpu_longer(ground.analysis, charges, path, late), 0.0)
    claimed = sum(int(ns.sum()) for ns in (claim.wait, claim.rest, claim.host, claim.idle) if ns is not None)
    most = max(row.charged_per_step, claimed // len(ground.steps)) * path.steps
    share = min(1.0, most / max(float(longer.sum()), 1.0))
    return (longer * share).astype(np.int64)


def _measured(ground: Ground, row: Straggler) -> Int64Array | None:
    """What these ranks were charged with in every reference step, after passing on, whoever lost the most in it."""
    charges, found = ground.analysis.charges, ground.analysis.matching
    if charges is None or found is None or row.role is not None:
        return None
    own = dict(zip(found.calls.step_names, _own_by_step(ground, row, charges).tolist(), strict=False))
    return np.array([sum(own.get(name, 0.0) for name in step.unit.names) for step in ground.steps]).astype(np.int64)


def _own_by_step(ground: Ground, row: Straggler, charges: Charges) -> Float64Array:
    """Own charge of these ranks in each step, ns; what the slow links of a rank make others wait is theirs, where the
    rank is named for what it does by itself."""
    members = [row.kind == "rotating" or rank.rank in row.members for rank in ground.analysis.ranks]
    own = charges.own[members].sum(axis=0)
    linked = ranks_on([*ground.slow_links, *ground.intermittent])
    if row.cause != "communication" and linked.intersection(row.members):
        own[:, COMM] = 0
    return np.asarray(own.sum(axis=1))


def _calls(ground: Ground, row: Straggler) -> int:
    """Calls per step in which any rank of the job waited for these: the reference rank, which may meet them at the end
    of the step alone, waits in few of them."""
    root, found = _roots(ground), ground.analysis.matching
    if root is None or found is None:
        return 0
    rooted = (root >= 0) if row.kind == "rotating" else np.isin(root, row.members)
    calls = int(np.count_nonzero(rooted))
    return max(1, round(calls / max(1, len(found.calls.step_names)))) if calls else 0


def _claim(ground: Ground, row: Straggler, mine: Mask) -> tuple[Claim, Int64Array | None]:
    """The waiting for late ranks; of ranks that take turns also their own pauses, which the reference ranks show when
    it is their turn: what one rank loses by a pause the others wait, so the step loses it once."""
    claim = Claim(wait=_owed(ground, row, mine), rest=_displaced(ground, row))
    if row.kind != "rotating" and row.cause in _OWN:
        own = own_time(ground, row)
        claim.host, claim.idle = own.host, own.idle
    if row.kind != "rotating" or row.cause != "host":
        return claim, None
    assert claim.wait is not None
    own = _in_turn(ground, row, claim.wait)
    claim.idle, claim.host = own.idle, own.host
    return claim, np.full(len(ground.steps), row.charged_per_step, np.int64)


def _in_turn(ground: Ground, row: Straggler, wait: Int64Array) -> Claim:
    """What the reference ranks lose by their own pauses. Where they neither wait for the pause of another rank nor show
    one of their own, it passes for something else that their CPU is late for, as right after a wait for the device: of
    that as much as the others are charged with for a pause."""
    exposed, idle = ground.exposed, ground.idle
    host, waiting = delayed(ground, "pause"), idle_of(ground, "pause")
    late = exposed.host - host
    behind = idle_of(ground, "launch", *(why for why in DELAYS if why != "input")) - waiting
    found = ground.per_step(exposed.step, wait + host) + ground.per_step(idle.step, waiting)
    there = ground.per_step(exposed.step, late) + ground.per_step(idle.step, behind)
    share = np.clip((row.charged_per_step - found) / np.maximum(there, 1), 0.0, 1.0)
    return Claim(
        host=host + np.floor(late * share[exposed.step]).astype(np.int64),
        idle=waiting + np.floor(behind * share[idle.step]).astype(np.int64),
    )


def own_time(ground: Ground, row: Straggler) -> Claim:
    """Steps in which the late rank is itself the one that lost the most: what the others wait for shows there as time
    in which its CPU is late, up to its charge."""
    exposed, idle = ground.exposed, idle_of(ground, *_OWN[row.cause])
    late = np.array([step.rank.rank in row.members for step in ground.steps], np.bool_)
    host = exposed.host if row.cause == "host" else delayed(ground, *_OWN[row.cause])
    host, idle = np.where(late[exposed.step], host, 0), np.where(late[ground.idle.step], idle, 0)
    there = ground.per_step(exposed.step, host) + ground.per_step(ground.idle.step, idle)
    share = np.minimum(row.charged_per_step / np.maximum(there, 1), 1.0)
    return Claim(
        host=np.floor(host * share[exposed.step]).astype(np.int64),
        idle=np.floor(idle * share[ground.idle.step]).astype(np.int64),
    )


def _displaced(ground: Ground, row: Straggler) -> Int64Array:
    """Transfers that come later, and so exposed, because waiting for the late rank behind compute held them up."""
    if _roots(ground) is None or row.kind == "intermittent":
        return np.zeros(len(ground.exposed), np.int64)
    parts = _own_parts(ground, row)
    members = None if row.kind == "rotating" else set(row.members)

    def hidden(step: ReferenceStep) -> Int64Array:
        part = _by_window(step, parts)[step.rank.shares.step]
        return (hidden_waits(ground, step, members) * part).astype(np.int64)

    back = given_back(ground, hidden)
    # Streams that wait side by side for the same lateness lose it once.
    most = np.array([_longest_stream(step, hidden(step)) for step in ground.steps], np.int64)
    share = np.minimum(most / np.maximum(ground.per_step(ground.exposed.step, back), 1), 1.0)
    return np.floor(back * share[ground.exposed.step]).astype(np.int64)


def _longest_stream(step: ReferenceStep, ns: Int64Array) -> int:
    """The largest sum of ``ns`` (one per call) over the calls of one stream in a step."""
    shares, calls = step.rank.shares, step.rank.calls
    windows = [number for number, name in enumerate(shares.step_names) if name in step.unit.names]
    mine = np.flatnonzero(np.isin(shares.step, windows) & (calls.device == step.device.device))
    streams, place = np.unique(calls.stream[mine], return_inverse=True)
    sums = np.zeros(len(streams), np.int64)
    np.add.at(sums, place, ns[mine])
    return int(sums.max(initial=0))


def hidden_waits(ground: Ground, step: ReferenceStep, members: set[int] | None) -> Int64Array:
    """What each call of the rank of a step waited behind compute for late ranks: for these, or for any."""
    root = _roots(ground)
    if root is None or not ground.analysis.waiting:
        return np.zeros(len(step.rank.calls), np.int64)
    waits = ground.analysis.waiting[step.where]
    late = np.where(waits.match >= 0, root[waits.match], -1)
    mine = (late >= 0) if members is None else np.isin(late, sorted(members))
    ns = np.maximum(waits.wait, 0) - np.maximum(waits.exposed_wait, 0)
    return np.where(mine, np.maximum(ns, 0), 0).astype(np.int64)


def _from_bubble(ground: Ground, row: Straggler) -> tuple[Claim, Int64Array | None, Mask]:
    """What a stage that is longer than the others adds to the bubble of its pipeline; nothing for any other row."""
    rows = ground.role_is("pp") & ground.operation_is(*P2P)
    if row.role is None or not rows.any() or row.cause not in ("more-work", "slow-device"):
        return Claim(), None, rows
    idle, wait = idle_of(ground, "bubble"), np.where(rows, ground.exposed.wait, 0)
    found = ground.per_step(ground.exposed.step, wait) + ground.per_step(ground.idle.step, idle)
    on_path = longer_on_path(ground, row.members, row.charged_per_step)
    longer = row.charged_per_step if on_path is None else on_path
    share = np.minimum(longer / np.maximum(found, 1), 1.0)
    claim = Claim(
        wait=np.floor(wait * share[ground.exposed.step]).astype(np.int64),
        idle=np.floor(idle * share[ground.idle.step]).astype(np.int64),
    )
    return claim, np.minimum(found, longer), rows


def _owed(ground: Ground, row: Straggler, mine: Mask) -> Int64Array:
    """What of the waiting in these rows is the fault of the late rank.

    Its charge after bounding and passing on says how much of what it was charged with at first is its own, in each
    step. A pause now and then shows in single calls: there the usual waiting of a call stays out.
    """
    wait = np.where(mine, ground.exposed.wait, 0)
    if row.kind in ("rotating", "intermittent"):
        wait = np.maximum(wait - _usual_waits(ground), 0) * mine
    parts = _own_parts(ground, row)
    own = np.ones(len(wait))
    for index, step in enumerate(ground.steps):
        inside = ground.exposed.step == index
        own[inside] = _by_window(step, parts)[ground.exposed.window[inside]]
    return np.floor(wait * own).astype(np.int64)


def _usual_waits(ground: Ground) -> Int64Array:
    """For every exposed row the median wait of the calls of its rank, group and operation, hidden ones included."""
    usual = np.zeros(len(ground.exposed), np.int64)
    by_rank: dict[int, Int64Array] = {}
    for index, step in enumerate(ground.steps):
        if not ground.analysis.waiting:
            break
        if step.where not in by_rank:
            calls, waits = step.rank.calls, ground.analysis.waiting[step.where].wait
            of_call = by_rank[step.where] = np.zeros(len(calls), np.int64)
            keys = np.stack([calls.group.astype(np.int64), calls.operation.astype(np.int64)])
            for group, operation in np.unique(keys, axis=1).T.tolist():
                kind = (calls.group == group) & (calls.operation == operation)
                of_call[kind] = int(np.median(np.maximum(waits[kind], 0)))
        mine = ground.exposed.step == index
        usual[mine] = by_rank[step.where][ground.exposed.call[mine]]
    return usual


def _own_parts(ground: Ground, row: Straggler) -> dict[str, float]:
    """By name of the step, the own charge of a late rank against what the calls that it is the root of were charged
    with there, at most 1.

    Step by step, since charges are bounded in each: the first one of a capture often holds lateness from before it.
    """
    analysis = ground.analysis
    charges, root = analysis.charges, _roots(ground)
    if charges is None or root is None or analysis.matching is None:
        return {}
    names = analysis.matching.calls.step_names
    rooted = (root >= 0) if row.kind == "rotating" else np.isin(root, row.members)
    mine = rooted[charges.late.match] & (charges.step[charges.late.row] >= 0)
    at_first = np.bincount(charges.step[charges.late.row[mine]], charges.charge[mine], minlength=len(names))
    own = _own_by_step(ground, row, charges)[: len(names)]
    # What shared cores explain was taken out of the charge that is stated.
    stated = row.charged_per_step * len(names) / max(float(own.sum()), 1.0) if computes_on_cpu(analysis) else 1.0
    own *= min(1.0, stated)
    if row.kind == "persistent":
        # Its bound is too tight in a step of which the beginning was not recorded.
        own = np.maximum(own, row.charged_per_step)
    parts = np.where(at_first > 0, own / np.maximum(at_first, 1.0), 1.0)
    return dict(zip(names, np.minimum(parts, 1.0).tolist(), strict=True))


def _by_window(step: ReferenceStep, parts: dict[str, float]) -> NDArray[np.float64]:
    """The parts by index of the windows of the rank of a step; the last entry is for what is in none."""
    return np.array([*(parts.get(name, 1.0) for name in step.rank.shares.step_names), 1.0])


def late_by_transfer(ground: Ground) -> set[int]:
    """Late ranks whose own transfers are the cause and whose group has a slow link, always or now and then: the link
    is named instead."""
    slow = {rank for link in ground.slow_links for rank in link.ranks}
    slow |= {rank for link in ground.intermittent for rank in link.ranks}
    late = [row for row in ground.analysis.stragglers if row.cause == "communication"]
    return {rank for row in late for rank in row.members if rank in slow}


def late_ranks(ground: Ground) -> Int64Array:
    """For every exposed row the rank with which the lateness that it waited for began, -1 where nobody is charged."""
    root = _roots(ground)
    if root is None:
        return ground.exposed.last_rank
    match = ground.exposed.match
    return np.where(match >= 0, root[match], -1)


def _roots(ground: Ground) -> Int64Array | None:
    root: Int64Array | None = ground.once("roots", lambda: roots(ground.analysis))
    return root


def roots(analysis: Analysis) -> Int64Array | None:
    """For every match the rank with which the lateness in it began, -1 where nobody is charged; shape ``(matches,)``.

    A rank that came late because it waited for another one passes the charge on (``charges.way``). Of several ranks
    that were late together the one with the largest charge stands for all.
    """
    charges = analysis.charges
    if charges is None:
        return None
    late = charges.late
    root = late.rank.copy()
    for start in charges.way:
        at, seen = start, {start}
        while (after := charges.way.get(at, -1)) >= 0 and after not in seen:
            seen.add(after)
            at = after
        root[start] = late.rank[at]
    out = np.full(len(late.first) - 1, -1, np.int64)
    charged = np.flatnonzero(charges.charge > 0)
    order = charged[np.argsort(charges.charge[charged], kind="stable")]
    numbers = np.array([rank.rank for rank in analysis.ranks], np.int64)
    out[late.match[order]] = numbers[root[order]]
    return out


def _title(row: Straggler, why: str) -> str:
    if row.kind == "rotating":
        return "Ranks take turns at being late: a pause on the CPU that goes round the ranks"
    if row.rank is not None or len(row.members) == 1:
        return f"Rank {row.members[0] if row.rank is None else row.rank} makes the others wait: {why}"
    if row.host is not None and row.role is None:
        return f"Host {row.host} makes the others wait: {why}"
    return f"{row.role or 'Ranks'} (ranks {ranks_text(row.members)}) makes the others wait: {why}"
