"""The step split of every rank: a stacked bar chart that can show the mean or one step, and the table behind it."""

from __future__ import annotations

from commprof.report.charts.wording import (
    Json,
    clean,
    has_several_devices,
    has_step_marks,
    micro_steps,
    rank_label,
    share_of,
    time_base,
)
from commprof.units import format_ns

MOST_RANKS_DRAWN = 512
MOST_BARS = 3_000
"""Over all variants: ranks times steps."""
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

    With several ranks a bar is a rank and a variant is the mean or one step; with one rank the bars are its steps.
    ``{"figure": {"data", "layout"}, "variants": [{"name", "values", "texts"}], "horizontal": bool}``: a variant
    holds, for each of the five traces, one value per bar in the unit of the axis and one hover text.
    Colours are names of the page's colour roles; the browser fills them in, light or dark.
    """
    ranks, note = _drawn(report["ranks"], {row["rank"] for row in report.get("stragglers") or []})
    every = _step_names(ranks)
    names = every[: max(1, min(MOST_BARS // max(1, len(ranks)), MOST_RANKS_DRAWN))]
    if not names:
        return None
    if len(names) < len(every):
        note = f"{note or ''} First {len(names):,} of {len(every):,} steps; all of them in the JSON.".strip()
    marked = has_step_marks(report)
    columns: list[tuple[str, list[Json | None]]] = []
    if marked and any(rank.get("mean") for rank in ranks):
        columns.append((_mean_name(report), [rank.get("mean") for rank in ranks]))
    by_name = [{step["name"]: step for step in rank["steps"]} for rank in ranks]
    columns += [(name, [steps.get(name) for steps in by_name]) for name in names]
    several = has_several_devices(ranks)
    labels = [rank_label(rank, several) for rank in ranks]
    alone = len(ranks) == 1 and marked
    if alone:
        labels = [_marked(name, rows) for name, rows in columns]
        columns = [(rank_label(ranks[0], several), [rows[0] for _, rows in columns])]
    longest = max((row["duration_ns"] for _, rows in columns for row in rows if row), default=0)
    divisor, unit = axis_unit(longest)
    horizontal = len(labels) <= _HORIZONTAL_UP_TO
    what = "" if horizontal else "step" if alone else "rank"
    short = labels if horizontal else [_short(label) for label in labels]
    return {
        "figure": _figure(short, horizontal, f"time of the {'step' if marked else 'window'}, {unit}", what),
        "horizontal": horizontal,
        "bars": "step" if alone else "rank",
        "title": _title(ranks, marked, several),
        "stripes": len(labels) <= _STRIPES_UP_TO,
        "longest": longest / divisor,
        "variants": [
            {"name": name if alone else _marked(name, rows), **_variant(rows, labels, divisor, time_base(report))}
            for name, rows in columns
        ],
        "note": note,
    }


def _title(ranks: list[Json], marked: bool, several: bool) -> str:
    if len(ranks) == 1:
        return f"{'Each step' if marked else 'The window'} of {rank_label(ranks[0], several)}"
    return f"The {'step' if marked else 'window'} of each rank"


def _short(label: str) -> str:
    """``3`` for ``rank 3`` and ``#7`` for ``ProfilerStep#7``, for bars that stand close together."""
    return label.removeprefix("rank ").removeprefix("ProfilerStep").replace("Mean of the closed steps", "mean")


def _mean_name(report: Json) -> str:
    period = micro_steps(report)
    return f"Mean optimizer step of {period} micro-steps" if period else "Mean of the closed steps"


def _drawn(ranks: list[Json], late: set[int | None]) -> tuple[list[Json], str | None]:
    """The ranks to draw, in order: all, or the late ones, which expose least, and those with the most exposed
    communication."""
    if len(ranks) <= MOST_RANKS_DRAWN:
        return ranks, None
    exposed = [(rank.get("mean") or rank["whole"])["exposed_comm_ns"] for rank in ranks]
    worst = sorted(range(len(ranks)), key=lambda i: (ranks[i]["rank"] not in late, -exposed[i]))
    kept = sorted(worst[:MOST_RANKS_DRAWN])
    also = ", the late ones among them" if any(ranks[i]["rank"] in late for i in kept) else ""
    note = f"First {MOST_RANKS_DRAWN} of {len(ranks):,} ranks by exposed time{also}; all of them in the JSON."
    return [ranks[i] for i in kept], note


