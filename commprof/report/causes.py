"""The report's words for causes, roles and strategies as people say them: a short name and what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """``name`` stands in tables, ``meaning`` is one sentence for whoever has not met the word."""

    name: str
    meaning: str


EXPOSED = {
    "host-bound": Word("host was late", "The CPU had not yet launched the compute that comes next."),
    "late-launch": Word("launched late", "The data was ready, but the CPU started the collective later."),
    "queued": Word("queued", "It stood behind an earlier collective on the same stream."),
    "no-prefetch": Word("not prefetched", "Parameters were gathered only when the layer already needed them."),
    "rate-limiter": Word("held back", "The limit on gathered parameters held the next gather back."),
    "longer-than-compute": Word("longer than compute", "It ran beside compute, but compute ended first."),
    "tail": Word("tail", "It ran after the last compute of the backward pass: nothing was left to hide it."),
    "on-compute-stream": Word("on the compute stream", "It ran on the stream of the kernels: in turn, not beside."),
    "blocking-wait": Word("blocking wait", "The program waited for it on the CPU."),
    "device-synchronisation": Word("device synchronisation", "The program waited for the whole device."),
    "peer-wait": Word("waiting for a peer", "Other ranks had not yet entered the collective."),
    "serialised": Word("serialised", "Collectives on one communicator run one after the other."),
    "structural": Word("structural", "Compute needs its result at once, as in tensor parallel: it cannot hide fully."),
    "first-use": Word("first use", "The communicator was set up during its first call."),
    "profiler-start": Word("profiler start", "It lies where the profiler started."),
    "unknown": Word("not determined", "The trace does not tell why."),
}  # fmt: skip

IDLE = {
    "launch": Word("launching", "The CPU did not launch kernels fast enough."),
    "synchronisation": Word("synchronisation", "The CPU waited for the device before it launched more."),
    "rate-limiter": Word("held back", "The limit on gathered parameters held the next gather back."),
    "allocator": Word("memory allocator", "The allocator freed or asked for device memory."),
    "input": Word("input", "The training loop waited for its next batch."),
    "bubble": Word("pipeline bubble", "A stage had no micro-batch to work on."),
    "dispatch": Word(
        "starting collectives", "The CPU was in a call that starts or awaits a collective, while none ran here."
    ),
    "between-operators": Word(
        "between operators", "No operator ran: Python, the autograd engine, the profiler, or no core to run on."
    ),
    "unknown": Word("not determined", "The trace does not tell why."),
}
ON_CPU = ("dispatch", "between-operators")
"""Causes of idle time of a rank that trains on CPU cores: there the cores are the device."""

OF_FINDINGS = {
    "pause": Word("pause", "Two launches lay much further apart than usual: something else kept the CPU."),
    "copy": Word("copies", "Memory is copied or filled while neither compute nor communication runs."),
}

LATE = {
    "slow-device": Word("slow device", "The same kernels take longer than on its peers."),
    "more-work": Word("more work", "It runs more or larger kernels than its peers: no fault of the machine."),
    "host": Word("host", "Its CPU launches later than that of its peers."),
    "input": Word("input", "It waits for its data loader."),
    "copy": Word("copies", "Its copies to or from the host take longer."),
    "communication": Word("communication", "Its own transfers take longer."),
    "inherited": Word("inherited", "It was late already where the capture begins, or a missing rank made it late."),
    "unknown": Word("not determined", "The trace does not tell why."),
}

UNDECIDED = {
    ("more-work", "slow-device"): Word(
        "more work or a slow device",
        "Its kernels last longer than equal ones of the other stages, and no other rank runs this stage to compare "
        "with: larger tensors and a slow device look alike here. The stage on another device, or the clocks of this "
        "one under load, tell them apart.",
    ),
}
"""Two causes of lateness that a trace cannot tell from each other: the one that is stated, and the other."""

LATE_KINDS = {
    "persistent": "in most steps",
    "intermittent": "in some steps",
    "rotating": "in turn",
    "single-step": "in the steps at hand",
}

ROLES = {
    "dp": Word("data parallel", "Reduces gradients of replicas."),
    "tp": Word("tensor parallel", "Joins the parts of one layer."),
    "pp": Word("pipeline parallel", "Passes activations between stages."),
    "ep": Word("expert parallel", "Sends tokens to their experts and back."),
    "edp": Word("expert data parallel", "Reduces gradients of one expert's replicas."),
    "cp": Word("context parallel", "Passes keys and values of a sequence that is cut over ranks."),
    "shard": Word("shard", "Gathers and scatters parameters that are cut over ranks."),
    "replicate": Word("replicate", "Reduces gradients over replicas of the shards."),
    "embedding": Word("embedding", "Joins embeddings that several ranks hold."),
    "control": Word("control", "Small messages of the program itself: losses, norms, flags."),
}

STRATEGIES = {
    "ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "fsdp": "FSDP", "hsdp": "HSDP",
    "tp": "tensor parallel", "sp": "sequence parallel", "pp": "pipeline parallel", "ep": "expert parallel",
    "cp": "context parallel", "none": "no parallelism", "unknown": "not recognised",
}  # fmt: skip

BOTTLENECKS = {
    "communication": "communication", "straggler": "late ranks", "pipeline": "the pipeline",
    "imbalance": "unequal work",
    "host": "the CPU", "input": "input", "compute": "compute", "copy": "copies", "balanced": "none alone",
    "unknown": "not known",
}  # fmt: skip


def named(words: dict[str, Word], code: str | None) -> str:
    """The short name of a code; the code itself where this table does not know it."""
    return (
        words["unknown"].name
        if code is None and "unknown" in words
        else words[code].name
        if code in words
        else code or "n/a"
    )


def late_word(cause: str, or_cause: str | None) -> Word | None:
    """Why a rank is late, in words; with ``or_cause`` that this other cause cannot be told from it."""
    return UNDECIDED.get((cause, or_cause or "")) or LATE.get(cause)


def role_name(role: str | None) -> str | None:
    """``tensor parallel × data parallel`` for ``tpxdp``-like products; ``None`` where the role is not known."""
    if not role or role == "unknown":
        return None
    parts = role.replace("×", "x").split("x")
    if all(part in ROLES for part in parts):
        return " × ".join(ROLES[part].name for part in parts)
    return role


def strategy_name(name: str) -> str:
    """``DDP + tensor parallel`` for ``ddp+tp``."""
    return " + ".join(STRATEGIES.get(part, part) for part in name.split("+"))
