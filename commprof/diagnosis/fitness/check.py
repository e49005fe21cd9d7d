"""What a check says, and every limit that a check rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from commprof.analysis.combine import ranks_text
from commprof.diagnosis.examination import Examined
from commprof.units import format_share

Status = Literal["PASS", "WARN", "FAIL"]


@dataclass(frozen=True, slots=True)
class Check:
    """One answer: ``message`` holds the measured figure, ``advice`` what to do (``None`` where nothing is to be done).

    FAIL: figures from this input are wrong or cannot be had. WARN: they can be had, but less of them, or with doubt.
    """

    name: str
    status: Status
    message: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Defaults of the checks; this project's own choice unless a source stands there."""

    linked: float = 0.99
    """Share of device events with a launch: the same 1 % from which on a step counts as incomplete."""
    described: float = 0.99
    """Share of calls whose operation, group or size is known."""
    skipped: float = 0.01
    """Share of events left out that makes figures wrong rather than doubtful."""
    unnamed: float = 0.05
    """Share of kernel time in one kernel that no rule knows: as in the notes of the report."""
    few_events: float = 0.5
    """Device events of a rank, relative to the median rank, below which its capture is incomplete."""
    closed_steps: int = 2
    """Steps with a known end: from two on, a spread can be seen."""
    slow_step: float = 1.5
    """First step relative to the median of the others; steps of large jobs vary by about 10 % (PRISM, Meta)."""
    slow_call: float = 5.0
    """First collective relative to the median of its kind: connection set-up takes many times a transfer."""
    profiler_cost: float = 0.10
    """Profiled steps longer than unprofiled ones by this: as for the verdict."""
    most_steps: int = 20
    """Steps in one capture: the cap of the hook."""
    most_bytes: int = 500_000_000
    """Size of one file, compressed as it is."""
    other_events: float = 0.5
    """Share of events that no figure is made from."""
    cores: int = 2
    """Cores per process: threads of NCCL and gloo run beside the training loop (NVIDIA/nccl#1435)."""


def of_ranks(files: Iterable[Examined]) -> str:
    """``rank 3`` or ``ranks 0–3, 7``."""
    ranks = sorted({file.rank for file in files})
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"


def count(number: int, word: str) -> str:
    """``1 file``, ``2,000 copies``."""
    if number == 1:
        return f"1 {word}"
    if word.endswith("y"):
        return f"{number:,} {word[:-1]}ies"
    return f"{number:,} {word}{'es' if word.endswith('ch') else 's'}"


def part_of(part: int, total: int, word: str) -> str:
    """``all 40 calls``, or ``39 of 40 calls (97.5 %)``."""
    if part == total:
        return f"all {count(total, word)}" if total > 1 else f"the only {word}"
    return f"{part:,} of {count(total, word)} ({format_share(part / total)})"


def short(text: str, most: int = 60) -> str:
    """A name from a trace, cut for a line."""
    return text if len(text) <= most else text[: most - 3] + "..."
