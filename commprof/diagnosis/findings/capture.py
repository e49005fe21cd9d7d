"""Findings about the recording itself and its environment: artefacts and variables that change what runs beside "
"what."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.catalogue import REST
from commprof.diagnosis.findings.case import Case, Claim, ranks_of, steps_of, whole
from commprof.diagnosis.findings.reductions import of_gradients, tail_of
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.model import Evidence
from commprof.trace.operations import OPERATIONS

_ON = ("1", "true", "yes", "on", "y")


def profiler_start(ground: Ground) -> Iterator[Case]:
    """Calls that the start of the recording or the set-up of a communicator made long: no property of the run."""
    for flag, what in (
        ("profiler-start", "Calls at the start of the recording waited for other ranks to start theirs"),
        ("first-use", "The first call of a communicator set it up"),
    ):
        rows = ground.flag_is(flag)
        if rows.any():
            yield Case(
                "profiler-start",
                f"{what}: an artefact, not a cost of the run",
                whole(ground, rows, "host", "wait", "rest"),
                ("Record after a few warm-up steps; these calls are left out of averages, bandwidth and waiting.",),
                (Evidence("longest exposed stretch of one such call", int(ground.exposed.ns[rows].max()), "ns"),),
                cause=flag, ranks=ranks_of(ground, rows), steps=steps_of(ground, rows),
                group_id=ground.one_group(rows), calls=ground.calls_in(rows), nothing_back=True, most="info",
            )  # fmt: skip


def timing_enabled(ground: Ground) -> Iterator[Case]:
    """``TORCH_NCCL_ENABLE_TIMING`` records events around every collective, which costs overlap (pytorch#143890)."""
    value = ground.analysis.capture.get("environment", {}).get("TORCH_NCCL_ENABLE_TIMING", "")
    if str(value).strip().lower() in _ON:
        yield Case(
            "timing-enabled",
            f"TORCH_NCCL_ENABLE_TIMING={value}: timing of collectives removes overlap",
            Claim(),
            ("Unset TORCH_NCCL_ENABLE_TIMING for runs that matter; the flight recorder then keeps no durations.",),
            (Evidence("TORCH_NCCL_ENABLE_TIMING", str(value), ""),),
            nothing_back=True,
        )  # fmt: skip


def max_connections(ground: Ground) -> Iterator[Case]:
    """``CUDA_DEVICE_MAX_CONNECTIONS=1`` queues all streams in one order, so communication starts when its turn "
    "comes."""
    value = str(ground.analysis.capture.get("environment", {}).get("CUDA_DEVICE_MAX_CONNECTIONS", "")).strip()
    exposed = int(ground.exposed.ns.sum())
    if value == "1" and exposed:
        yield Case(
            "max-connections",
            "CUDA_DEVICE_MAX_CONNECTIONS=1: kernels of all streams start in the order of their launches",
            Claim(),
            (
                "Without tensor-parallel overlap nothing needs the value 1: unset CUDA_DEVICE_MAX_CONNECTIONS or set "
                "8, so "
                "that a collective need not wait for kernels launched before it. With FSDP 1 is known to remove "
                "overlap.",
            ),
            (
                Evidence("CUDA_DEVICE_MAX_CONNECTIONS", value, ""),
                Evidence("exposed communication", exposed // len(ground.steps), "ns"),
            ),
            nothing_back=True,
        )  # fmt: skip


_KNOWN: dict[str, tuple[str, str]] = {
    "longer-than-compute": (
        "Communication takes longer than the compute beside it: it cannot be hidden at this size",
        "More compute per message: larger micro-batches (memory), gradient accumulation; or fewer bytes: compression, "
        "bf16 "
        "(accuracy), a smaller group.",
    ),
    "structural": (
        "The next kernel needs the result of communication: it is on the critical path",
        "Give it something independent to run beside: chunk it and overlap the chunks with compute, or a second "
        "micro-batch.",
    ),
    "queued": (
        "Communication queues behind earlier communication on its stream",
        "Fewer bytes or other streams: a process group of its own for what is needed first (memory, SMs).",
    ),
    "late-launch": (
        "Communication is launched late by the CPU",
        "Shorten what the CPU does before it: torch.compile, CUDA graphs, no synchronisation before the collective.",
    ),
    "peer-wait": (
        "Communication lasts because it waits for the other side",
        "Look who comes last in the waiting section; even out what the ranks, or the stages of a pipeline, compute "
        "between two calls. More micro-batches make what stages wait for each other shorter (memory).",
    ),
}  # fmt: skip


_EXCHANGE = (
    "Experts need the tokens that all-to-alls bring: the exchange is on the critical path",
    "Overlap it with compute that needs none of its tokens: the shared expert (--moe-shared-expert-overlap in "
    "Megatron) or another micro-batch (--overlap-moe-expert-parallel-comm in Megatron; memory); or send less: experts "
    "inside one host, DeepEP (--moe-enable-deepep), fp8 dispatch (accuracy).",
)


def _mostly(ground: Ground, rows: Mask, role: str) -> bool:
    """Whether most of the exposed time of these rows is in groups of a role."""
    rest = ground.exposed.rest
    return 2 * int(rest[rows & ground.role_is(role)].sum()) > int(rest[rows].sum())


def unclaimed(ground: Ground) -> Iterator[Case]:
    """Exposed communication that no rule before claimed, by its cause; the one without a cause last."""
    told = np.zeros(len(ground.exposed), np.bool_)
    for cause, (title, advice) in _KNOWN.items():
        rows = ground.cause_is(cause)
        told |= rows
        if rows.any():
            words = _EXCHANGE if cause == "structural" and _mostly(ground, rows, "ep") else (title, advice)
            yield _exposed(ground, rows, *words, cause)
    if not told.all():
        yield _exposed(
            ground, ~told, "Communication is exposed, its cause is not determined", missing_data(ground), "unknown"
        )


def _exposed(ground: Ground, rows: Mask, title: str, advice: str, cause: str) -> Case:
    shares: dict[str, int] = {}
    for operation in np.unique(ground.exposed.operation[rows]).tolist():
        mine = rows & (ground.exposed.operation == operation)
        shares[OPERATIONS[operation].replace("_", "-")] = int(ground.exposed.rest[mine].sum())
    return Case(
        _id_of(ground, rows, cause),
        title,
        whole(ground, rows),
        (advice,),
        tuple(
            Evidence(f"exposed {name}", ns // len(ground.steps), "ns")
            for name, ns in sorted(shares.items(), key=lambda item: -item[1])[:3]
        ),
        cause=cause, ranks=ranks_of(ground, rows), steps=steps_of(ground, rows), group_id=ground.one_group(rows),
        calls=ground.calls_in(rows), confidence="bound", structural=cause == "structural",
    )  # fmt: skip


def _id_of(ground: Ground, rows: Mask, cause: str) -> str:
    """A reduction that ends a step is a tail by its place alone, even where nothing tells why it is exposed."""
    gradients, _ = of_gradients(ground)
    tail = tail_of(ground, gradients)
    return "ddp-tail-bucket" if cause in ("peer-wait", "unknown") and not (rows & ~tail).any() else REST


def missing_data(ground: Ground) -> str:
    """What to record so that the causes of exposed time can be told."""
    wanted = []
    if all(step.rank.coverage.linked_device_events == 0 for step in ground.steps) and not ground.steps[0].rank.on_cpu:
        wanted.append("CPU activity, so that launches tell whether the CPU was late")
    if not ground.knows_waiting():
        wanted.append("all ranks, so that waiting can be told from transfer")
    if not wanted:
        wanted.append("CPU activity with ranges of the framework, so that the place in the step is known")
    return "To decide it record " + ", and ".join(wanted) + "."
