"""The summary that a person reads in the terminal, about forty lines: verdict, split, what to change, who, where."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from commprof.report import summary
from commprof.report.charts.wait_chain import wait_chain
from commprof.report.summary import of_what
from commprof.units import format_bytes, format_gbps, format_ns, format_share

_MOST_RANKS = 8
_MOST_GROUPS = 5
_MOST_NOTES = 4


def print_summary(view: dict[str, Any], console: Console) -> None:
    """Print the summary of one run."""
    report, headline = view["report"], view["headline"]
    console.print(Text(headline["answer"], style="bold"))
    found = summary.top_findings(report)
    for key in () if found else ("gain", "where"):
        if headline[key]:
            console.print(Text(headline[key]))
    console.print(Text(f"{report['input']['path']}: {headline['ranks']}", style="dim"))
    console.print()
    console.print(_mean_table(report))
    if found:
        _print_findings(report, found, console)
    elif line := summary.left_out(report, 0):
        console.print()
        console.print(Text(f"No single cause stands out of the noise: {line.removeprefix('and ')}", style="italic"))
    if not any(finding.id == "straggler" for finding in found):
        _print_late(report, console)
        _print_wait_chain(report, console)
    _print_causes(report, console)
    for table in (_rank_table(report), _group_table(report)):
        if table is not None:
            console.print()
            console.print(table)
    _print_notes(report, console)


def _mean_table(report: dict[str, Any]) -> Table:
    """The split averaged over ranks and steps, in words."""
    of = of_what(report)
    table = _table(summary.over_what(report))
    for _ in range(3):
        table.add_column(justify="left" if not table.columns else "right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.show_header = False
    for line in summary.mean_lines(report):
        shown = line.whole != ""
        table.add_row(
            line.label, format_ns(line.ns), format_share(line.share) if shown else "",
            f"of {line.whole or of}" if shown else "",
        )  # fmt: skip
    return table


def _print_findings(report: dict[str, Any], found: list[summary.Advice], console: Console) -> None:
    """Time, what it is, and below it what to change."""
    console.print()
    console.print(Text(summary.findings_title(report), style="italic"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for finding in found:
        text = Text(finding.title, style="bold")
        text.append(f" ({finding.share})", style="not bold")
        if finding.advice:
            text.append(f"\n{finding.advice}", style="not bold")
        table.add_row(str(finding.number), finding.time, text)
    console.print(table)
    if line := summary.left_out(report, len(found)):
        console.print(Text(line, style="dim"))


def _print_late(report: dict[str, Any], console: Console) -> None:
    rows = summary.late(report)
    if not rows:
        return
    console.print()
    for row in rows:
        text = f"Late {row['kind']}: {row['name']}, {row['cause']}; costs every rank {row['charged']}, {row['last']}"
        if row["chain"]:
            text += f"; chain of waiting: rank {' -> '.join(row['chain'])}"
        console.print(Text(text))


def _print_wait_chain(report: dict[str, Any], console: Console) -> None:
    """The chain, where it goes on from the rank that others waited for: with one link the line of that says it all."""
    chain = wait_chain(report)
    if chain is None or len(chain["links"]) < 2:
        return
    console.print()
    console.print(Text(f"Chain of waiting in {chain['step']}, the step in which late ranks cost most", style="italic"))
    for link in chain["links"]:
        console.print(Text(f"{link['waits']}; {link['because']}" if link["because"] else link["waits"]))
    console.print(Text(f"It began with rank {chain['root']}: {chain['cause']}"))


def _print_causes(report: dict[str, Any], console: Console) -> None:
    """Cause, time, and as much of the meaning as fits in the line."""
    rows = summary.causes(report)
    if not rows:
        return
    console.print()
    console.print(Text(f"Why communication is exposed: mean over ranks, {summary.per_what(report)}", style="italic"))
    names, times = (max(len(row[key]) for row in rows) for key in ("name", "exposed"))
    for row in rows:
        line = Text(f"{row['name']:<{names}} {row['exposed']:>{times}} ")
        line.append(row["meaning"] or "", style="dim")
        line.truncate(console.width, overflow="ellipsis")
        console.print(line)


def _rank_table(report: dict[str, Any]) -> Table | None:
    if len(report["ranks"]) < 2:
        return None
    of = of_what(report)
    rows, rule = summary.telling_ranks(report, _MOST_RANKS)
    table = _table("By rank")
    several = len({(row["rank"], row["device"]) for row in report["ranks"]}) > len(
        {row["rank"] for row in report["ranks"]}
    )
    table.add_column("rank", justify="right")
    if several:
        table.add_column("device", justify="right")
    percent = "% of\n" + of.replace(" ", "\n")
    heads = (
        of.removesuffix(" time"),
        "compute",
        "comm",
        "exposed",
        percent,
        "copies",
        "idle",
        percent,
        "hidden\n% of\ncomm",
    )
    for name in heads:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        mean = row["mean"]
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
    _caption(table, rule)
    return table


def _table(title: str) -> Table:
    """A table without lines; the title wraps on its own, not to the width of the columns."""
    return Table(
        title=Text(title, style="italic"), title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0),
        header_style="bold",
    )  # fmt: skip


def _caption(table: Table, text: str | None) -> None:
    if text:
        table.caption = Text(text, style="dim")
        table.caption_justify = "left"


def _group_table(report: dict[str, Any]) -> Table | None:
    kinds = summary.kinds(report["groups"] or [])
    if not kinds:
        return None
    table = _table("By process group and operation: whole capture, all ranks")
    table.add_column("operation", no_wrap=True)
    table.add_column("group")
    waits = any(row.get("wait_ns") is not None for row in report["groups"])
    speed = any(row.get("busbw_gbps_median") is not None for row in report["groups"])
    heads = [
        "ranks",
        "calls",
        "bytes",
        "exposed",
        *(["waiting"] if waits else []),
        *(["bus bandwidth"] if speed else []),
    ]
    for name in heads:
        table.add_column(name, justify="right", no_wrap=True)
    for rows in kinds[:_MOST_GROUPS]:
        calls, unsized = (sum(row[key] for row in rows) for key in ("calls", "calls_without_size"))
        size = (
            "n/a" if unsized == calls else format_bytes(sum(row["bytes"] for row in rows)) + (" *" if unsized else "")
        )
        cells = [
            rows[0]["op"].replace("_", "-"),
            Text(summary.group_name(rows, brief=True)),
            str(rows[0]["group_size"] or "n/a"),
            str(calls),
            size,
            format_ns(sum(row["exposed_ns"] for row in rows)),
        ]
        if waits:
            known = [row["wait_ns"] for row in rows if row["wait_ns"] is not None]
            cells.append(format_ns(sum(known) if known else None))
        if speed:
            cells.append(_bandwidth([v for row in rows if (v := row["busbw_gbps_median"]) is not None]))
        table.add_row(*cells)
    hidden = len(kinds) - _MOST_GROUPS
    _caption(table, f"and {hidden} more in the report" if hidden > 0 else None)
    return table


def _bandwidth(values: list[float]) -> str:
    if not values:
        return "n/a"
    low, high = format_gbps(min(values)), format_gbps(max(values))
    return low if low == high else f"{low.removesuffix(' GB/s')} to {high}"


def _print_notes(report: dict[str, Any], console: Console) -> None:
    notes = summary.notes(report)
    if not notes:
        return
    console.print()
    console.print(Text("Notes", style="bold"))
    for note in notes[:_MOST_NOTES]:
        console.print(Padding(Text(note), (0, 0, 0, 2)))
    if len(notes) > _MOST_NOTES:
        console.print(Padding(Text(f"and {len(notes) - _MOST_NOTES} more in the report"), (0, 0, 0, 2)))
