"""What terminal and Markdown say of a report: the same figures, chosen once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from commprof.report.causes import role_name
from commprof.report.charts.accounting import brief, costs_time, stated_ns
from commprof.report.charts.exposure import exposure
from commprof.report.charts.findings import CONFIDENCE
from commprof.report.charts.idle import idle
from commprof.report.charts.pipeline import pipeline
from commprof.report.charts.stragglers import harmless, stragglers
from commprof.report.charts.strategy import strategy
from commprof.report.charts.wording import clean, losing, several_ranks, share_of, share_shown, time_base
from commprof.units import format_ns

Json = dict[str, Any]

MOST_FINDINGS = 3
MOST_CAUSES = 4
_TELLING = 1.0
"""Percent of the longest cause below which another is not worth a line."""
_MUCH_IDLE = 0.05
"""Share of the step from which on it is worth saying why the device idles."""
_SHOWN = 0.0005
"""Share below which exposed copies are not worth a line or a column: it would read as zero."""
MOST_LATE = 2
MOST_ALIKE = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One length of the mean step: ``whole`` is what its share is of, ``None`` for step time, empty for no share."""

    label: str
    ns: int
    share: float | None
    whole: str | None


def of_what(report: Json) -> str:
    """What shares are of: step time, or the window where the trace marks no steps."""
    return "window" if all(row["windows"] == "none" for row in report["ranks"]) else "step time"


def per_what(report: Json) -> str:
    """``per step``, or ``in the window`` where the trace marks no steps."""
    return "per step" if of_what(report) == "step time" else "in the window"


def mean_lines(report: Json) -> list[Line]:
    """The split averaged over all ranks and steps."""
    mean = report["overall"]
    if mean is None:
        return []
    duration = mean["duration_ns"]

    def line(label: str, key: str) -> Line:
        return Line(label, mean[key], mean[key] / duration if duration else None, None)

    parts = [
        Line("  hidden behind compute", mean["overlap_ns"], mean["overlap_ratio"], "communication time"),
        line("  exposed (not hidden)", "exposed_comm_ns"),
    ]
    return [
        Line(of_what(report).removesuffix(" time"), duration, None, ""),
        line("compute", "compute_ns"),
        Line("communication", mean["comm_ns"], None, ""),
        *(parts if mean["comm_ns"] else parts[:1]),
        *([line("exposed copies", "exposed_copy_ns")] if copies_tell([mean]) else []),
        line("idle", "idle_ns"),
    ]


def copies_tell(means: list[Json]) -> bool:
    """Whether any of these splits has exposed copies that would not read as zero."""
    return any(mean["exposed_copy_ns"] >= _SHOWN * mean["duration_ns"] > 0 for mean in means)


