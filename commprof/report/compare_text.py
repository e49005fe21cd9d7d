"""The comparison of two runs in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commprof.report.causes import BOTTLENECKS
from commprof.report.charts.wording import clean, rank_ranges
from commprof.report.compare_view import compared_name
from commprof.units import format_bytes, format_ns, format_share

_MOST_ROWS = 8


def print_comparison(comparison: dict[str, Any], console: Console) -> None:
    """The summary, what changed, and the findings that came and went."""
    if comparison["warning"]:
        console.print(Text(clean(comparison["warning"], 600), style="bold yellow"))
    console.print(Text(comparison["summary"], style="bold"))
    for name in ("base", "new"):
        side = comparison[name]
        ranks = f"{'rank' if len(side['ranks']) == 1 else 'ranks'} {rank_ranges(side['ranks'])}"
        console.print(Text(f"{name}: {clean(side['path'], 120)}, {ranks}, {_steps(side['steps'])}", style="dim"))
    if not comparison["comparable"]:
        return
    if said := _bottlenecks(comparison["verdicts"]):
        console.print(Text(said))
    per = "" if comparison["of"] == "window" else " per step"
    console.print()
    console.print(_differences(f"Mean over ranks{per}", comparison["split"]))
    for row in comparison["shares"]:
        console.print(
            Text(f"{row['name']}: {format_share(row['base'])}, now {format_share(row['new'])} of {row['of']}", "dim")
        )
    for title, key in (("Exposed by operation", "operations"), ("Exposed by process group", "groups")):
        if comparison[key]:
            console.print()
            console.print(_differences(title + per, comparison[key][:_MOST_ROWS]))
            _print_left_out(len(comparison[key]) - _MOST_ROWS, console)
    _print_buckets(comparison["buckets"], console)
    if comparison["findings"]:
        console.print()
        console.print(Text("Findings", style="italic"))
    for row in comparison["findings"]:
        sides = ", now ".join(
            "not found" if row[f"{s}_severity"] is None else format_ns(row[f"{s}_ns"]) for s in ("base", "new")
        )
        changed = f"; {clean(row['changed'], 240)}" if row["changed"] else ""
        console.print(Text(f"{row['status']}: {clean(row['title'], 200)} ({sides}{changed})"))


def _bottlenecks(verdicts: dict[str, Any]) -> str | None:
    """The bottleneck, where it is another one."""
    before, now = (BOTTLENECKS.get(verdicts[side]["bottleneck"], "not known") for side in ("base", "new"))
    return None if before == now else f"Bottleneck: {before}, now {now}."


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _differences(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(
        title=Text(title, style="italic"), title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    table.add_column("")
    for name in ("base", "new", "noise"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    for row in rows:
        name = compared_name(row, 60)
        noise = "n/a" if row["noise_ns"] is None else format_ns(row["noise_ns"])
        table.add_row(name, format_ns(row["base_ns"]), format_ns(row["new_ns"]), noise, row["words"])
    return table


def _print_buckets(rows: list[dict[str, Any]], console: Console) -> None:
    """Buckets of another size or with exposed time in either run; the others say nothing."""
    telling = [row for row in rows if row["base_size_bytes"] != row["new_size_bytes"] or _exposed(row)]
    if not telling:
        return
    console.print()
    table = Table(title=Text("Gradient buckets", style="italic"), title_justify="left", box=None, pad_edge=False)
    for name in ("bucket", "size, base", "size, new", "exposed, base", "exposed, new"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in telling[:_MOST_ROWS]:
        table.add_row(
            str(row["index"]), format_bytes(row["base_size_bytes"]), format_bytes(row["new_size_bytes"]),
            format_ns(row["base_exposed_ns"]), format_ns(row["new_exposed_ns"]),
        )  # fmt: skip
    console.print(table)
    _print_left_out(len(telling) - _MOST_ROWS, console)


def _exposed(row: dict[str, Any]) -> bool:
    return bool(row["base_exposed_ns"] or row["new_exposed_ns"])


def _print_left_out(count: int, console: Console) -> None:
    if count > 0:
        console.print(Text(f"and {count} more in the JSON", style="dim"))
