"""The summary that a person reads in the terminal, about forty lines: verdict, split, what to change, who, where."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from commprof.report import summary
from commprof.report.charts.accounting import left_out
from commprof.report.charts.hero import sits
from commprof.report.charts.pipeline import longest_stage
from commprof.report.charts.stragglers import replay
from commprof.report.charts.wait_chain import wait_chain
from commprof.report.charts.wording import share_of
from commprof.report.summary import of_what
from commprof.units import format_bytes, format_gbps, format_ns, format_share

_MOST_RANKS = 8
_MOST_GROUPS = 5
_MOST_NOTES = 4
_MEAN_FITS, _RANKS_FIT, _GROUPS_FIT, _HEADS_FIT = 62, 76, 72, 92
"""Columns below which these parts are printed in a shorter form, so that no number is cut."""


def print_summary(view: dict[str, Any], console: Console) -> None:
    """Print the summary of one run; text and the tables of few columns follow the width of the console."""
    report, headline = view["report"], view["headline"]
    console.print(Text(headline["answer"], style="bold"))
    found = summary.top_findings(report)
    for line in (sits(report, headline),) if found else (headline["gain"], headline["where"]):
        if line:
            console.print(Text(line))
    run = "; ".join(filter(None, (headline["ranks"], summary.volume(report))))
    console.print(Text(f"{report['input']['path']}: {run}", style="dim"))
    _print_mean(report, console)
    if found:
        _print_findings(report, found, console)
    elif line := left_out(report, 0, "in the report"):
        console.print()
        console.print(Text(f"No single cause stands out of the noise: {line.removeprefix('and ')}", style="italic"))
    if not any(finding.id == "straggler" for finding in found):
        _print_late(report, console)
    if line := summary.harmless_line(report):
        console.print()
        console.print(Text(line))
    _print_wait_chain(report, console)
    if line := longest_stage(report):
        console.print()
        console.print(Text(f"{line}."))
    _print_causes(report, console)
    _print_ranks(report, console)
    _print_groups(report, console)
    _print_notes(report, console)


def _print_mean(report: dict[str, Any], console: Console) -> None:
    """The split averaged over ranks and steps, in words."""
    _print_title(summary.over_what(report), console)
    _print_split(report, console)
    if line := summary.bubble(report):
        console.print(Text(f"bubble by stage: {line}"))


def _print_split(report: dict[str, Any], console: Console) -> None:
    rows = [
        (
            line.label,
            format_ns(line.ns),
            "" if line.whole == "" else share_of(line.share, line.whole or of_what(report)),
        )
        for line in summary.mean_lines(report)
    ]
    if console.width < _MEAN_FITS:
        for label, time, share in rows:
            indent = " " * (len(label) - len(label.lstrip()))
            text = ", ".join(filter(None, (f"{label.strip()}: {time}", share)))
            console.print(Padding(Text(text), (0, 0, 0, len(indent))))
        return
    labels, times = (max(len(row[at]) for row in rows) for at in (0, 1))
    for label, time, share in rows:
        # Shares are aligned at the word "of".
        console.print(Text(f"{label:<{labels}} {time:>{times}} {share:>{len(share) + _early(share)}}".rstrip()))


def _early(share: str) -> int:
    """Blanks that bring a share to the width of ``100.0 %``."""
    return max(len("00.0 %") - len(share.partition(" of ")[0]), 0) if share else 0


def _print_title(text: str, console: Console) -> None:
    console.print()
    console.print(Text(text, style="italic"))


def _print_findings(report: dict[str, Any], found: list[summary.Advice], console: Console) -> None:
    """Time, what it is, and below it what to change."""
    _print_title(summary.findings_title(report), console)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for finding in found:
        text = Text(finding.title, style="bold")
        text.append(f" ({finding.share})", style="not bold")
        if finding.advice:
            text.append(f"\n{finding.advice}", style="not bold")
        table.add_row(str(finding.number), finding.time, text)
    console.print(table)
    if line := left_out(report, len(found), "in the report"):
        console.print(Text(line, style="dim"))


def _print_late(report: dict[str, Any], console: Console) -> None:
    rows = summary.late(report)
    if not rows:
        return
    console.print()
    per = summary.per_what(report)
    for row in rows:
        charge = f"charged with {row['charged']} {per}, which each of the others waits on average"
        text = f"Late {row['kind']}: {row['name']}, {row['cause']}; {charge}; {row['last']}"
        if row["chain"]:
            text += f"; chain of waiting: rank {' -> '.join(row['chain'])}"
        console.print(Text(text))
    if line := replay(report):
        console.print(Text(line))


def _print_wait_chain(report: dict[str, Any], console: Console) -> None:
    """The chain, where it goes on from the rank that others waited for: with one link the line of that says it all."""
    chain = wait_chain(report)
    if chain is None or len(chain["links"]) < 2:
        return
    console.print()
    console.print(Text(f"Chain of waiting in {chain['step']}, the step in which late ranks cost most", style="italic"))
    for link in chain["links"]:
        console.print(Text(f"{link['waits']}; {link['because']}" if link["because"] else link["waits"]))
    console.print(Text(chain["end"]))


def _print_causes(report: dict[str, Any], console: Console) -> None:
    """Cause, time and what the cause means."""
    for what, rows in (("Why communication is exposed", summary.causes(report)), summary.idle_causes(report)):
        if rows:
            _print_title(summary.causes_title(report, what), console)
            _print_cause_rows(rows, console)


def _print_cause_rows(rows: list[dict[str, Any]], console: Console) -> None:
    table = _table()
    table.show_header = False
    table.add_column(no_wrap=console.width >= _MEAN_FITS, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["exposed"] if "exposed" in row else row["time"], row["meaning"] or "")
    console.print(table)


def _print_ranks(report: dict[str, Any], console: Console) -> None:
    """The split of each rank; on a narrow console only what tells ranks apart."""
    if len(report["ranks"]) < 2:
        return
    of = of_what(report)
    rows, rule = summary.telling_ranks(report, _MOST_RANKS)
    several = len({(row["rank"], row["device"]) for row in report["ranks"]}) > len(
        {row["rank"] for row in report["ranks"]}
    )
    percent = "% of\n" + of.replace(" ", "\n")
    copies = summary.copies_tell([row["mean"] for row in rows])
    wide = console.width >= _RANKS_FIT + 7 * several
    heads = [
        ("rank", True), *([("device", True)] if several else []), (of.removesuffix(" time"), True), ("compute", wide),
        ("comm", wide), ("exposed", True), (percent, True), ("copies", wide and copies), ("idle", True),
        (percent, wide), ("hidden\n% of\ncomm", wide),
    ]  # fmt: skip
    table = _table()
    for name, shown in heads:
        if shown:
            table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        mean = row["mean"]
        cells = [
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
        ]
        table.add_row(*(cell for cell, (_, shown) in zip(cells, heads, strict=True) if shown))
    _print_title("By rank" if of == "window" else "By rank, mean per step", console)
    console.print(table)
    if rule:
        console.print(Text(rule, style="dim"))


def _table() -> Table:
    """A table without lines."""
    return Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")


def _print_groups(report: dict[str, Any], console: Console) -> None:
    """Each operation of each kind of group; on a narrow console its exposed time alone."""
    kinds = summary.kinds(report["groups"] or [])
    if not kinds:
        return
    wide = console.width >= _GROUPS_FIT
    waits = wide and any(row.get("exposed_wait_ns") is not None for row in report["groups"])
    speed = wide and any(row.get("busbw_gbps_median") is not None for row in report["groups"])
    cut = " " if console.width >= _HEADS_FIT else "\n"
    heads = [
        ("ranks", wide), ("calls", wide), ("bytes", wide), ("exposed", True),
        (f"of it{cut}waiting", waits), (f"bus{cut}bandwidth", speed),
    ]  # fmt: skip
    table = _table()
    table.add_column("operation", no_wrap=True)
    table.add_column("group", overflow="fold")
    for name, shown in heads:
        if shown:
            table.add_column(name, justify="right", no_wrap=True)
    for rows in kinds[:_MOST_GROUPS]:
        calls, unsized = (sum(row[key] for row in rows) for key in ("calls", "calls_without_size"))
        size = (
            "n/a" if unsized == calls else format_bytes(sum(row["bytes"] for row in rows)) + (" *" if unsized else "")
        )
        # Only exposed waiting: what compute hides costs nothing, and would not fit beside the column before.
        waited = [row["exposed_wait_ns"] for row in rows if row.get("exposed_wait_ns") is not None]
        cells = [
            str(rows[0]["group_size"] or "n/a"),
            f"{calls:,}",
            size,
            format_ns(sum(row["exposed_ns"] for row in rows)),
            format_ns(sum(waited) if waited else None),
            _bandwidth([v for row in rows if (v := row.get("busbw_gbps_median")) is not None]),
        ]
        table.add_row(
            rows[0]["op"].replace("_", "-"),
            Text(summary.group_name(rows, brief=True)),
            *(cell for cell, (_, shown) in zip(cells, heads, strict=True) if shown),
        )
    _print_title("By process group and operation: whole capture, all ranks", console)
    console.print(table)
    hidden = len(kinds) - _MOST_GROUPS
    if hidden > 0:
        console.print(Text(f"and {hidden} more in the report", style="dim"))


def _bandwidth(values: list[float]) -> str:
    if not values:
        return "n/a"
    low, high = format_gbps(min(values)), format_gbps(max(values))
    return low if low == high else f"{low.removesuffix(' GB/s')} to {high}"


def _print_notes(report: dict[str, Any], console: Console) -> None:
    # Who is late without costing anything stands above, in one line for all; so do ranks that are missing beside a
    # single one, and a run without communication.
    told = ("missing-ranks",) if len(report["input"]["ranks"]) == 1 else ()
    notes = summary.notes(report, without=("waits-cost-nothing", "no-communication", *told))
    if not notes:
        return
    console.print()
    console.print(Text("Notes", style="bold"))
    for note in notes[:_MOST_NOTES]:
        console.print(Padding(Text(note), (0, 0, 0, 2)))
    if len(notes) > _MOST_NOTES:
        console.print(Padding(Text(f"and {len(notes) - _MOST_NOTES} more in the report"), (0, 0, 0, 2)))