def markup_free(text: str) -> str:
    """Plotly reads a few tags in texts of a chart; a name from a trace is plain text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _step_names(ranks: list[Json]) -> list[str]:
    seen: dict[str, None] = {}
    for rank in ranks:
        seen.update(dict.fromkeys(step["name"] for step in rank["steps"]))
    return list(seen)


def _variant(rows: list[Json | None], labels: list[str], divisor: int, base: str) -> Json:
    values: list[list[float | None]] = [[] for _ in _PARTS]
    texts: list[list[str]] = [[] for _ in _PARTS]
    for row, label in zip(rows, labels, strict=True):
        for i, ns in enumerate(pieces(row) if row else [None] * len(_PARTS)):
            values[i].append(None if ns is None else ns / divisor)
            texts[i].append("" if row is None or ns is None else _hover(label, i, ns, row, base))
    return {"values": values, "texts": texts}


def _marked(name: str, rows: list[Json | None]) -> str:
    """``ProfilerStep#6 (open)``: the name of a step with what is special about it on any rank."""
    marks = [mark for mark in ("open", "incomplete") if any(row and row.get(mark) for row in rows)]
    shown = clean(name, 60)
    return f"{shown} ({', '.join(marks)})" if marks else shown


def _hover(label: str, part: int, ns: int, row: Json, base: str) -> str:
    share = share_of(ns / row["duration_ns"], base) if row["duration_ns"] else "n/a"
    return f"{markup_free(label)}<br>{_PARTS[part][0]}: {format_ns(ns)}, {share}"


def _figure(labels: list[str], horizontal: bool, value_title: str, place_title: str) -> Json:
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
                category: list(range(len(labels))),
                value: [],
                "marker": marker,
                "hovertemplate": "%{customdata}<extra></extra>",
                "customdata": [],
            }
        )
    values = {"title": {"text": value_title}, "rangemode": "tozero", "fixedrange": True}
    every = 1 if horizontal else -(-len(labels) // 16)
    places: Json = {
        "fixedrange": True,
        "showgrid": False,
        "tickvals": list(range(0, len(labels), every)),
        "ticktext": [markup_free(label) for label in labels[::every]],
    }
    if horizontal:
        places["autorange"] = "reversed"
    else:
        places.update({"tickangle": 0, "title": {"text": place_title}})
    layout = {
        "barmode": "stack",
        "bargap": 0.35 if horizontal else 0.0 if len(labels) > _STRIPES_UP_TO else 0.08,
        "height": 110 + 34 * len(labels) if horizontal else 380,
        "showlegend": True,
        f"{category}axis": places,
        f"{value}axis": values,
    }
    return {"data": data, "layout": layout}


_PARTS_OF = (
    ("exposed_host_ns", "Exposed, host late", "host-bound"),
    ("idle_host_ns", "Idle, host late", "host-bound"),
    ("overlap_comm_copies_ns", "Hidden by bucket copies", "overlap-thin"),
    ("overlap_thin_ns", "Hidden by small kernels", "overlap-thin"),
    ("fused_ns", "Fused compute", "fused"),
    ("fused_wait_ns", "Fused, waiting", "fused"),
)
"""Parts of the parts of a split, with the entry of the glossary; a column each where any row has some."""


def split_table(report: Json) -> Json:
    """Rows of the table under the chart: every rank's steps, at most ``MOST_TABLE_ROWS``, and its whole capture."""
    base, several = time_base(report), has_several_devices(report["ranks"])
    flat = [(rank, step) for rank in report["ranks"] for step in rank["steps"]]
    total = len(flat)
    if has_step_marks(report) and total + len(report["ranks"]) <= MOST_TABLE_ROWS:
        flat = [
            (rank, step) for rank in report["ranks"]
            for step in (*rank["steps"], _whole(rank))
        ]  # fmt: skip
        total = len(flat)
    if total > MOST_TABLE_ROWS:
        keep = sorted(range(total), key=lambda i: -flat[i][1]["exposed_comm_ns"])[:MOST_TABLE_ROWS]
        flat = [flat[i] for i in sorted(keep)]
    extra = [part for part in _PARTS_OF if any(step.get(part[0]) for _, step in flat)]
    rows = [_table_row(rank_label(rank, several), step, base, extra) for rank, step in flat]
    without = [
        f"rank {rank['rank']}: {clean(step['name'], 80)}, {clean(step['reason'], 80)}"
        for rank in report["ranks"]
        for step in rank["steps_without_window"]
    ]
    return {
        "rows": rows,
        "extra": [{"title": title, "term": term} for _, title, term in extra],
        "total": total,
        "without_window": without[:50],
        "without_window_total": len(without),
    }


def _whole(rank: Json) -> Json:
    """The whole capture as a row: its shares are not of a step."""
    return {**{key: value for key, value in rank["whole"].items() if key != "comm_share"}, "name": "whole capture"}


def _table_row(label: str, step: Json, base: str, extra: list[tuple[str, str, str]]) -> Json:
    times = ("duration_ns", "compute_ns", "comm_ns", "overlap_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns")
    return {
        "rank": label,
        "step": clean(step["name"], 80),
        "marks": [mark for mark in ("open", "incomplete") if step.get(mark)],
        "times": [format_ns(step[key]) for key in times],
        "extra": [format_ns(step.get(key)) for key, _, _ in extra],
        "overlap": share_of(step["overlap_ratio"], "communication time"),
        "share": share_of(step["comm_share"], base) if "comm_share" in step else "",
    }
