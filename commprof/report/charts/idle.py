"""Why the device idles: idle time by cause, as means per rank over the steps that the means of the report use."""

from __future__ import annotations

from commprof.report.causes import IDLE, ON_CPU
from commprof.report.charts.exposure import counted_windows
from commprof.report.charts.wording import Json, clean, ratio, share_of
from commprof.units import format_ns


def idle(report: Json, base: str) -> Json | None:
    """``{"title", "rows"}``, the largest first; ``None`` where no cause is known."""
    counted = counted_windows(report["ranks"])
    rows = [row for row in report.get("idle") or [] if (row["rank"], row["step"]) in counted]
    if not any(row["cause"] != "unknown" and row["idle_ns"] for row in rows):
        return None
    sums: dict[str, list[int]] = {}
    names: dict[str, dict[str, int]] = {}
    for row in rows:
        total = sums.setdefault(row["cause"], [0, 0])
        total[0] += row["idle_ns"] or 0
        total[1] += row["count"] or 0
        if row.get("op"):
            mine = names.setdefault(row["cause"], {})
            mine[row["op"]] = mine.get(row["op"], 0) + (row["idle_ns"] or 0)
    ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    longest = max(total[0] for _, total in ordered) or 1
    windows, step_ns = len(counted), sum(counted.values())
    on_cpu = any(row["cause"] in ON_CPU for row in rows)
    return {
        "title": "What idle time is" if on_cpu else "Why the device idles",
        "rows": [
            {
                "name": IDLE[cause].name if cause in IDLE else clean(cause, 40),
                "meaning": IDLE[cause].meaning if cause in IDLE else None,
                "op": clean(min(names[cause], key=lambda op: (-names[cause][op], op)), 60) if cause in names else None,
                "time": format_ns(round(total / windows)),
                "share": share_of(ratio(total, step_ns), base),
                "gaps": f"{gaps / windows:,.0f}" if gaps >= windows else f"{gaps / windows:.1f}",
                "width": total / longest * 100,
            }
            for cause, (total, gaps) in ordered if total
        ]
    }  # fmt: skip
