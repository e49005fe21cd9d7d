"""Ranks that the others wait for: how much it costs, why they are late, and the chain that leads to them."""

from __future__ import annotations

from commprof.report.causes import LATE_KINDS, late_word
from commprof.report.charts.findings import with_unit
from commprof.report.charts.wording import STEP, Json, clean, count, rank_ranges, ratio, share_of
from commprof.units import format_ns, format_share

MOST_ROWS = 24
MOST_LINKS = 12


def stragglers(report: Json, base: str) -> Json | None:
    """``{"rows", "total"}`` in the order of the report; ``None`` if nobody is named."""
    rows = report.get("stragglers") or []
    if not rows:
        return None
    step_ns = (report.get("overall") or {}).get("duration_ns")
    shown = [_row(row, step_ns, base) for row in rows[:MOST_ROWS]]
    return {"rows": shown, "total": len(rows), "replay": replay(report)}


def harmless(report: Json, base: str) -> Json | None:
    """Ranks that are late and not named, and why: ``{"lines", "why"}``; ``None`` without any."""
    rows = report.get("late_but_harmless") or []
    if not rows:
        return None
    shown = [_row(row, None, base) for row in rows[:MOST_ROWS]]
    more = f" and {len(rows) - len(shown):,} more" if len(rows) > len(shown) else ""
    per = " per step" if base == STEP else ""
    lines = ", ".join(f"{row['name']} ({row['cause']}, {row['charged']}{per})" for row in shown)
    return {"ranks": lines + more, "why": clean(rows[0].get("why_not_named") or "", 300)}


def replay(report: Json) -> str | None:
    """What the step would take without slow ranks, where the run could be replayed."""
    found = next(iter(report.get("whatif") or []), None)
    if found is None or found["gain_ns"] <= 0:
        return None
    error = found.get("replay_error")
    told = f"; replayed as it was, it is off by {format_share(error)} of step time" if error and error >= 0.0005 else ""
    return (
        f"Replayed with {clean(found['change'], 80)}, a step takes {format_ns(found['step_ns'])} on average, "
        f"{format_ns(found['gain_ns'])} less (the first step left out{told})"
    )


def late_name(row: Json) -> str:
    """``rank 7``, ``host node3`` or what else is named."""
    if row["rank"] is not None:
        return f"rank {row['rank']}"
    # A stage or a replica has a host too where it lies on one: that is not what is late.
    role = clean(row.get("role") or "", 60)
    host = clean(row["host"], 40) if row["host"] and not role else ""
    name = (host if host.startswith("host") else f"host {host}") if host else role
    members = row.get("members") or []
    ranks = f"{'rank' if len(members) == 1 else 'ranks'} {rank_ranges(members)}" if members else ""
    return clean(", ".join(word for word in (name, ranks) if word) or "no single rank", 90)


def _row(row: Json, step_ns: int | None, base: str) -> Json:
    known, share = late_word(row["cause"], row.get("or_cause")), row.get("share_of_step")
    return {
        "rank": row["rank"],
        "name": late_name(row),
        "role": clean(row["role"], 60) if row["role"] and row["rank"] is not None else None,
        "host": clean(row["host"], 40) if row["host"] and row["rank"] is not None else None,
        "kind": LATE_KINDS.get(row["kind"], clean(row["kind"], 30)),
        "cause": known.name if known else clean(row["cause"], 40),
        "meaning": known.meaning if known else None,
        "charged": format_ns(row["charged_ns_per_step"]),
        "share": share_of(share if share is not None else ratio(row["charged_ns_per_step"], step_ns), base),
        "last": f"last in {row['last']:,} of {count(row['matched'], 'call')}",
        "evidence": [_evidence(item, base) for item in row["evidence"][:8] if _tells(item)],
        "chain": [clean(link, 30) for link in row["chain"][:MOST_LINKS]] if len(row["chain"]) > 1 else [],
    }


def _tells(item: object) -> bool:
    """How often it was last stands in the row already, and a nought is no evidence."""
    return not isinstance(item, dict) or (item.get("what") != "last to arrive" and item.get("value") != 0)


def _evidence(item: object, base: str) -> str:
    if isinstance(item, dict):
        value = with_unit(item.get("value"), item.get("unit"), base)
        head, colon, rest = str(item.get("what", "")).partition(": ")
        if colon and head == "share of the charge":
            return clean(f"{rest}: {value} of what it is charged with", 240)
        return clean(f"{item.get('what', '')}: {value}", 240)
    return clean(item, 240)
