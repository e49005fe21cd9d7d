"""The first screen: which run this is, the answer, and one bar that shows where an average step goes."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.report.charts.wording import (
    COMM,
    Json,
    clean,
    count,
    has_step_marks,
    micro_steps,
    rank_ranges,
    ratio,
    share_of,
    time_base,
)
from commprof.units import format_ns

_KEYS = ("duration_ns", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_WIDE, _MEDIUM = 0.16, 0.09
_SHORT_ANSWER = 60


@dataclass(frozen=True)
class Part:
    """One stretch of the bar. ``width`` is its share of the bar, ``room`` tells how much text fits inside."""

    kind: str
    name: str
    time: str
    share: str
    width: float
    room: str
    detail: str | None


def average_split(report: Json) -> Json | None:
    """Mean split over ranks, every rank weighed by the steps it averages; ``None`` if no rank has a mean."""
    if report.get("overall"):
        return {key: report["overall"][key] for key in _KEYS}
    ranks = report["ranks"]
    rows = [rank["mean"] for rank in ranks if rank.get("mean")]
    weights = [row.get("steps") or 1 for row in rows]
    if not rows or any(row[key] is None for row in rows for key in _KEYS):
        return None
    total = sum(weights)
    return {key: sum(row[key] * weight for row, weight in zip(rows, weights, strict=True)) / total for key in _KEYS}


def hero(view: Json) -> Json:
    """What the first screen shows. The answer comes in two sizes: up to its colon, and ``reason``, the rest."""
    report = view["report"]
    headline = view["headline"]
    answer = clean(headline["answer"], 600)
    short, colon, rest = answer.partition(": ")
    if not colon or len(short) > _SHORT_ANSWER:
        short, rest = answer, ""
    return {
        "question": clean(headline.get("question") or "Is communication my bottleneck?", 200),
        "answer": short,
        "reason": rest,
        "gain": clean(headline["gain"], 600) if headline.get("gain") else None,
        "where": clean(headline["where"], 600) if headline.get("where") else None,
        "ranks": clean(headline["ranks"], 160) if headline.get("ranks") else ranks_line(report["input"]),
        "facts": _facts(report),
        "bar": _bar(report),
    }


def ranks_line(run: Json) -> str:
    """``ranks 0–5, 7 of 8; rank 6 missing`` (C213)."""
    ranks, missing, world = run["ranks"], run["missing_ranks"], run["world_size"]
    line = f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}"
    if world is not None:
        line += f" of {world:,}"
    if missing:
        line += f"; {'rank' if len(missing) == 1 else 'ranks'} {rank_ranges(missing)} missing"
    return clean(line, 160)


def is_cpu_run(report: Json) -> bool:
    """Whether communication was read from gloo's CPU spans, which hold queueing and waiting for peers too."""
    run = report["input"]
    return "gloo" in (run["backend"] or "") and not run["devices"]


def _facts(report: Json) -> list[str]:
    run = report["input"]
    facts = [clean(device, 60) for device in run["devices"][:2]]
    if len(run["devices"]) > 2:
        facts.append(f"{len(run['devices']) - 2} more devices")
    if run["backend"]:
        facts.append(clean(run["backend"], 40))
    steps = max((len(rank["steps"]) for rank in report["ranks"]), default=0)
    if has_step_marks(report):
        facts.append(count(steps, "step"))
    elif steps:
        facts.append("no step marks")
    return facts


def _bar(report: Json) -> Json | None:
    split = average_split(report)
    if split is None or split["duration_ns"] <= 0:
        return None
    base, whole = time_base(report), split["duration_ns"]
    wait = " (includes queueing and waiting)" if is_cpu_run(report) else ""
    hidden = None
    if split["overlap_ns"] > 0:
        hidden = f"of it {format_ns(round(split['overlap_ns']))} hides communication"
    rows = (
        ("compute", "Compute", split["compute_ns"], hidden),
        ("exposed", f"Exposed communication{wait}", split["exposed_comm_ns"], None),
        ("copy", "Exposed copies", split["exposed_copy_ns"], None),
        ("idle", "Idle", split["idle_ns"], None),
    )
    # A run on CPUs has no copies to show.
    shown = [row for row in rows if row[0] != "copy" or row[2] > 0 or not is_cpu_run(report)]
    return {
        "title": _bar_title(report),
        "duration": format_ns(round(whole)),
        "parts": [_part(kind, name, ns, whole, base, detail) for kind, name, ns, detail in shown],
        "overlap_of_compute": (ratio(split["overlap_ns"], split["compute_ns"]) or 0.0) * 100,
        "comm": _bracket(split, whole),
    }


def _part(kind: str, name: str, ns: float, whole: float, base: str, detail: str | None) -> Part:
    share = ns / whole
    room = "wide" if share >= _WIDE else "medium" if share >= _MEDIUM else "none"
    return Part(kind, name, format_ns(round(ns)), share_of(share, base), share * 100, room, detail)


def _bracket(split: Json, whole: float) -> Json | None:
    """The brace under the bar: all communication, its hidden part on the left of its exposed part."""
    if split["comm_ns"] <= 0:
        return None
    hidden = ratio(split["overlap_ns"], split["comm_ns"])
    left = (split["compute_ns"] - split["overlap_ns"]) / whole * 100
    width = split["comm_ns"] / whole * 100
    return {
        "left": left,
        "width": width,
        # The text hangs from the side of the brace that leaves more room on a narrow screen.
        "side": "left" if left < 45 else "right",
        "text": f"Communication {format_ns(round(split['comm_ns']))}",
        "hidden": share_of(hidden, COMM),
    }


def _bar_title(report: Json) -> str:
    rows = [rank for rank in report["ranks"] if rank.get("mean")]
    ranks = len({rank["rank"] for rank in rows})
    where = f"rank {rows[0]['rank']}" if ranks == 1 else f"mean of {ranks:,} ranks"
    if not has_step_marks(report):
        return f"Where the window goes: {where}"
    steps = {rank["mean"].get("steps") or 1 for rank in rows}
    low, high = min(steps), max(steps)
    period = micro_steps(report)
    what = f"optimizer step of {period} micro-steps" if period else "step"
    if high == 1:
        return f"Where the {what} goes: {where}"
    return f"Where an average {what} goes: {where}, {low if low == high else f'{low} to {high}'} steps"
