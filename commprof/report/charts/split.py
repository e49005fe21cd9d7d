"""The step split of every rank: a stacked bar chart that can show the mean or one step, and the table behind it."""

from __future__ import annotations

from commprof.report.charts.wording import (
    Json,
    clean,
    has_several_devices,
    has_step_marks,
    rank_label,
    share_of,
    time_base,
)
from commprof.units import format_ns

MOST_RANKS_DRAWN = 512
MOST_STEPS_OFFERED = 60
MOST_TABLE_ROWS = 200
_HORIZONTAL_UP_TO = 20
_STRIPES_UP_TO = 48

# (name, colour role, pattern). Compute is drawn in two pieces so that the part that hides communication shows.
_PARTS = (
    ("Compute alone", "compute", None),
    ("Compute that hides communication", "compute", "hidden"),
    ("Exposed communication", "exposed", None),
    ("Exposed copies", "copy", None),
    ("Idle", "idle", None),
)
_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))


def pieces(row: Json) -> list[int]:
    """The five stacked pieces of one split in nanoseconds; they add up to ``duration_ns``."""
    return [
        row["compute_ns"] - row["overlap_ns"],
        row["overlap_ns"],
        row["exposed_comm_ns"],
        row["exposed_copy_ns"],
        row["idle_ns"],
    ]


def axis_unit(longest_ns: int) -> tuple[int, str]:
    """Divisor and name of the unit in which an axis up to ``longest_ns`` reads well."""
    return next(((step, unit) for step, unit in _UNITS if longest_ns >= step), (1, "ns"))


def split_chart(report: Json) -> Json | None:
    """A Plotly figure and its variants; ``None`` without any window.

    ``{"figure": {"data", "layout"}, "variants": [{"name", "values", "texts"}], "horizontal": bool}``: a variant
    holds, for each of the five traces, one value per rank in the unit of the axis and one hover text.
    Colours are names of the page's colour roles; the browser fills them in, light or dark.
    """
    ranks, note = _drawn(report["ranks"])
    names = _step_names(ranks)
    if not names:
        return None
    base, several = time_base(report), has_several_devices(ranks)
    columns: list[tuple[str, list[Json | None]]] = []
    if has_step_marks(report) and any(rank.get("mean") for rank in ranks):
        columns.append(("Mean of the closed steps", [rank.get("mean") for rank in ranks]))
    by_name = [{step["name"]: step for step in rank["steps"]} for rank in ranks]
    columns += [(name, [steps.get(name) for steps in by_name]) for name in names]
    longest = max((row["duration_ns"] for _, rows in columns for row in rows if row), default=0)
    divisor, unit = axis_unit(longest)
    labels = [rank_label(rank, several) for rank in ranks]
    horizontal = len(ranks) <= _HORIZONTAL_UP_TO
    return {
        "figure": _figure(
            labels if horizontal else [each.removeprefix("rank ") for each in labels],
            horizontal,
            unit,
            not has_step_marks(report),
        ),
        "horizontal": horizontal,
        "stripes": len(ranks) <= _STRIPES_UP_TO,
        "longest": longest / divisor,
        "variants": [_variant(name, rows, labels, divisor, base) for name, rows in columns],
        "note": note,
    }


def _drawn(ranks: list[Json]) -> tuple[list[Json], str | None]:
    """The ranks to draw, in order: all, or those with the most exposed communication."""
    if len(ranks) <= MOST_RANKS_DRAWN:
        return ranks, None
    worst = sorted(range(len(ranks)), key=lambda i: -(ranks[i].get("mean") or ranks[i]["whole"])["exposed_comm_ns"])
    kept = sorted(worst[:MOST_RANKS_DRAWN])
    note = f"First {MOST_RANKS_DRAWN} of {len(ranks):,} ranks by exposed time; all of them in the JSON."
    return [ranks[i] for i in kept], note


def _step_names(ranks: list[Json]) -> list[str]:
    seen: dict[str, None] = {}
    for rank in ranks:
        seen.update(dict.fromkeys(step["name"] for step in rank["steps"]))
    return list(seen)[:MOST_STEPS_OFFERED]


