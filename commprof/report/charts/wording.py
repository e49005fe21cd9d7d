"""The words around the numbers: what a share is a share of, which ranks, and trace strings made fit to show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from commprof.units import format_ns, format_share

Json = dict[str, Any]

STEP = "step time"
WINDOW = "window"
COMM = "communication time"

NO_STEP_MARKS = "window"
"""Name of the only step entry of a rank whose trace has no step marks."""

_LONGEST = 240


def clean(text: object, longest: int = _LONGEST) -> str:
    """``text`` as one line that is safe to show: control and other unprintable characters become U+FFFD.

    A name longer than ``longest`` characters keeps its beginning and its end, where kernel names differ.
    """
    if text is None:
        return "n/a"
    line = str(text)
    if len(line) > longest:
        tail = longest // 4
        line = f"{line[: longest - tail - 1]}…{line[-tail:]}"
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in line)


def has_step_marks(report: Json) -> bool:
    """Whether any rank has a window of a marked step; if none has, no figure is called "per step"."""
    return any(step["name"] != NO_STEP_MARKS for rank in report["ranks"] for step in rank["steps"])


def time_base(report: Json) -> str:
    """What shares of a window are shares of: ``step time``, or ``window`` for traces without step marks."""
    return STEP if has_step_marks(report) else WINDOW


def micro_steps(report: Json) -> int | None:
    """Step marks per optimizer step where means are over optimizer steps; ``None`` where they are over single steps."""
    return next((rank["micro_steps"] for rank in report["ranks"] if rank.get("micro_steps")), None)


def several_ranks(report: Json) -> bool:
    """Whether the report is of more than one rank, so that a mean over ranks and the numbers of one may differ."""
    return len({row["rank"] for row in report["ranks"]}) > 1


def losing(report: Json) -> tuple[str, str] | None:
    """Whose step the findings are of, where there are several ranks, and how long it is, in words: of the one that
    loses the most (``spec``: section 11); ``None`` for a single rank."""
    bar = report.get("accounting")
    if not bar or not several_ranks(report):
        return None
    ranks = bar["ranks"]
    who = f"rank {ranks[0]}, which loses the most" if len(ranks) == 1 else "the rank that loses the most in each step"
    return who, format_ns(bar["duration_ns"] // bar["steps"])


def base_of_findings(report: Json, base: str) -> str:
    """What shares of findings are of: ``step time``; of several ranks that of one, as in ``step time on rank 3``."""
    if losing(report) is None:
        return base
    ranks = report["accounting"]["ranks"]
    return f"{base} on rank {ranks[0]}" if len(ranks) == 1 else f"{base} on that rank"


def share_of(share: float | None, whole: str) -> str:
    """``30.0 % of step time``; a share always says of what; ``n/a`` for ``None``."""
    the = "the " if whole.startswith(WINDOW) else ""
    return "n/a" if share is None else f"{format_share(share)} of {the}{whole}"


def share_shown(finding: Json) -> float | None:
    """Share of the step of the time that a headline states: what could come back where that is known, else the charge.

    ``share_of_step`` of a finding is that of its charge. Reports of earlier versions lack the other one.
    """
    share: float | None = finding["share_of_step"]
    if "recoverable_share" in finding:
        known: float | None = finding["recoverable_share"]
        return share if known is None else known
    charged, back = finding["charged_ns"], finding["recoverable_ns"]
    return share if share is None or back is None or not charged else share * back / charged


def ratio(part: int | None, whole: int | None) -> float | None:
    """``part / whole``; ``None`` where either is unknown or the whole is empty."""
    return None if part is None or not whole else part / whole


def rank_ranges(ranks: Iterable[int]) -> str:
    """``0–5, 7`` for 0, 1, 2, 3, 4, 5, 7."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in runs)


def count(number: int | None, one: str, many: str | None = None) -> str:
    """``1 rank``, ``1,024 ranks``; ``n/a`` for ``None``."""
    if number is None:
        return "n/a"
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def rank_label(row: Json, several_devices: bool) -> str:
    """``rank 3``, or ``rank 3 · device 1`` where a rank's file holds several devices."""
    return f"rank {row['rank']} · device {row['device']}" if several_devices else f"rank {row['rank']}"


def has_several_devices(rows: Iterable[Json]) -> bool:
    """Whether some rank has more than one row, so that its rows need the device to tell them apart."""
    ranks = [row["rank"] for row in rows]
    return len(ranks) != len(set(ranks))
