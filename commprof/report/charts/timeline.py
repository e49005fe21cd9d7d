"""The timeline of one step: columns of segments per lane that the browser draws, searches and labels.

Times in the columns are nanoseconds after the earliest start of the entries shown; texts are prepared here, so the
browser only places them. Size is bounded whatever the trace: entries are added while they fit, and an entry that
is too long is made coarser, which shows in its segments' counts.
"""

from __future__ import annotations

from commprof.report.charts.payload import Strings
from commprof.report.charts.split import axis_unit
from commprof.report.charts.wording import Json, clean, has_several_devices, rank_label
from commprof.units import format_bytes, format_ns

MOST_SEGMENTS = 40_000
"""Over all entries: about 2 MB of JSON."""
MOST_SEGMENTS_AN_ENTRY = 16_000
MOST_LANES = 40
MOST_STRETCHES = 6_000

_KINDS = {"compute": "compute", "comm": "communication", "copy": "copies"}
_ORDER = {"compute": 0, "comm": 1, "copy": 2}
_STRIP = {"exposed": "exposed", "copy": "exposed_copy", "idle": "idle"}
"""Parts of a rank's strip, colour role and key of the view; what they leave is compute."""


def timeline(view: Json) -> Json | None:
    """Columns for the timeline, or ``None`` without entries.

    ``{"step", "unit", "divisor", "span", "origin", "strings", "entries", "note"}``; an entry holds its lanes, a lane
    the columns ``start end label count busy op group size exposed`` (ns, ns, then indices into ``strings``).
    """
    entries = [entry for entry in view.get("timeline") or [] if entry["lanes"]]
    if not entries:
        return None
    origin = min(entry["start_ns"] for entry in entries)
    several = has_several_devices(entries)
    strings = Strings()
    drawn: list[Json] = []
    left = MOST_SEGMENTS
    # Late ranks are drawn whatever fits beside them.
    late = {row["rank"] for row in view["report"].get("stragglers") or []}
    for entry in sorted(entries, key=lambda entry: entry["rank"] not in late):
        packed = _entry(entry, origin, strings, several)
        left -= sum(len(lane["start"]) for lane in packed["lanes"])
        if left < 0 and drawn:
            break
        drawn.append(packed)
    drawn.sort(key=lambda entry: entry["rank"])
    span = max(entry["end"] for entry in drawn)
    divisor, unit = axis_unit(span)
    return {
        "step": clean(entries[0]["step"], 80),
        "unit": unit,
        "divisor": divisor,
        "span": span,
        "origin": origin,
        "strings": strings.texts,
        "entries": drawn,
        "note": _note(drawn, len(view["report"]["ranks"])),
    }


def _note(drawn: list[Json], ranks: int) -> str | None:
    notes = [] if len(drawn) == ranks else [f"{len(drawn):,} of {ranks:,} ranks are drawn."]
    left_out = max(entry["lanes_left_out"] for entry in drawn)
    if left_out:
        notes.append(f"Up to {left_out:,} rows of a rank with the least work are left out.")
    return " ".join(notes) or None


def _entry(entry: Json, origin: int, strings: Strings, several: bool) -> Json:
    lanes = [lane for lane in sorted(entry["lanes"], key=_lane_order) if lane["segments"]]
    busiest = sorted(lanes, key=lambda lane: -sum(segment["duration_ns"] for segment in lane["segments"]))
    kept = [lane for lane in lanes if any(lane is one for one in busiest[:MOST_LANES])]
    most = MOST_SEGMENTS_AN_ENTRY // max(len(kept), 1)
    packed = [_lane(lane, entry, origin, strings, most) for lane in kept]
    stretches = {name: entry.get(key) or [] for name, key in _STRIP.items()}
    return {
        "name": rank_label(entry, several),
        "lanes_left_out": len(lanes) - len(kept),
        "rank": entry["rank"],
        "start": entry["start_ns"] - origin,
        "end": entry["end_ns"] - origin,
        "lanes": packed,
        "stretches": {name: _flat(pairs, origin) for name, pairs in stretches.items()},
        "shares": _shares_where_needed(entry, stretches),
    }


