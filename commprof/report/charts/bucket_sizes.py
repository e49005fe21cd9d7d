"""What other bucket sizes are predicted to leave after the backward pass, beside the recorded ones."""

from __future__ import annotations

from commprof.report.charts.wording import Json, share_of
from commprof.units import format_bytes, format_ns

MOST_LAYOUTS = 12
_MIB = 1 << 20
_CLOSE = (0.75, 1.33)
"""How far the measured tail may be from the predicted one, as a ratio, before the page warns."""


def bucket_sizes(report: Json, base: str) -> Json | None:
    """The process group that would gain the most: its layouts, and how well the recorded one is predicted."""
    rows = report.get("bucket_advice") or []
    if not rows:
        return None
    return _group(max(rows, key=lambda row: (bool(row["advised"]), row.get("gain_ns") or 0)), base, len(rows))


def _group(row: Json, base: str, groups: int) -> Json:
    current, advised = row["current"], row["advised"]
    # One cap for all buckets is what the plain option sets; of the others only the advised one is worth a line.
    plain = [layout for layout in row["layouts"] if layout["first_bucket_bytes"] == layout["bucket_cap_bytes"]]
    shown = sorted(plain, key=lambda layout: layout["tail_ns"])[:MOST_LAYOUTS]
    if advised and advised not in shown:
        shown.append(advised)
    longest = max([layout["tail_ns"] for layout in shown] + [current["tail_ns"], 1])
    lines = [_line(current, longest, "recorded")]
    lines += [
        _line(layout, longest, "advised" if layout == advised else None)
        for layout in sorted(shown, key=lambda layout: (layout["bucket_cap_bytes"], layout["first_bucket_bytes"]))
    ]
    return {
        "rows": lines,
        "total": len(row["layouts"]),
        "of": groups,
        "off": not _CLOSE[0] <= (row["measured_tail_ns"] + 1) / (current["tail_ns"] + 1) <= _CLOSE[1],
        "measured": format_ns(max(row["measured_tail_ns"], 0)),
        "predicted": format_ns(current["tail_ns"]),
        "gain": share_of(row["gain_ns"] / row["step_ns"], base) if advised and row["step_ns"] else None,
        "extrapolated": bool(row["extrapolated"]),
    }


def _line(layout: Json, longest: int, mark: str | None) -> Json:
    first, cap = layout["first_bucket_bytes"], layout["bucket_cap_bytes"]
    return {
        "cap": format_bytes(cap) if mark == "recorded" else f"bucket_cap_mb={cap / _MIB:g}",
        "first": None if first == cap else format_bytes(first),
        "buckets": f"{layout['buckets']:,}",
        "tail": format_ns(layout["tail_ns"]),
        "comm": format_ns(layout["comm_ns"]),
        "step": format_ns(layout["step_ns"]),
        "width": layout["tail_ns"] / longest * 100,
        "mark": mark,
    }