def _variant(name: str, rows: list[Json | None], labels: list[str], divisor: int, base: str) -> Json:
    marks = [mark for mark in ("open", "incomplete") if any(row and row.get(mark) for row in rows)]
    values: list[list[float | None]] = [[] for _ in _PARTS]
    texts: list[list[str]] = [[] for _ in _PARTS]
    for row, label in zip(rows, labels, strict=True):
        for i, ns in enumerate(pieces(row) if row else [None] * len(_PARTS)):
            values[i].append(None if ns is None else ns / divisor)
            texts[i].append("" if row is None or ns is None else _hover(label, i, ns, row, base))
    shown = clean(name, 80)
    return {"name": f"{shown} ({', '.join(marks)})" if marks else shown, "values": values, "texts": texts}


def _hover(label: str, part: int, ns: int, row: Json, base: str) -> str:
    share = share_of(ns / row["duration_ns"], base) if row["duration_ns"] else "n/a"
    return f"{label}<br>{_PARTS[part][0]}: {format_ns(ns)}, {share}"


def _figure(labels: list[str], horizontal: bool, unit: str, window: bool) -> Json:
    category, value = ("y", "x") if horizontal else ("x", "y")
    data = []
    for name, role, pattern in _PARTS:
        marker: Json = {"color": f"--{role}", "line": {"width": 0}}
        if pattern and len(labels) > _STRIPES_UP_TO:
            # Stripes in bars of a pixel or two would be noise.
            marker["color"] = "--mixed"
        elif pattern:
            colours = {"fgcolor": f"--{pattern}", "bgcolor": f"--{role}", "fgopacity": 1}
            marker["pattern"] = {"shape": "/", "size": 7, "solidity": 0.4, "fillmode": "overlay", **colours}
        data.append(
            {
                "type": "bar",
                "orientation": "h" if horizontal else "v",
                "name": name,
                category: labels,
                value: [],
                "marker": marker,
                "hovertemplate": "%{customdata}<extra></extra>",
                "customdata": [],
            }
        )
    of_what = "window" if window else "step"
    values = {"title": {"text": f"time of the {of_what}, {unit}"}, "rangemode": "tozero", "fixedrange": True}
    places: Json = {"fixedrange": True, "type": "category", "showgrid": False}
    if horizontal:
        places["autorange"] = "reversed"
    else:
        places.update({"tickangle": 0, "nticks": 16, "title": {"text": "rank"}})
    layout = {
        "barmode": "stack",
        "bargap": 0.35 if horizontal else 0.0 if len(labels) > _STRIPES_UP_TO else 0.08,
        "height": 110 + 34 * len(labels) if horizontal else 380,
        "showlegend": True,
        f"{category}axis": places,
        f"{value}axis": values,
    }
    return {"data": data, "layout": layout}


def split_table(report: Json) -> Json:
    """Rows of the table under the chart: every rank's mean and steps, at most ``MOST_TABLE_ROWS``."""
    base, several = time_base(report), has_several_devices(report["ranks"])
    flat = [(rank, step) for rank in report["ranks"] for step in rank["steps"]]
    total = len(flat)
    if total > MOST_TABLE_ROWS:
        keep = sorted(range(total), key=lambda i: -flat[i][1]["exposed_comm_ns"])[:MOST_TABLE_ROWS]
        flat = [flat[i] for i in sorted(keep)]
    rows = [_table_row(rank_label(rank, several), step, base) for rank, step in flat]
    without = [
        f"rank {rank['rank']}: {clean(step['name'], 80)}, {clean(step['reason'], 80)}"
        for rank in report["ranks"]
        for step in rank["steps_without_window"]
    ]
    return {"rows": rows, "total": total, "without_window": without[:50], "without_window_total": len(without)}


def _table_row(label: str, step: Json, base: str) -> Json:
    times = ("duration_ns", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    return {
        "rank": label,
        "step": clean(step["name"], 80),
        "marks": [mark for mark in ("open", "incomplete") if step.get(mark)],
        "times": [format_ns(step[key]) for key in times],
        "overlap": share_of(step["overlap_ratio"], "communication time"),
        "share": share_of(step["comm_share"], base),
    }