def over_what(report: Json) -> str:
    """``Mean of 4 steps on 8 ranks``."""
    counts = [row["mean"]["steps"] for row in report["ranks"] if row["mean"]]
    ranks = len({row["rank"] for row in report["ranks"]})
    on = "one rank" if ranks == 1 else f"{ranks} ranks"
    if of_what(report) == "window":
        return f"The whole window, {on} (the trace marks no steps)"
    low, high = min(counts, default=0), max(counts, default=0)
    steps = f"{low} to {high} steps" if low != high else f"{high} steps" if high != 1 else "one step"
    return f"Mean of {steps} on {on}"


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding in brief: time with its share, what it is, and the first thing to change."""

    number: int
    id: str
    time: str
    share: str
    title: str
    advice: str | None
    confidence: str


def top_findings(report: Json, most: int = MOST_FINDINGS) -> list[Advice]:
    """The findings that cost the most, the largest first; without those that cost nothing."""
    # The heading says whose step it is.
    base = of_what(report) if losing(report) is None else f"its {of_what(report).removesuffix(' time')}"
    rows = [(number, row) for number, row in enumerate(report["findings"] or [], 1) if costs_time(row)]
    return [
        Advice(
            number,
            row["id"],
            format_ns(stated_ns(row)),
            share_of(share_shown(row), base),
            clean(row["title"], 240),
            brief(row["advice"][0]) if row["advice"] else None,
            CONFIDENCE.get(row["confidence"], clean(row["confidence"], 20)),
        )
        for number, row in rows[:most]
    ]


def findings_title(report: Json) -> str:
    """Heading of the findings: their shares are of the step of the rank that loses the most."""
    text = f"What costs time {per_what(report)}, and what to change"
    who = losing(report)
    # The length is told as that of the step: right after "loses the most" it would read as what the rank loses.
    return text if who is None else f"{text} ({who[0]}; its {of_what(report).removesuffix(' time')}: {who[1]})"


def causes_title(report: Json, what: str) -> str:
    """Heading of a table of causes: what its times are means over; one rank has no mean over ranks."""
    return f"{what}: mean over ranks, {per_what(report)}" if several_ranks(report) else f"{what}, {per_what(report)}"


def causes(report: Json, most: int = MOST_CAUSES) -> list[Json]:
    """Why communication is exposed, as means per rank: rows of the cause table that have time worth a line."""
    found = exposure(report, time_base(report))
    tables = found["tables"] if found else []
    rows: list[Json] = next((table["rows"] for table in tables if table["by"] == "cause"), [])
    return [row for row in rows if row["exposed_width"] >= _TELLING][:most]


def idle_causes(report: Json, most: int = MOST_CAUSES) -> tuple[str, list[Json]]:
    """Why the device idles, as means per rank: title and rows with time worth a line, where it idles for long."""
    mean = report["overall"]
    found = idle(report, time_base(report))
    if not found or not mean or mean["idle_ns"] < _MUCH_IDLE * mean["duration_ns"]:
        return "", []
    return found["title"], [row for row in found["rows"] if row["width"] >= _TELLING][:most]


def volume(report: Json) -> str | None:
    """``DDP, each rank sends 102 MB per step, 102 MB by formula``; ``None`` where no strategy was recognised."""
    found = strategy(report)
    if not found or not found["parts"]:
        return None
    if found["measured"] == "n/a":
        return clean(found["name"], 60)
    by_formula = "" if found["expected"] == "n/a" else f", {found['expected']} by formula"
    return f"{found['name']}, each rank sends {found['measured']} {per_what(report)}{by_formula}"


def bubble(report: Json) -> str | None:
    """The bubble of a pipeline in one line; ``None`` without one."""
    found = pipeline(report)
    if not found or not found["rows"]:
        return None
    shares = sorted({row["share"] for row in found["rows"] if row["share"] != "n/a"})
    told = f", ideal {found['ideal']}" if found["ideal"] else ""
    span = " to ".join(dict.fromkeys((shares[0], shares[-1]))) if shares else "n/a"
    least = "" if found["waits"] else "at least "
    return f"{least}{span} of the pipeline's time{told}; {found['stages']}, {found['microbatches']}"


def late(report: Json, most: int = MOST_LATE) -> list[Json]:
    """Ranks that the others wait for."""
    found = stragglers(report, time_base(report))
    return found["rows"][:most] if found else []


def harmless_line(report: Json) -> str | None:
    """Who is late without being named, and why not; ``None`` if nobody is."""
    found = harmless(report, time_base(report))
    return None if found is None else f"Late, but not named: {found['ranks']}: {found['why']}."


def telling_ranks(report: Json, most: int) -> tuple[list[Json], str | None]:
    """Rows of ranks to print, and a line if that is not all: of more than ``most``, the two with the least and the
    two with the most communication, since the rank that the others wait for waits least itself."""
    rows = [row for row in report["ranks"] if row["mean"]]
    if len(rows) <= most:
        return rows, None
    order = sorted(rows, key=lambda row: (row["mean"]["comm_ns"], row["rank"]))
    half = 2
    kept = {id(row) for row in (*order[:half], *order[-half:])}
    return (
        [row for row in rows if id(row) in kept],
        f"the {half} with the least and the {half} with the most communication of {len(rows):,}; the report has all",
    )


def kinds(groups: list[Json]) -> list[list[Json]]:
    """Rows of one operation and purpose together, such as all pipeline groups; the most exposed kind first."""
    found: dict[tuple[str, str | None, str | None, int | None], list[Json]] = {}
    for row in groups:
        role = role_name(row.get("role"))
        purpose = row["description"] or (None if role else row["group"])
        found.setdefault((row["op"], role, purpose, row["group_size"]), []).append(row)
    return sorted(found.values(), key=lambda rows: -sum(row["exposed_ns"] for row in rows))


def group_name(rows: list[Json], brief: bool = False) -> str:
    """``default_pg, data parallel``, in brief what the group is for if that is known; of several groups how many."""
    name = rows[0]["description"] or rows[0]["group"]
    role = role_name(rows[0].get("role"))
    if len(rows) > 1:
        return f"{role or clean(name or 'unknown', 40)} ({len(rows)} groups)"
    words = [clean(name, 40)] if name and not (brief and role) else []
    return ", ".join([*words, role] if role else words) or "unknown"


def notes(report: Json, without: tuple[str, ...] = ()) -> list[str]:
    """Notes that speak of this run; of many of one kind, such as one per rank, the first and how many more.

    Notes of the kinds ``without`` are told elsewhere.
    """
    kinds: dict[str, list[str]] = {}
    for note in report["notes"]:
        if note["code"] not in ("not-built", *without):
            kinds.setdefault(note["code"], []).append(note["message"])
    lines = []
    for messages in kinds.values():
        if len(messages) <= MOST_ALIKE:
            lines += messages
        else:
            lines.append(f"{messages[0]} (and {len(messages) - 1:,} more notes of this kind)")
    return lines
