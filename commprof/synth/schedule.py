"""Pipeline schedules: in which order a stage runs the forward and backward passes of its microbatches.

GPipe: Huang et al., 2019. 1F1B and interleaved 1F1B: Narayanan et al., SC'21 (Megatron-LM), whose order of
chunks and microbatches is followed here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Action:
    """One pass of one microbatch through one model chunk of a stage."""

    forward: bool
    microbatch: int
    chunk: int


def schedule(kind: str, stage: int, stages: int, microbatches: int, chunks: int = 1) -> list[Action]:
    """Actions of ``stage`` in order.

    ``kind`` is ``gpipe``, ``1f1b`` or ``interleaved``; with one stage each microbatch goes forward and backward
    in turn.
    """
    if stages == 1:
        order = range(chunks)
        return [
            action
            for m in range(microbatches)
            for action in [Action(True, m, c) for c in order] + [Action(False, m, c) for c in reversed(order)]
        ]
    if kind == "gpipe":
        return [Action(True, m, 0) for m in range(microbatches)] + [Action(False, m, 0) for m in range(microbatches)]
    total = microbatches * chunks
    if chunks == 1:
        warmup = min(stages - stage - 1, total)
    elif microbatches == stages:
        warmup = total
    else:
        warmup = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)
    forwards = [_nth(k, stages, chunks, True) for k in range(total)]
    backwards = [_nth(k, stages, chunks, False) for k in range(total)]
    actions = forwards[:warmup]
    for k in range(total - warmup):
        actions += [forwards[warmup + k], backwards[k]]
    return actions + backwards[total - warmup :]


def _nth(k: int, stages: int, chunks: int, forward: bool) -> Action:
    """The ``k``-th forward or backward pass: ``stages`` microbatches of one chunk, then of the next."""
    if chunks == 1:
        return Action(forward, k, 0)
    round_, inside = divmod(k, stages * chunks)
    chunk = inside // stages
    return Action(forward, round_ * stages + inside % stages, chunk if forward else chunks - 1 - chunk)
