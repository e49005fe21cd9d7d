"""Sentences that say why a group was given its role."""

from __future__ import annotations

import numpy as np

from commprof.analysis.group_use import GroupUse
from commprof.analysis.places import PHASES
from commprof.trace.operations import OPERATIONS
from commprof.units import format_bytes

NAMES = {
    "all_reduce": ("all-reduce", "all-reduces"), "all_gather": ("all-gather", "all-gathers"),
    "reduce_scatter": ("reduce-scatter", "reduce-scatters"), "all_to_all": ("all-to-all", "all-to-alls"),
    "broadcast": ("broadcast", "broadcasts"), "reduce": ("reduce", "reduces"), "gather": ("gather", "gathers"),
    "scatter": ("scatter", "scatters"), "send": ("send", "sends"), "recv": ("receive", "receives"),
    "send_recv": ("grouped message", "grouped messages"), "barrier": ("barrier", "barriers"),
    "unknown": ("call of unknown kind", "calls of unknown kind"),
}  # fmt: skip

_MEANING = {
    "pipeline": "messages between neighbouring stages",
    "ring": "messages around a circle, as ring attention sends keys and values",
    "exchange": "every rank sends a part of its tokens to every other",
    "tensor": "partial results summed in the forward and in the backward pass",
    "sequence": "activations gathered and reduce-scattered in the forward and in the backward pass",
    "sharded": "parameters are gathered for the passes and gradients reduce-scattered",
    "partitioned": "gradients are reduced and the updated parameters distributed after the optimizer",
    "gradients": "tensors summed once the backward pass has made them, as gradients are",
    "broadcast": "one rank gives, the others take",
    "control": "few bytes",
}


def counted(number: float, operation: str) -> str:
    """``5 all-reduces``."""
    one, many = NAMES[operation]
    rounded = f"{number:.0f}" if abs(number - round(number)) < 0.05 else f"{number:.1f}"
    return f"{rounded} {one if rounded == '1' else many}"


def sizes_text(smallest: int, largest: int) -> str:
    """``4.00 MB to 25.0 MB``, or one size where both read alike."""
    low, high = format_bytes(smallest), format_bytes(largest)
    return low if low == high else f"{low} to {high}"


def operations_text(use: GroupUse) -> str:
    """Calls of a step (or window) by operation, with their sizes."""
    parts = []
    for code in np.unique(use.operation).tolist():
        chosen = use.operation == code
        text = counted(use.per_unit(chosen), OPERATIONS[code])
        sizes = use.size[chosen & (use.size > 0)]
        if len(sizes):
            text += f" of {sizes_text(int(sizes.min()), int(sizes.max()))}"
        parts.append((-use.weight(chosen), text))
    return ", ".join(text for _, text in sorted(parts)) + f" {use.per}"


def phases_text(use: GroupUse) -> str | None:
    """Where in the step the calls are; ``None`` where no phase is known."""
    names = [(int((use.phase == index).sum()), name) for index, name in enumerate(PHASES) if (use.phase == index).any()]
    if not names:
        return None
    total = sum(count for count, _ in names)
    if len(names) == 1:
        return f"all in the {names[0][1]} part of the step"
    return (
        ", ".join(f"{count:,} {name}" for count, name in sorted(names, reverse=True))
        + f" of {total:,} calls, by place in the step"
    )


def meaning(purposes: tuple[str, ...]) -> str:
    """What the pattern of calls means."""
    return "; ".join(_MEANING[purpose] for purpose in purposes if purpose in _MEANING)
