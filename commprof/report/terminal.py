"""The summary that a person reads in the terminal: verdict, split per rank, where the exposed time sits, notes."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from commprof.units import format_bytes, format_ns, format_share

_MOST_RANKS = 16
_MOST_GROUPS = 8


def print_summary(view: dict[str, Any], console: Console) -> None:
    """Print the summary of one run."""
    report, headline = view["report"], view["headline"]
    console.print(Text(headline["answer"], style="bold"))
    for key in ("gain", "where"):
        if headline[key]:
            console.print(Text(headline[key]))
    console.print(Text(f"{report['input']['path']}: {headline['ranks']}", style="dim"))
    console.print()
    console.print(_mean_table(report))
    if len(report["ranks"]) > 1:
        console.print()
        console.print(_split_table(report))
    hidden = len(report["ranks"]) - _MOST_RANKS
    if hidden > 0:
        console.print(Text(f"first {_MOST_RANKS} rows of {len(report['ranks'])}; all are in the report", style="dim"))
    if report["groups"]:
        console.print()
        console.print(_group_table(report))
    _print_notes(report, console)


def of_what(report: dict[str, Any]) -> str:
    """What shares are of: step time, or the window where the trace marks no steps."""
    return "window" if all(row["windows"] == "none" for row in report["ranks"]) else "step time"


def _mean_table(report: dict[str, Any]) -> Table:
    """The split averaged over ranks and steps, in words."""
    of = of_what(report)
    table = _table(_over_what(report))
    for _ in range(3):
        table.add_column(justify="left" if not table.columns else "right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.show_header = False
    for label, ns, share, whole in mean_lines(report):
        shown = whole != ""
        table.add_row(label, format_ns(ns), format_share(share) if shown else "", f"of {whole or of}" if shown else "")
    return table


def mean_lines(report: dict[str, Any]) -> list[tuple[str, int, float | None, str | None]]:
    """Label, mean length, share, and of what it is, over all ranks and steps.

    "Of what" is ``None`` for step time (or the window) and empty where a line has no share.
    """
    mean = report["overall"]
    if mean is None:
        return []
    duration = mean["duration_ns"]

    def line(label: str, key: str) -> tuple[str, int, float | None, str | None]:
        return label, mean[key], mean[key] / duration if duration else None, None

    return [
        (of_what(report).removesuffix(" time"), duration, None, ""),
        line("compute", "compute_ns"),
        ("communication", mean["comm_ns"], None, ""),
        ("  hidden behind compute", mean["overlap_ns"], mean["overlap_ratio"], "communication time"),
        line("  exposed", "exposed_comm_ns"),
        line("exposed copies", "exposed_copy_ns"),
        line("idle", "idle_ns"),
    ]


def _over_what(report: dict[str, Any]) -> str:
    counts = [row["mean"]["steps"] for row in report["ranks"] if row["mean"]]
    ranks = len({row["rank"] for row in report["ranks"]})
    on = "one rank" if ranks == 1 else f"{ranks} ranks"
    if of_what(report) == "window":
        return f"The whole window, {on} (the trace marks no steps)"
    low, high = min(counts, default=0), max(counts, default=0)
    steps = f"{low} to {high} steps" if low != high else f"{high} steps" if high != 1 else "one step"
    return f"Mean of {steps} on {on}"


def _split_table(report: dict[str, Any]) -> Table:
    of = of_what(report)
    table = _table("By rank")
    several = len({(row["rank"], row["device"]) for row in report["ranks"]}) > len(
        {row["rank"] for row in report["ranks"]}
    )
    table.add_column("rank", justify="right")
    if several:
        table.add_column("device", justify="right")
    percent = "% of\n" + of.replace(" ", "\n")
    for name in (
        of.removesuffix(" time"),
        "compute",
        "comm",
        "exposed",
        percent,
        "copies",
        "idle",
        percent,
        "hidden\n% of\ncomm",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in report["ranks"][:_MOST_RANKS]:
        mean = row["mean"]
        if mean is None:
            continue
        table.add_row(
            str(row["rank"]),
            *([str(row["device"])] if several else []),
            format_ns(mean["duration_ns"]),
            format_ns(mean["compute_ns"]),
            format_ns(mean["comm_ns"]),
            format_ns(mean["exposed_comm_ns"]),
            format_share(mean["comm_share"]),
            format_ns(mean["exposed_copy_ns"]),
            format_ns(mean["idle_ns"]),
            format_share(mean["idle_ns"] / mean["duration_ns"] if mean["duration_ns"] else None),
            format_share(mean["overlap_ratio"]),
        )
    return table


def _table(title: str) -> Table:
    """A table without lines; the title wraps on its own, not to the width of the columns."""
    return Table(
        title=Text(title, style="italic"), title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0),
        header_style="bold",
    )  # fmt: skip


def _group_table(report: dict[str, Any]) -> Table:
    table = _table("Communication by process group and operation: whole capture, all ranks")
    table.add_column("operation", no_wrap=True)
    table.add_column("group")
    for name in ("ranks", "calls", "bytes", "time in calls", "exposed"):
        table.add_column(name, justify="right", no_wrap=True)
    kinds = _by_kind(report["groups"])
    for rows in kinds[:_MOST_GROUPS]:
        calls, unsized = (sum(row[key] for row in rows) for key in ("calls", "calls_without_size"))
        size = (
            "n/a" if unsized == calls else format_bytes(sum(row["bytes"] for row in rows)) + (" *" if unsized else "")
        )
        name = rows[0]["description"] or rows[0]["group"] or "unknown"
        table.add_row(
            rows[0]["op"].replace("_", "-"),
            Text(f"{name} ({len(rows)} groups)" if len(rows) > 1 else name),
            str(rows[0]["group_size"] or "n/a"),
            str(calls),
            size,
            format_ns(sum(row["comm_ns"] for row in rows)),
            format_ns(sum(row["exposed_ns"] for row in rows)),
        )
    if len(kinds) > _MOST_GROUPS:
        table.caption = Text(f"and {len(kinds) - _MOST_GROUPS} more in the report", style="dim")
        table.caption_justify = "left"
    return table


def _by_kind(groups: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Rows of one operation and purpose together, such as all pipeline groups; the most exposed kind first."""
    kinds: dict[tuple[str, str | None, int | None], list[dict[str, Any]]] = {}
    for row in groups:
        kinds.setdefault((row["op"], row["description"] or row["group"], row["group_size"]), []).append(row)
    return sorted(kinds.values(), key=lambda rows: -sum(row["exposed_ns"] for row in rows))


def _print_notes(report: dict[str, Any], console: Console) -> None:
    notes = [note for note in report["notes"] if note["code"] != "not-built"]
    if notes:
        console.print()
        console.print(Text("Notes", style="bold"))
        for note in notes[:12]:
            console.print(Padding(Text(note["message"]), (0, 0, 0, 2)))
        if len(notes) > 12:
            console.print(Padding(Text(f"and {len(notes) - 12} more in the report"), (0, 0, 0, 2)))