def _shares_where_needed(entry: Json, stretches: dict[str, list[list[int]]]) -> dict[str, list[int]] | None:
    """Exact time of each part in equal pieces of the step, if the stretches are too many to be listed exactly."""
    given = entry.get("shares")
    if given is None:
        return None
    shares = {name: given[key] for name, key in _STRIP.items()}
    exact = all(
        len(pairs) <= MOST_STRETCHES and sum(end - start for start, end in pairs) == sum(shares[name])
        for name, pairs in stretches.items()
    )
    return None if exact else shares


def _lane_order(lane: Json) -> tuple[int, int, str, int]:
    stream = str(lane["stream"])
    return (_ORDER.get(lane["kind"], 3), int(stream) if stream.isdecimal() else -1, stream, lane["row"])


def _lane(lane: Json, entry: Json, origin: int, strings: Strings, most: int) -> Json:
    segments = sorted(lane["segments"], key=lambda segment: segment["start_ns"])
    if len(segments) > most:
        segments = coarser(segments, -(-(entry["end_ns"] - entry["start_ns"]) // most))
    add = strings.add
    first, last = entry["start_ns"], entry["end_ns"]
    columns: dict[str, list[int]] = {
        "start": [max(s["start_ns"], first) - origin for s in segments],
        "end": [min(s["end_ns"], last) - origin for s in segments],
        "label": [add(_label(s)) for s in segments],
        "count": [s["count"] for s in segments],
        "busy": [s["duration_ns"] for s in segments],
        "time": [add(format_ns(s["duration_ns"])) for s in segments],
    }
    if lane["kind"] == "comm":
        columns["op"] = [add(clean(s["op"], 60)) for s in segments]
        columns["group"] = [add(clean(s["group"], 80)) for s in segments]
        columns["size"] = [add(format_bytes(s["size_bytes"])) for s in segments]
        columns["exposed"] = [add(format_ns(s["exposed_ns"])) for s in segments]
    kind, stream = _KINDS.get(lane["kind"], clean(lane["kind"], 20)), clean(lane["stream"], 12)
    name = kind if stream == "cpu" else f"{kind} {stream}"
    return {"kind": lane["kind"], "name": name, "row": lane["row"], **columns}


def _label(segment: Json) -> str:
    """The kernel's name, or nothing where it would only repeat the operation or the count."""
    label, number = segment["label"], segment["count"]
    said = {segment.get("op"), f"{number} kernels", f"{number} calls", None}
    return "" if label in said else clean(label)


def coarser(segments: list[Json], gap_ns: int) -> list[Json]:
    """Neighbours of a lane that start within ``gap_ns`` of each other's start become one segment; counts add up."""
    out: list[Json] = []
    for segment in segments:
        last = out[-1] if out else None
        if last is None or segment["start_ns"] - last["start_ns"] >= gap_ns:
            out.append(dict(segment))
            continue
        last["end_ns"] = max(last["end_ns"], segment["end_ns"])
        last["count"] += segment["count"]
        last["duration_ns"] += segment["duration_ns"]
        for key in ("op", "group", "label"):
            last[key] = last.get(key) if last.get(key) == segment.get(key) else "several"
        for key in ("size_bytes", "exposed_ns"):
            sizes = (last.get(key), segment.get(key))
            last[key] = None if None in sizes else sum(sizes)
    return out


def _flat(stretches: list[list[int]], origin: int) -> list[int]:
    """``[start, end, start, end, ...]``; of more than ``MOST_STRETCHES`` the longest are kept."""
    if len(stretches) > MOST_STRETCHES:
        longest = sorted(range(len(stretches)), key=lambda i: stretches[i][0] - stretches[i][1])[:MOST_STRETCHES]
        stretches = [stretches[i] for i in sorted(longest)]
    return [bound - origin for stretch in stretches for bound in stretch]
