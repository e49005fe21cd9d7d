"""The capture call that would give a better trace than the one examined, with the reason of each argument."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from commprof.analysis.steps import period_of
from commprof.diagnosis.examination import Examination
from commprof.diagnosis.fitness.check import Check, Limits
from commprof.diagnosis.fitness.steps import first_numbers

_SKIP, _WARMUP, _STEPS = 4, 1, 4
_SETTLE = 5
"""Steps to go further where the first recorded one was not typical."""


@dataclass(frozen=True, slots=True)
class Recapture:
    """Arguments of ``commprof.Capture`` beside ``out`` and ``model``; ``reasons`` are sentences without full stop."""

    out: str
    skip: int
    warmup: int
    steps: int
    reasons: tuple[str, ...]

    @property
    def call(self) -> str:
        """The code to put around the training loop, at most 80 columns wide where the folder's name allows it."""
        head = f'with commprof.Capture("{self.out}", model=model, '
        numbers = f"skip={self.skip}, warmup={self.warmup}, steps={self.steps}"
        if len(head) + len(numbers) > 62:
            head = f'with commprof.Capture(\n    "{self.out}", model=model, '
            numbers += ",\n"
        return f"{head}{numbers}) as capture:\n    for batch in loader:\n        ...\n        capture.step()"

    @property
    def torch_profiler(self) -> str:
        """The same steps and options as arguments of ``torch.profiler.profile``, in one line."""
        wait = f"wait={self.skip}, warmup={self.warmup}, active={self.steps}, repeat=1"
        return f"schedule=schedule({wait}), record_shapes=True"


def recapture(found: Examination, checks: Iterable[Check], limits: Limits) -> Recapture:
    """Where to record, and how long, given what was found."""
    flagged = {check.name for check in checks if check.status != "PASS"}
    reasons = []
    first = min(first_numbers(found), default=0)
    skip = max(_SKIP, first - _WARMUP)
    if flagged & {"first step", "first call"}:
        skip = max(_SKIP, first - _WARMUP + _SETTLE)
        # A first call may be slow in a step that as a whole is not.
        first_what = "steps" if "first step" in flagged else "calls"
        reasons.append(f"skip={skip}: the first {first_what} recorded are not typical, so begin later")
    steps = _STEPS
    period = _period(found)
    if period is not None:
        steps = min(limits.most_steps, 3 * period)
        reasons.append(f"steps={steps}: the optimizer steps every {period} steps, and two whole periods must fit")
    elif "steps" in flagged:
        reasons.append(f"steps={steps}, one capture.step() each: three with a known end, and the last")
    elif "size" in flagged:
        reasons.append(f"steps={steps}: fewer steps make a smaller file and the same means")
    if flagged & {"sizes", "metadata"}:
        reasons.append("the hook records shapes and process groups: sizes and members become known")
    if "options" in flagged:
        reasons.append("the hook records neither stacks nor memory")
    if flagged & {"ranks", "rank numbers", "one per rank", "readable", "complete", "same steps", "same time"}:
        reasons.append("every rank writes into the same folder, with its number, host and clock")
    if "manifest" in flagged:
        reasons.append("cores, environment, buckets and unprofiled step times are written beside each trace")
    return Recapture(_folder(found.path), skip, _WARMUP, steps, tuple(reasons))


def _period(found: Examination) -> int | None:
    """Step marks per optimizer step of the first rank that accumulates gradients."""
    periods = (period_of(rank.devices[0], rank.optimizer_marks) for rank in found.analyses)
    return next((period for period in periods if period is not None), None)


def _folder(path: str) -> str:
    """A new folder beside others, named after the input."""
    name = Path(path.split(", ")[0].rpartition("://")[2].rstrip("/") or ".").name
    stem = name.split(".")[0] if not name.startswith(".") else ""
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in stem).strip("-")
    return f"runs/{plain[:24] or 'run'}-again"
