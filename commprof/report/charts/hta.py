"""The appendix of what HTA says, as tables for the page."""

from __future__ import annotations

from typing import Any

from commprof.report.charts.wording import Json, clean

MOST_ROWS = 40
_TITLES = {
    "overlap": "Overlap of communication and computation", "temporal": "Temporal breakdown", "idle": "Idle time",
    "kernels": "Kernels by type", "critical_path": "Critical path of one step, percent of it",
}  # fmt: skip


def hta_section(report: Json) -> Json | None:
    """Tables of the appendix; ``None`` where it was not asked for."""
    found = report.get("hta")
    if not found:
        return None
    tables = []
    for key, title in _TITLES.items():
        rows = found.get(key)
        if rows:
            columns = list(rows[0])
            tables.append(
                {
                    "title": title,
                    "columns": [clean(column, 60) for column in columns],
                    "rows": [[_cell(row.get(column)) for column in columns] for row in rows[:MOST_ROWS]],
                    "total": len(rows),
                }
            )
    failed = [f"{_TITLES[key]}: {clean(why, 200)}" for key, why in found["failed"].items()]
    return {"version": clean(found["version"] or "of unknown version", 20), "tables": tables, "failed": failed}


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return clean(value, 80)
