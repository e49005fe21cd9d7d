"""Findings on the CPU side: input, launching, synchronisation, allocator; and on copies and contention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from commprof.analysis.host_delays import DELAYS
from commprof.analysis.steps import units
from commprof.diagnosis.findings.before_calls import launches_pause
from commprof.diagnosis.findings.behind_stages import behind_stage, idle_for
from commprof.diagnosis.findings.case import (
    Case,
    Claim,
    all_steps,
    delayed,
    idle_of,
    ranks_of,
    reference_ranks,
    steps_of,
    whole,
)
from commprof.diagnosis.findings.overlapping import exposed_anyway
from commprof.diagnosis.findings.reductions import gaps, of_gradients
from commprof.diagnosis.findings.sharded import PACKING
from commprof.diagnosis.findings.stages_apart import late_hosts
from commprof.diagnosis.findings.stalls import stalls_by_step
from commprof.diagnosis.findings.unblocked import handed_over, packing, short_waits, waited, waited_for, without_waits
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence
from commprof.diagnosis.on_path import OnPath, all_of
from commprof.intervals import Int64Array

BLOCKING, OTHER = range(2)
"""Kinds of waiting of the CPU, see ``HostDelays.waited``."""


def _operators(ground: Ground, idle: Int64Array) -> list[str]:
    """The operators that idle time stands under, the most idle first."""
    total: dict[str, int] = {}
    for op, ns in zip(ground.idle.op, idle.tolist(), strict=True):
        if op and ns:
            total[op] = total.get(op, 0) + ns
    return sorted(total, key=lambda op: (-total[op], op))


def input_bound(ground: Ground) -> Iterator[Case]:
    """The device idles while the loop waits for its next batch."""
    idle, host = idle_of(ground, "input"), delayed(ground, "input")
    behind = behind_stage(ground, "input")
    path = all_of(ground.analysis.critical_path, "inputs")
    alone = stalls_by_step(ground, _of_equals(ground, path))
    if not idle.any() and not host.any() and behind is None and alone is None:
        return
    claim = Claim(idle=idle, host=np.where(ground.exposed.awaited, 0, host))
    seen = idle.any() or (claim.host is not None and claim.host.any())
    of_its_own = reference_ranks(ground) if seen or alone is None else _fetching(ground)
    evidence = [
        Evidence("idle while the loop waits for input", int(idle.sum()) // len(ground.steps), "ns"),
        Evidence("times per step", _count(ground, "input"), "times"),
    ]
    if behind is not None:
        claim.wait, claim.idle = behind.wait, idle + behind.idle
        waited = int(behind.ns.sum()) // len(ground.steps)
        evidence.append(Evidence("waiting in the pipeline for a stage that waits for input", waited, "ns"))
    yield Case(
        "input-bound",
        "The device waits for input: the loop fetches its next batch meanwhile",
        claim,
        (
            "Give the DataLoader more num_workers and a larger prefetch_factor (host memory), pin_memory=True with "
            "non_blocking copies, and persistent_workers=True; move decoding off the loop.",
        ),
        tuple(evidence),
        host_back=True, cause="input",
        ranks=tuple(sorted({*of_its_own, *(behind.ranks if behind else ())})), steps=all_steps(ground),
        path=path, measured=_longest_fetch(ground), alone=alone,
    )  # fmt: skip


def _fetching(ground: Ground) -> tuple[int, ...]:
    """The ranks that fetch for at least half as long as the one of them that the critical path goes through most."""
    path, ranks = ground.analysis.critical_path, ground.analysis.ranks
    if path is None:
        return ()
    most = path.fetched[int(np.argmax(path.inputs))]
    return tuple(ranks[index].rank for index in np.flatnonzero(2 * path.fetched >= most).tolist())


def _of_equals(ground: Ground, path: OnPath | None) -> OnPath | None:
    """Inputs on the path of ranks that are not named for theirs: those of late ranks are told with them."""
    named = [rank for row in ground.analysis.stragglers if row.cause == "input" for rank in row.members]
    if path is None or not named:
        return path
    late = np.isin([rank.rank for rank in ground.analysis.ranks], named)
    return OnPath({kind: np.where(late, 0, ns) for kind, ns in path.parts.items()})


def _longest_fetch(ground: Ground) -> Int64Array | None:
    """How long the rank that waits the longest for its input in each step does, of those that decide the step."""
    path = ground.analysis.critical_path
    if path is None or not path.inputs.any():
        return None
    ranks = [ground.analysis.ranks[index] for index in np.flatnonzero(path.inputs).tolist()]
    return np.array([max(idle_for(rank, step.unit.names, "input") for rank in ranks) for step in ground.steps])


def _count(ground: Ground, cause: str) -> float:
    chosen = np.array([name == cause for name in ground.idle.cause], np.bool_)
    return round(int(ground.idle.count[chosen].sum()) / len(ground.steps), 1)


def comm_on_compute_stream(ground: Ground) -> Iterator[Case]:
    """Communication on the stream of the kernels cannot run beside them."""
    rows = ground.cause_is("on-compute-stream") & ~ground.role_is("tp", "cp")
    if rows.any():
        yield Case(
            "comm-on-compute-stream",
            "Communication runs on the compute stream and cannot run beside its kernels",
            whole(ground, rows),
            (
                "Where the program calls it itself, use async_op=True and wait() where its result is needed: it gets a "
                "stream of "
                "its own (since PyTorch 2.8 a blocking collective runs on the current stream); buffers must then live "
                "until wait().",
            ),
            (
                Evidence("exposed on that stream", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
                Evidence("calls per step", ground.calls_in(rows), "calls"),
            ),
            cause="on-compute-stream", ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
            group_id=ground.one_group(rows), calls=ground.calls_in(rows),
        )  # fmt: skip


def blocking_wait(ground: Ground) -> Iterator[Case]:
    """The CPU waits for a collective before it launches what could hide it, and has nothing queued afterwards."""
    rows, (host, rest, idle) = waited_for(ground), _of_waits(ground)
    after = int(delayed(ground, "after-wait").sum() + idle_of(ground, "after-wait").sum())
    behind = handed_over(ground)
    if not rows.any() and not after and behind is None:
        return
    gained, packed = without_waits(ground), packing(ground)
    # What a call waits for its peers goes behind compute together with it.
    claim = Claim(host, np.where(rows, ground.exposed.wait, 0), rest, idle)
    short = np.array([short_waits(step) for step in ground.steps], np.int64)
    back = _beside_backward(ground, claim) if gained is None else np.minimum(gained[0] + short, _total(ground, claim))
    evidence = [
        Evidence("exposed meanwhile", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
        Evidence("nothing queued afterwards", after // len(ground.steps), "ns"),
        *([Evidence(PACKING, packed, "ns")] if packed else []),
    ]
    if behind is not None:
        claim = Claim(host, np.where(rows, ground.exposed.wait, 0) + behind.wait, rest, idle + behind.idle)
        back = back + behind.ns
        waited = int(behind.ns.sum()) // len(ground.steps)
        evidence.append(Evidence("waiting in the pipeline for a stage that waits for its collectives", waited, "ns"))
    yield Case(
        "blocking-wait",
        "The program waits on the CPU for its collectives instead of letting the device wait",
        claim,
        (
            "Unset TORCH_NCCL_BLOCKING_WAIT and take torch.cuda.synchronize() out of the step; where the program calls "
            "collectives itself, drop .wait() after them: kernels that need the result wait on the device anyway. "
            "Errors of a collective then show later.",
        ),
        tuple(evidence),
        # A slow network makes it long, but behind compute it would cost nothing: either of the two can go.
        cause="blocking-wait", recoverable=back, alone=np.clip(back, 0, _total(ground, claim)),
        ranks=tuple(sorted({*reference_ranks(ground), *(behind.ranks if behind else ())})), steps=all_steps(ground),
        group_id=ground.one_group(rows), calls=ground.calls_in(rows) or None,
    )  # fmt: skip


def _of_waits(ground: Ground) -> tuple[Int64Array, Int64Array, Int64Array]:
    """What waits of the CPU for collectives cost: of every exposed row the host-bound part and the rest, and of every
    idle row. That is what is exposed meanwhile and what it launches late for them."""
    rows = waited_for(ground)
    after, idle = delayed(ground, "after-wait"), idle_of(ground, "after-wait")
    # A call is launched late where the CPU has not caught up with what it did not launch while it waited.
    late = ground.cause_is("late-launch") & ~ground.purpose_is("activations") & ~ground.role_is("tp", "cp", "pp")
    late_rest = np.where(late, ground.exposed.rest, 0)
    claim = _up_to(ground, whole(ground, rows, "rest"), after, idle, BLOCKING, late_rest)
    assert claim.host is not None
    assert claim.rest is not None
    assert claim.idle is not None
    return claim.host, claim.rest, claim.idle


def _beside_backward(ground: Ground, claim: Claim) -> Int64Array:
    """What of the claim comes back if reductions of gradients run beside the backward pass."""
    gradients, found = of_gradients(ground)
    reduced = Claim(**{part: np.where(gradients, getattr(claim, part), 0) for part in ("host", "rest")})
    stays = np.minimum(exposed_anyway(ground, found), _total(ground, reduced))
    # Where the CPU decides the step, it is ahead by as long as it waited, whatever the reductions take meanwhile.
    launching = idle_of(ground, "launch", *DELAYS)
    others = _total(ground, Claim(host=ground.exposed.host, idle=launching)) - _total(ground, replace(claim, rest=None))
    back: Int64Array = _total(ground, claim) - np.maximum(stays - np.maximum(others, 0), 0)
    return back


def device_synchronisation(ground: Ground) -> Iterator[Case]:
    """The CPU waits for the device: nothing is launched meanwhile, and nothing is queued afterwards."""
    rows = ground.cause_is("device-synchronisation", "blocking-wait")
    idle = idle_of(ground, "synchronisation", "after-synchronisation")
    after = delayed(ground, "after-synchronisation")
    if not rows.any() and not idle.any() and not after.any():
        return
    operators = _operators(ground, idle)
    claim = _up_to(ground, whole(ground, rows, "rest"), after, idle, OTHER)
    named = f" ({', '.join(operators[:2])})" if operators else ""
    yield Case(
        "device-synchronisation",
        f"The CPU waits for the device{named}: nothing is queued when the device is done",
        claim,
        (
            "Remove .item(), .cpu(), print of tensors and torch.cuda.synchronize() from the step, or do them every "
            "n-th step; copy losses with non_blocking=True and read them a step later (logs then lag by a step).",
        ),
        (
            Evidence("idle meanwhile and until kernels are queued again", int(idle.sum()) // len(ground.steps), "ns"),
            Evidence("times per step", _count(ground, "synchronisation"), "times"),
            *(Evidence("operator", name, "") for name in operators[:3]),
        ),
        cause="device-synchronisation", host_back=True, ranks=reference_ranks(ground), steps=all_steps(ground),
        calls=ground.calls_in(rows) or None,
    )  # fmt: skip


def _total(ground: Ground, claim: Claim) -> Int64Array:
    """Everything that a claim asks for, by step."""
    total = np.zeros(len(ground.steps), np.int64)
    for part in (claim.host, claim.wait, claim.rest):
        if part is not None:
            total += ground.per_step(ground.exposed.step, part)
    return total if claim.idle is None else total + ground.per_step(ground.idle.step, claim.idle)


def _up_to(
    ground: Ground, claim: Claim, host: Int64Array, idle: Int64Array, kind: int, late: Int64Array | None = None
) -> Claim:
    """The claim with host-bound time and late calls as well, all together no more than the CPU waited in each step.

    A CPU that does not block is ahead by as long as it waited, for good: what is left of that comes back wherever it
    launches too late in the step, be it behind other waits. A single wait for the device, as a loop reads its loss,
    stays at the end of the step.
    """
    exposed = ground.exposed
    taken = np.zeros(len(exposed), np.int64) if claim.rest is None else claim.rest
    meanwhile = ground.per_step(exposed.step, taken)
    late = np.zeros(len(exposed), np.int64) if late is None else late
    after = ground.per_step(exposed.step, host + late) + ground.per_step(ground.idle.step, idle)
    room = np.maximum(np.array([waited(step)[kind] for step in ground.steps], np.int64) - meanwhile, 0)
    share = np.minimum(room / np.maximum(after, 1), 1.0)
    claim.rest = taken + (late * share[exposed.step]).astype(np.int64)
    claim.host = (host * share[exposed.step]).astype(np.int64)
    claim.idle = (idle * share[ground.idle.step]).astype(np.int64)
    if kind != BLOCKING:
        return claim
    other = np.where(exposed.awaited, 0, exposed.host - claim.host)
    launching = idle_of(ground, "launch", *(why for why in DELAYS if why not in ("input", "pause"))) - claim.idle
    left = ground.per_step(exposed.step, other) + ground.per_step(ground.idle.step, launching)
    more = np.minimum(np.maximum(room - after, 0) / np.maximum(left, 1), 1.0)
    claim.host += (other * more[exposed.step]).astype(np.int64)
    claim.idle += (launching * more[ground.idle.step]).astype(np.int64)
    return claim


def allocator_retries(ground: Ground) -> Iterator[Case]:
    """``cudaMalloc`` and ``cudaFree`` in the step: the caching allocator ran out and synchronised."""
    idle = idle_of(ground, "allocator")
    if idle.any():
        count = _count(ground, "allocator")
        yield Case(
            "allocator-retries",
            f"The memory allocator frees and asks for device memory inside the step ({count:g} times per step)",
            Claim(idle=idle),
            (
                "Memory is nearly full: use smaller micro-batches or activation checkpointing (more compute), "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or with FSDP limit_all_gathers=True (may expose "
                "gathers).",
            ),
            (
                Evidence("idle meanwhile", int(idle.sum()) // len(ground.steps), "ns"),
                Evidence("calls per step", count, "calls"),
            ),
            cause="allocator", ranks=reference_ranks(ground), steps=all_steps(ground),
        )  # fmt: skip


def host_bound(ground: Ground) -> Iterator[Case]:
    """Nothing was enqueued that could have computed: the CPU launches too slowly, whatever communication did."""
    idle = idle_of(ground, "launch", *(reason for reason in DELAYS if reason != "input"))
    host = ground.exposed.host
    late = ground.cause_is("late-launch")
    if not idle.any() and not host.any() and not late.any():
        return
    rest = np.where(late, ground.exposed.rest, 0)
    gradients = ground.gradients()
    between = ground.per_step(ground.exposed.step, np.where(gradients, host + rest, 0))
    back = np.minimum(between, gaps(ground)) + ground.per_step(ground.idle.step, idle)
    # What the next kernel needs is exposed for as long as it takes, however fast the CPU is.
    own = np.where(ground.purpose_is("activations"), 0, host)
    back += ground.per_step(ground.exposed.step, np.where(gradients, 0, own + rest))
    claim = Claim(host=host, rest=rest, idle=idle)
    # What a CPU launches too late because it had waited is told of the waits.
    of_waits = _of_waits(ground)
    told = Claim(host=of_waits[0], rest=np.where(late, of_waits[1], 0), idle=np.minimum(of_waits[2], idle))
    parts = ("cpu", "launching", "pauses") if launches_pause(ground) else ("cpu", "launching")
    whole_claim = int((_total(ground, claim) - _total(ground, told)).sum()) // len(ground.steps)
    yield Case(
        "host-bound",
        "The CPU launches too late: the device has nothing to compute meanwhile",
        claim,
        (
            "Launch less: torch.compile, CUDA graphs (static shapes), fused optimizers, larger micro-batches (memory); "
            "take "
            "Python work, garbage collection and logging out of the step.",
            "Check that the process has enough cores of its own (OMP_NUM_THREADS, CPU affinity, NUMA).",
        ),
        (
            Evidence("idle while nothing was enqueued", int(idle.sum()) // len(ground.steps), "ns"),
            Evidence("communication exposed while nothing was enqueued", int(host.sum()) // len(ground.steps), "ns"),
            *late_hosts(ground),
        ),
        cause="late-launch" if late.any() and not host.any() and not idle.any() else "host-bound",
        recoverable=back, ranks=reference_ranks(ground), steps=all_steps(ground), measured=_by_step(ground),
        path=all_of(ground.analysis.critical_path, *parts, at_most=whole_claim),
    )  # fmt: skip


def _by_step(ground: Ground) -> Int64Array:
    """What CPUs that launch too late cost in every reference step, mean over the ranks: which of them loses the most
    changes with what else goes on, and what it is charged with besides."""
    found: dict[tuple[str, ...], list[int]] = {step.unit.names: [] for step in ground.steps}
    for rank in ground.analysis.ranks:
        for device in rank.devices:
            for unit in units(device, rank.optimizer_marks):
                if unit.names in found:
                    found[unit.names].append((unit.total("idle_host") or 0) + (unit.total("exposed_host") or 0))
    return np.array([sum(found[step.unit.names]) // len(found[step.unit.names]) for step in ground.steps], np.int64)


def copy_bound(ground: Ground) -> Iterator[Case]:
    """Copies that nothing hides."""
    if ground.copies.any():
        yield Case(
            "copy-bound",
            "Copies and fills of memory are exposed",
            Claim(copy=ground.copies),
            (
                "Pin host memory and copy with non_blocking=True on a stream of its own, one batch ahead; keep "
                "off-loaded "
                "state on the device where memory allows.",
            ),
            (Evidence("exposed copies", int(ground.copies.sum()) // len(ground.steps), "ns"),),
            cause="copy", ranks=reference_ranks(ground), steps=all_steps(ground),
        )  # fmt: skip


def overlap_contention(ground: Ground) -> Iterator[Case]:
    """Kernels that run beside communication take longer: overlap has a price, which lies inside compute."""
    costs = {}
    for step in ground.steps:
        rows = [row for row in step.rank.contention if row.cost > 0]
        if rows:
            # The rows are over all windows of the rank; this is what one of them pays.
            costs[step.rank.rank] = (sum(row.cost for row in rows) // max(1, len(step.device.steps)), rows)
    if not costs:
        return
    rank, (cost, rows) = max(costs.items(), key=lambda entry: entry[1][0])
    kernels = sorted(rows, key=lambda row: -row.cost)[:3]
    yield Case(
        "overlap-contention",
        "Kernels beside communication are slower than alone: overlap is not free",
        Claim(),
        (
            "Give communication fewer SMs (NCCL_MAX_CTAS or the options of the group; lowers bandwidth), or move it "
            "beside "
            "kernels that do not need memory bandwidth.",
        ),
        (
            Evidence("overlap cost per step", cost, "ns"),
            *(Evidence(f"{row.kernel[:80]}: more per call", row.cost // row.calls_beside, "ns") for row in kernels),
            *(Evidence(f"{row.kernel[:80]}: alone", row.ns_alone // row.calls_alone, "ns") for row in kernels),
        ),
        ranks=(rank,), nothing_back=True, cost_ns=cost, most="info",
    )  # fmt: skip
