"""The collectives table: the calls with the most exposed time, as columns that the browser sorts and filters."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from commprof.report.causes import EXPOSED, named
from commprof.report.charts.wording import Json, clean, has_several_devices
from commprof.units import format_bytes, format_gbps, format_ns

MOST_CALLS = 2_000


@dataclass(frozen=True)
class Column:
    """``key`` in a call; ``text`` renders one cell; ``always`` shows the column even where no call has a value.

    A column with ``more`` shows when all columns are asked for.
    """

    key: str
    title: str
    text: Callable[[Any], str]
    number: bool = True
    always: bool = True
    help: str = ""
    more: bool = False


def _name(value: object) -> str:
    return clean(value, 80)


def _step(value: object) -> str:
    return clean(value, 80).removeprefix("ProfilerStep")


def _cause(value: str | None) -> str:
    return named(EXPOSED, value) if value else "n/a"


def _number(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}"


COLUMNS = (
    Column("rank", "Rank", _number),
    Column("device", "Device", _number, always=False),
    Column("step", "Step", _step, number=False),
    Column("op", "Operation", _name, number=False),
    Column("group", "Group", _name, number=False),
    Column("size_bytes", "Size", format_bytes),
    Column("dtype", "Type", _name, number=False),
    Column("start_ns", "Start", format_ns, help="after the earliest device work of any rank"),
    Column("duration_ns", "Duration", format_ns),
    Column("exposed_ns", "Exposed", format_ns, help="no compute ran on the rank meanwhile"),
    Column("wait_ns", "All waiting", format_ns, always=False),
    Column("busbw_gbps", "Bus bandwidth", format_gbps, always=False),
    Column("cause", "Cause", _cause, number=False, always=False),
    Column("flag", "Flag", _name, number=False, always=False),
    Column("phase", "Phase", _name, number=False, always=False, more=True),
    Column("module", "Module", _name, number=False, always=False, more=True),
    Column("bucket", "Bucket", _number, always=False, more=True),
    Column("hidden_ns", "Hidden", format_ns, always=False, help="compute ran on the rank meanwhile", more=True),
    Column("hidden_by", "Hidden by", _name, number=False, always=False, more=True),
    Column("transfer_ns", "Transfer", format_ns, always=False, help="the shortest duration of any member", more=True),
    Column("exposed_wait_ns", "Exposed waiting", format_ns, always=False, more=True),
    Column("last_rank", "Last to arrive", _number, always=False, help="the rank that entered last", more=True),
    Column("skew_ns", "Skew", format_ns, always=False, help="from the first to the last arrival", more=True),
    Column("algbw_gbps", "Bytes over transfer", format_gbps, always=False, help="algorithm bandwidth", more=True),
    Column("stream", "Stream", _number, always=False, more=True),
)


def calls(report: Json) -> Json | None:
    """The table as columns, most exposed first; ``None`` without calls.

    ``{"columns": [{"key", "title", "number", "help", "values", "texts"}], "shown", "total"}``. Number columns carry
    ``values`` to sort by; text columns sort by their texts.
    """
    rows = report["collectives"] or []
    if not rows:
        return None
    total = len(rows)
    top = heapq.nsmallest(MOST_CALLS, rows, key=_rank_of_call)
    several = has_several_devices(report["ranks"])
    columns = []
    for column in COLUMNS:
        values = [row.get(column.key) for row in top]
        if column.key == "device" and not several:
            continue
        if not column.always and all(value is None for value in values):
            continue
        columns.append(
            {
                "key": column.key,
                "title": column.title,
                "number": column.number,
                "help": column.help,
                "more": column.more,
                "values": values if column.number else None,
                "texts": [column.text(value) for value in values],
            }
        )
    return {"columns": columns, "shown": len(top), "total": total}


def _rank_of_call(row: Json) -> tuple[int, int, int]:
    return (-(row["exposed_ns"] or 0), row["start_ns"], row["rank"])
