"""Who waits for whom: heat maps of rank by step and rank by collective, and the clocks behind them.

Bounded whatever the run: beyond ``MOST_RANKS`` rows the ranks that the others waited for the most keep a row each and
the rest becomes one row with their median; beyond ``MOST_CALLS`` columns neighbouring calls share one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from commprof.report.charts.wording import Json, clean, rank_ranges
from commprof.units import format_bytes, format_ns

MOST_RANKS = 64
MOST_STEPS = 64
MOST_CALLS = 400
MOST_CLOCKS = 64
MOST_LOST = 12

Cells = dict[tuple[int, object], int | None]


def waiting(report: Json) -> Json | None:
    """``{"maps", "note", "ranks", "clocks"}`` for the browser and the template; ``None`` if nothing was matched."""
    rows = report.get("waits") or []
    if not rows:
        return None
    charged: dict[int, int] = defaultdict(int)
    waited: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    matched: dict[int, int] = defaultdict(int)
    for row in rows:
        charged[row["rank"]] += row["charged_ns"] or 0
        waited[row["rank"]] += row["wait_ns"] or 0
        last[row["rank"]] += row["last"] or 0
        matched[row["rank"]] += row["matched"] or 0
    every = sorted(charged)
    kept = every
    if len(every) > MOST_RANKS:
        kept = sorted(sorted(every, key=lambda rank: (-charged[rank], waited[rank], rank))[:MOST_RANKS])
    rest = [rank for rank in every if rank not in set(kept)]
    late = report.get("stragglers") or []
    by_step = _by_step(rows, kept, rest, late)
    by_call = _by_call(report, kept, rest, late)
    return {
        "maps": [each for each in (by_step, by_call) if each],
        "note": _rule(len(kept), len(rest)),
        "ranks": [
            {
                "rank": rank,
                "waited": format_ns(waited[rank]),
                "charged": format_ns(charged[rank]),
                "last": f"{last[rank]:,} of {matched[rank]:,}",
            }
            for rank in sorted(kept, key=lambda rank: (-charged[rank], rank))
        ],
        "clocks": _clocks(report),
    }


def _rule(kept: int, rest: int) -> str | None:
    if not rest:
        return None
    return (
        f"The {kept} ranks that the others waited for the most have a row each; the row at the bottom is the median of "
        f"the other {rest:,}. All of them are in the JSON."
    )


def _by_step(rows: list[Json], kept: list[int], rest: list[int], late: list[Json]) -> Json | None:
    steps = list(
        dict.fromkeys(row["step"] for row in sorted(rows, key=lambda row: row["rank"]) if row["step"] is not None)
    )
    shown = steps[:MOST_STEPS]
    if not shown:
        return None
    waits: Cells = {(row["rank"], row["step"]): row["wait_ns"] for row in rows}
    charges: Cells = {(row["rank"], row["step"]): row["charged_ns"] for row in rows}
    layers = [("waits for others", waits)]
    if any(charges.values()):
        layers.insert(0, ("makes others wait", charges))
    return {
        "name": "step",
        "columns": [clean(step, 40).removeprefix("ProfilerStep") for step in shown],
        "details": [clean(step, 60) for step in shown],
        **_matrix(layers, shown, kept, rest, late),
        "note": f"First {len(shown)} of {len(steps)} steps." if len(shown) < len(steps) else None,
    }


def _by_call(report: Json, kept: list[int], rest: list[int], late: list[Json]) -> Json | None:
    """Waiting in every call that was matched over ranks, in order of time."""
    cells: Cells = {}
    first: dict[int, Json] = {}
    for call in report.get("collectives") or []:
        match = call.get("match")
        if match is None or call["wait_ns"] is None:
            continue
        cells[(call["rank"], match)] = call["wait_ns"]
        if match not in first or call["start_ns"] < first[match]["start_ns"]:
            first[match] = call
    if not first:
        return None
    order = sorted(first, key=lambda match: (first[match]["start_ns"], match))
    each = -(-len(order) // MOST_CALLS)
    bins = [order[i : i + each] for i in range(0, len(order), each)]
    summed: Cells = {}
    for i, members in enumerate(bins):
        for rank in [*kept, *rest]:
            known = [ns for match in members if (ns := cells.get((rank, match))) is not None]
            summed[(rank, i)] = sum(known) if known else None
    return {
        "name": "collective",
        "columns": [str(members[0]) for members in bins],
        "details": [_call_text([first[match] for match in members]) for members in bins],
        **_matrix([("waits for others", summed)], list(range(len(bins))), kept, rest, late),
        "note": None if each == 1 else f"Every column stands for {each} calls in a row; their waits add up.",
    }


def _call_text(calls: list[Json]) -> str:
    head = calls[0]
    text = f"{clean(head['op'], 20).replace('_', '-')} {format_bytes(head['size_bytes'])}, {clean(head['step'], 40)}"
    return text if len(calls) == 1 else f"{text} and {len(calls) - 1} more"


def _matrix(
    layers: list[tuple[str, Cells]], columns: Sequence[object], kept: list[int], rest: list[int], stragglers: list[Json]
) -> Json:
    """Rows from top to bottom: ranks, then the median of those without a row."""
    names = [str(rank) for rank in kept] + ([f"median of {len(rest):,} others"] if rest else [])
    shown = []
    for title, cells in layers:
        values = [[_rounded(cells.get((rank, column))) for column in columns] for rank in kept]
        if rest:
            values.append([_rounded(_median([cells.get((rank, column)) for rank in rest])) for column in columns])
        most = max((value for line in values for value in line if value is not None), default=0)
        scale = [[value, format_ns(value)] for value in (0, most // 2, most)]
        shown.append({"title": title, "values": values, "scale": scale})
    late = {row["rank"] for row in stragglers if row["rank"] is not None}
    return {"rows": names, "layers": shown, "late": [i for i, rank in enumerate(kept) if rank in late]}


def _median(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(median(known)) if known else None


def _rounded(ns: int | None) -> int | None:
    """Three digits are more than a colour shows, and keep the file small."""
    if ns is None or ns < 1000:
        return ns
    unit: int = 10 ** (len(str(ns)) - 3)
    return ns // unit * unit


def _clocks(report: Json) -> Json | None:
    matching = report.get("matching") or {}
    offsets = matching.get("clock_offsets_ns") or {}
    if not offsets:
        return None
    joined = matching.get("message_clock_offsets_ns")
    # Ranks that collectives connect keep their offsets to each other where messages join all of them.
    known = sorted((int(rank), ns) for rank, ns in (joined or offsets).items() if ns is not None)
    if not known:
        return None
    drifts = matching.get("clock_drifts_ppb") or {}
    largest = sorted(known, key=lambda pair: (-abs(pair[1]), pair[0]))[:MOST_CLOCKS]
    by_collectives, loose = matching.get("clock_uncertainty_ns"), matching.get("message_clock_uncertainty_ns")
    return {
        "rows": [
            {"rank": rank, "offset": format_ns(ns) + (f", drift {format_ns(drift)} a second" if drift else "")}
            for rank, ns in sorted(largest)
            for drift in (drifts.get(str(rank)),)
        ],
        "total": len(known),
        "uncertainty": None if by_collectives is None else format_ns(by_collectives),
        "by_messages": None if joined is None else format_ns(loose),
        "largest": format_ns(max(abs(ns) for _, ns in known)),
    }


def _lost(row: Json, reasons: dict[str, str]) -> str:
    """One call that was not found on all its members: which, where it is and where it is not."""
    seq = "" if row["seq"] is None else f", number {row['seq']:,}"
    present, absent = (rank_ranges(row[key] or []) or "none" for key in ("present", "absent"))
    why = reasons.get(row["reason"], row["reason"])
    return clean(f"{row['op']}{seq}: on ranks {present}, not on {absent}; {why}", 200)


def matching(report: Json) -> Json | None:
    """How many calls were found again on the other ranks, and why the rest was not."""
    found = report.get("matching")
    if not found:
        return None
    reasons = {
        "window-edge": "at the edge of a capture",
        "rank-missing": "a member's trace is missing",
        "extra-call": "some members made one call more",
        "group-unknown": "of an unknown group",
        "ambiguous": "fit in two ways equally well",
    }
    why = [
        f"{number:,} {reasons.get(reason, clean(reason, 40))}"
        for reason, number in (found.get("unmatched_by_reason") or {}).items() if number
    ]  # fmt: skip
    lost = found.get("unmatched_calls") or []
    by = {"clock": "by aligned clocks", "duration": "by duration (the clocks are not known well enough)"}
    return {
        "matched": f"{found['matched']:,}",
        "unmatched": f"{found['unmatched']:,}",
        "why": why,
        "lost": [_lost(row, reasons) for row in lost[:MOST_LOST]],
        "lost_total": len(lost),
        "last_by": by.get(found.get("last_by") or ""),
        "assumed": bool(found.get("group_assumed")),
    }
