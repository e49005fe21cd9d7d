"""Sharded parameters (FSDP, ZeRO): gathers that come too late or last too long, reductions that queue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.diagnosis.findings.case import Case, Claim, hideable, idle_of, ranks_of, reference_ranks, steps_of, whole
from commprof.diagnosis.findings.prefetch import with_queues
from commprof.diagnosis.findings.sizes import of_gathers
from commprof.diagnosis.ground import Ground, Mask
from commprof.diagnosis.model import Evidence
from commprof.intervals import Int64Array

PACKING = "beside it only kernels that pack and unpack, per step"


def _gathers(ground: Ground) -> Mask:
    """All-gathers of parameters, as far as purpose and role tell."""
    gathers = ground.operation_is("all_gather") & ~ground.role_is("tp", "pp", "ep", "cp", "control")
    return gathers & ~ground.purpose_is("activations", "control")


def _of_units(ground: Ground) -> Mask:
    """Calls that gather parameters of a unit or scatter its gradients, as far as purpose and role tell."""
    gradients = ground.purpose_is("gradients") & ground.operation_is("reduce_scatter")
    return _gathers(ground) | gradients | ground.role_is("shard")


def _case(
    ground: Ground, identity: str, title: str, rows: Mask, advice: tuple[str, ...], cause: str, *, hides: bool = False,
    back: Int64Array | None = None, others: Int64Array | None = None,
) -> Iterator[Case]:  # fmt: skip
    """A case of the exposed time of these rows, of which ``back`` ns come back in each step where not all of it does;
    ``hides``: following the advice puts their calls behind compute. ``others`` of each row is told of elsewhere.

    What only packing and unpacking hides would then go behind compute as well. It lies inside compute, so that it is
    stated beside what comes back.
    """
    if not rows.any() or not ground.exposed.rest[rows].any():
        return
    evidence = [
        Evidence("exposed", int(ground.exposed.rest[rows].sum()) // len(ground.steps), "ns"),
        Evidence("calls per step", ground.calls_in(rows), "calls"),
    ]
    sizes = ground.column("size_bytes", rows)
    if (sizes >= 0).any():
        evidence.append(Evidence("largest message", int(sizes.max()), "bytes"))
    packing = sum(step.total("overlap_comm_copies") for step in ground.steps) // len(ground.steps)
    if hides and packing:
        evidence.append(Evidence(PACKING, packing, "ns"))
    modules = _modules(ground, rows)
    if modules:
        evidence.append(Evidence("most exposed module", modules[0], ""))
    claim = hideable(ground, rows) if hides else whole(ground, rows)
    if others is not None and claim.rest is not None:
        claim.rest = np.maximum(claim.rest - others, 0)
    yield Case(
        identity, title, claim, advice, tuple(evidence), cause=cause, ranks=ranks_of(ground, rows),
        steps=steps_of(ground, rows), group_id=ground.one_group(rows), calls=ground.calls_in(rows), recoverable=back,
    )  # fmt: skip


def _modules(ground: Ground, rows: Mask) -> list[str]:
    """Modules of these rows by exposed time."""
    total: dict[str, int] = {}
    exposed = ground.exposed
    for step, module, ns in zip(
        exposed.step[rows].tolist(), exposed.module[rows].tolist(), exposed.rest[rows].tolist(), strict=True
    ):
        if module >= 0:
            name = ground.steps[step].rank.places.modules[module]
            total[name] = total.get(name, 0) + ns
    return sorted(total, key=lambda name: (-total[name], name))


_OF_TORCH = (
    "Update each bucket during the backward pass: ZeroRedundancyOptimizer(overlap_with_ddp=True) with a DDP "
    "communication hook of ddp_zero_hook (functional optimizers only); parameters_as_bucket_view=True broadcasts "
    "buckets instead of single parameters; or FSDP, which gathers per layer.",
)
_OF_OTHERS = (
    "Overlap the gather with the next forward pass: --overlap-param-gather (Megatron, with --overlap-grad-reduce), or "
    "FSDP, which gathers per layer. DeepSpeed's stages 1 and 2 gather when the step is over: a larger "
    "allgather_bucket_size (memory) gathers in fewer calls.",
)


def gather_after_optimizer(ground: Ground) -> Iterator[Case]:
    """ZeRO-1 and 2 gather the updated parameters when the step is over: nothing is left to hide it."""
    rows = ground.phase_is("optimizer") & ground.operation_is("all_gather", "broadcast") & ~ground.role_is("tp", "pp")
    yield from _case(
        ground, "gather-after-optimizer",
        "Updated parameters are gathered after the optimizer step, beside nothing", rows,
        _OF_TORCH if rows.any() and not (rows & ground.operation_is("all_gather")).any() else _OF_OTHERS,
        "structural", others=of_gathers(ground),
    )  # fmt: skip


def fsdp_rate_limiter(ground: Ground) -> Iterator[Case]:
    """``limit_all_gathers`` held the CPU back."""
    rows = ground.cause_is("rate-limiter")
    idle = idle_of(ground, "rate-limiter")
    if not rows.any() and not idle.any():
        return
    claim: Claim = whole(ground, rows)
    claim.idle = idle
    yield Case(
        "fsdp-rate-limiter",
        "The limit on all-gathers in flight holds the next gather back",
        claim,
        ("Set limit_all_gathers=False if memory allows: more gathered parameters are then held at once (FSDP1).",),
        (Evidence("idle while held back", int(idle.sum()) // len(ground.steps), "ns"),),
        cause="rate-limiter", ranks=reference_ranks(ground),
        steps=steps_of(ground, rows), group_id=ground.one_group(rows), calls=ground.calls_in(rows) or None,
    )  # fmt: skip


def fsdp_no_prefetch(ground: Ground) -> Iterator[Case]:
    """Parameters are gathered only when the layer needs them."""
    rows, back = with_queues(ground, ground.cause_is("no-prefetch"), _gathers(ground), _of_units(ground))
    yield from _case(
        ground, "fsdp-no-prefetch", "Parameters are gathered only when their layer already waits for them", rows,
        (
            "Prefetch: set_modules_to_forward_prefetch and set_modules_to_backward_prefetch (FSDP2), "
            "forward_prefetch=True and BackwardPrefetch.BACKWARD_PRE (FSDP1), a larger stage3_prefetch_bucket_size "
            "with overlap_comm=True (DeepSpeed); one more layer is then in memory.",
        ),
        "no-prefetch", hides=True, back=back,
    )  # fmt: skip


def fsdp_late_launch(ground: Ground) -> Iterator[Case]:
    """The gather could have started earlier: the CPU launched it late."""
    rows = ground.cause_is("late-launch") & (_gathers(ground) | ground.role_is("shard"))
    yield from _case(
        ground, "fsdp-late-launch", "Gathers are launched late by the CPU, not for lack of prefetch", rows,
        (
            "Shorten the CPU's part: torch.compile, fewer and larger units (more memory per gather), no Python work "
            "between "
            "layers; prefetching further ahead (set_modules_to_forward_prefetch in FSDP2, stage3_prefetch_bucket_size "
            "in DeepSpeed) gives the CPU time.",
        ),
        "late-launch",
    )  # fmt: skip


def fsdp_longer_than_compute(ground: Ground) -> Iterator[Case]:
    """The gather started in time, but takes longer than the layer it hides behind; or those before it on its stream
    do, so that it queues."""
    queued = ground.cause_is("queued") & _gathers(ground) & ground.role_is("shard")
    yield from _case(
        ground, "fsdp-longer-than-compute", "Communication of a unit takes longer than the compute beside it",
        (ground.cause_is("longer-than-compute") & _of_units(ground)) | queued,
        (
            "More compute per gather: larger micro-batches (memory) or parameters that stay gathered between the "
            "passes (reshard_after_forward=False in FSDP2, SHARD_GRAD_OP in FSDP1, memory); fewer bytes: shard inside "
            "a host and replicate over hosts (HSDP, in DeepSpeed zero_hpz_partition_size; memory), bf16 or fp8 "
            "all-gather (accuracy), ZeRO++ (quantised).",
        ),
        "longer-than-compute",
    )  # fmt: skip


def reduce_scatter_queue(ground: Ground) -> Iterator[Case]:
    """Reductions wait behind each other."""
    yield from _case(
        ground, "reduce-scatter-queue", "Reduce-scatters queue behind each other and hold the backward pass",
        ground.cause_is("queued") & ground.operation_is("reduce_scatter"),
        (
            "Allow more of them in flight (set_reduce_scatter_max_input_buffers in FSDP2, memory) or make units larger "
            "(in DeepSpeed reduce_bucket_size); fewer bytes with bf16 reduction (reduce_dtype, in DeepSpeed "
            "communication_data_type; accuracy).",
        ),
        "queued",
    )  # fmt: skip


def serialised_communicator(ground: Ground) -> Iterator[Case]:
    """Gathers and reductions on one communicator run one after the other."""
    yield from _case(
        ground, "serialised-communicator", "Gathers and reductions share one communicator and run one after the other",
        ground.cause_is("serialised"),
        (
            "Give reductions a process group of their own (set_separate_reduce_scatter_group in FSDP2; a second "
            "communicator costs memory and SMs), or order launches so that the next gather comes before the reduction "
            "(set_modules_to_backward_prefetch in FSDP2, BackwardPrefetch.BACKWARD_PRE in FSDP1).",
        ),
        "serialised",
    )  # fmt: skip
