"""Limits that the run was held to, and figures of other tools, which no verdict rests on."""

from __future__ import annotations

from typing import Any

from commprof.report.charts.wording import Json, clean
from commprof.units import format_ns

MOST_LIMITS = 60
MOST_ROWS = 60
MOST_COLUMNS = 12

_TABLES = {
    "overlap": "Overlap of compute and communication",
    "temporal": "Time of each rank by kind",
    "idle": "Idle time",
    "kernels": "Kernels",
    "critical_path": "Critical path",
}


def limits(report: Json) -> Json | None:
    """Every limit with the value found; ``None`` where nothing was checked."""
    rows = report.get("checks") or []
    if not rows:
        return None
    return {"rows": [_limit(row) for row in rows[:MOST_LIMITS]], "total": len(rows)}


def _limit(row: Json) -> Json:
    ok = row["ok"]
    return {
        "limit": clean(row["limit"], 120),
        "threshold": f"{clean(row['sign'], 2)} {_plain(row['key'], row['threshold'])}",
        "value": _plain(row["key"], row["value"]),
        "ok": "n/a" if ok is None else "kept" if ok else "exceeded",
        "bad": ok is False,
    }


def _plain(key: str, value: Any) -> str:
    """Times as times; other numbers as they are, a share as the ratio that the limit was given as."""
    if value is None:
        return "n/a"
    if key.endswith("_ns"):
        return format_ns(round(value))
    return f"{value:,.4g}" if isinstance(value, float) else clean(value, 60)


def foreign(report: Json) -> Json | None:
    """Tables of HTA as it made them: ``{"name", "tables": [{"title", "columns", "rows", "total"}], "failed"}``."""
    found = report.get("hta")
    if not found:
        return None
    tables = []
    for key, title in _TABLES.items():
        rows = found.get(key)
        if not rows:
            continue
        columns = list(rows[0])[:MOST_COLUMNS]
        tables.append(
            {
                "title": title,
                "columns": [clean(column, 60) for column in columns],
                "rows": [[_cell(row.get(column)) for column in columns] for row in rows[:MOST_ROWS]],
                "total": len(rows),
            }
        )
    failed = [
        f"{_TABLES.get(key, clean(key, 40))}: {clean(why, 200)}" for key, why in (found.get("failed") or {}).items()
    ]
    return {
        "name": clean(f"{found['source']} {found.get('version') or ''}".strip(), 60),
        "tables": tables,
        "failed": failed,
    }


def _cell(value: Any) -> str:
    if value is None:
        return "n/a"
    return (
        f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else clean(value, 120)
    )
