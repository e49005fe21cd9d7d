"""The first screen: which run this is, the answer, and one bar that shows where an average step goes."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.report.charts.accounting import left_out, segments, top
from commprof.report.charts.wording import (
    COMM,
    Json,
    clean,
    count,
    has_step_marks,
    micro_steps,
    rank_ranges,
    ratio,
    several_ranks,
    share_of,
    time_base,
)
from commprof.units import format_ns

_KEYS = ("duration_ns", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
_SHORT_ANSWER = 60
_SHOWN = 0.0005
"""Share below which copies are not worth a column: the bar cannot show them, and the text would be zero."""


@dataclass(frozen=True)
class Part:
    """One kind of time: its name and total under the bar."""

    kind: str
    name: str
    time: str
    share: str | None
    details: tuple[str, ...]


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
    listed = top(report, time_base(report))
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
        "bar": _bar(report, {row["number"] for row in listed}),
        "sits": sits(report, headline) if listed else None,
        "top": listed,
        "left_out": left_out(report, len(listed), "below") if listed else None,
    }


def sits(report: Json, headline: Json) -> str | None:
    """Which operation of which group the exposed time sits in, where communication is what the answer is about."""
    blamed = (report.get("verdict") or {}).get("bottleneck") in ("communication", "straggler", "imbalance")
    return clean(headline["where"], 600) if blamed and headline.get("where") else None


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
    longest: list[Json] = max((rank["steps"] for rank in report["ranks"]), key=len, default=[])
    if has_step_marks(report):
        # The bar is a mean over whole steps: it must not seem to have lost one.
        whole = sum(not step["open"] and not step["incomplete"] for step in longest)
        told = f", {whole:,} of them whole" if 0 < whole < len(longest) and not micro_steps(report) else ""
        facts.append(count(len(longest), "step") + told)
    elif longest:
        facts.append("no step marks")
    return facts


def _bar(report: Json, listed: set[int]) -> Json | None:
    """The step as one bar: by what each finding costs where that is accounted for, else by kind of time.

    Only findings ``listed`` under the bar are numbered in it.
    """
    base = time_base(report)
    charged = segments(report, base)
    split = average_split(report)
    if charged is not None:
        totals, whole, overlap = charged["totals"], charged["step_ns"], charged["overlap_ns"]
        ns = tuple(totals[kind] for kind in ("compute", "exposed", "copy", "idle"))
    elif split is not None and split["duration_ns"] > 0:
        ns = tuple(split[key] for key in ("compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"))
        whole, overlap = split["duration_ns"], split["overlap_ns"]
    else:
        return None
    of_one = charged is not None and several_ranks(report)
    parts = _parts(ns, whole, None if of_one else base, overlap, _details(report))
    drawn = charged["segments"] if charged else [_plain(part, size, whole) for part, size in parts]
    for segment in drawn:
        segment["number"] = segment["number"] if segment["number"] in listed else None
    return {
        "title": _bar_title(report, charged is not None),
        "duration": format_ns(round(whole)),
        "parts": [part for part, _ in parts],
        "segments": [segment for segment in drawn if segment["width"] > 0],
        "overlap_of_compute": (ratio(overlap, ns[0]) or 0.0) * 100,
    }


def _details(report: Json) -> dict[str, tuple[str, ...]]:
    """What a kind of time consists of, where that is known of the rank in the bar."""
    exposed = ("includes queueing and waiting",) if is_cpu_run(report) else ()
    overall = report.get("overall")
    if not overall or len(report["ranks"]) > 1:
        return {"exposed": exposed}
    late = {
        kind: (f"{format_ns(overall[key])} of it while the host was late",)
        for kind, key in (("exposed", "exposed_host_ns"), ("idle", "idle_host_ns")) if overall.get(key)
    }  # fmt: skip
    return {"exposed": (*exposed, *late.get("exposed", ())), "idle": late.get("idle", ())}


def _parts(
    ns: tuple[float, ...], whole: float, base: str | None, overlap: float | None, details: dict[str, tuple[str, ...]]
) -> list[tuple[Part, float]]:
    """Without a ``base`` there are no shares: those of one rank of several would stand beside a headline of all."""
    compute, exposed, copies, idle = ns
    hidden: tuple[str, ...] = ()
    if overlap:
        what = "communication" if base is None else share_of(overlap / (overlap + exposed), COMM)
        hidden = (f"{format_ns(round(overlap))} of it hide {what}",)
    rows = [
        ("compute", "Compute", compute, hidden),
        ("exposed", "Exposed communication", exposed, details.get("exposed", ())),
        ("copy", "Exposed copies", copies, ()),
        ("idle", "Idle", idle, details.get("idle", ())),
    ]
    return [
        (Part(kind, name, format_ns(round(size)), share_of(size / whole, base) if base else None, told), size)
        for kind, name, size, told in rows if kind != "copy" or size >= _SHOWN * whole
    ]  # fmt: skip


def _plain(part: Part, size: float, whole: float) -> Json:
    """A segment of the bar where nothing says which finding costs what."""
    return {
        "kind": part.kind,
        "explained": True,
        "number": None,
        "width": size / whole * 100,
        "time": part.time,
        "text": ", ".join(filter(None, (f"{part.name}: {part.time}", part.share))),
    }


def _bar_title(report: Json, charged: bool) -> str:
    rows = [rank for rank in report["ranks"] if rank.get("mean")]
    ranks = len({rank["rank"] for rank in rows})
    where = f"rank {rows[0]['rank']}" if ranks == 1 else f"mean of {ranks:,} ranks"
    if charged and ranks > 1:
        losing = report["accounting"]["ranks"]
        one = f"rank {losing[0]} of {ranks:,}, which loses the most"
        where = one if len(losing) == 1 else f"on the rank of {ranks:,} that loses the most in each"
    if not has_step_marks(report):
        return f"Where the window goes: {where}"
    steps = {report["accounting"]["steps"]} if charged else {rank["mean"].get("steps") or 1 for rank in rows}
    low, high = min(steps), max(steps)
    period = micro_steps(report)
    what = f"optimizer step of {period} micro-steps" if period else "step"
    if high == 1:
        return f"Where the {what} goes: {where}"
    counted = f"{low} steps" if low == high else f"{low} to {high} steps"
    return f"Where an average {what} goes: {where}{';' if charged and ranks > 1 else ','} {counted}"
