"""The findings of two reports side by side: which is the same, what it cost before and now, and whom it names."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from typing import Any

from commprof.report.causes import late_word
from commprof.report.charts.wording import clean, rank_ranges

Json = dict[str, Any]

_NAMES_RANKS = ("straggler", "slow-link", "low-bandwidth", "network-intermittent")
"""Findings about certain ranks; those of any other say only on which rank they were seen."""
_NUMBERS = re.compile(r"[\d.,]+(?: (?:ns|µs|ms|s|%))?")


def finding_rows(base: Json, new: Json) -> list[Json]:
    """What costs time in either run, the largest first: ``{"id", "title", "status", "base_ns", "new_ns", ...}``.

    Entries that state no cost in either run (``info``) are no findings that come or go.
    """
    rows = [
        _row(one, other)
        for one, other in _pairs(base["findings"] or [], new["findings"] or [])
        if any(side is not None and side["severity"] != "info" for side in (one, other))
    ]
    return sorted(rows, key=lambda row: -max(row["base_ns"] or 0, row["new_ns"] or 0))


def _pairs(base: list[Json], new: list[Json]) -> Iterator[tuple[Json | None, Json | None]]:
    """Findings of one id with each other: those alike in cause and ranks first, then in cause, then the rest in order.

    What has no partner stands alone.
    """
    partner: dict[int, Json] = {}
    taken: set[int] = set()
    for key in (_alike, _same_cause, _same_id):
        waiting: dict[Hashable, list[Json]] = {}
        for row in new:
            if id(row) not in taken:
                waiting.setdefault(key(row), []).append(row)
        for row in base:
            if id(row) not in partner and (found := waiting.get(key(row))):
                partner[id(row)] = found.pop(0)
                taken.add(id(partner[id(row)]))
    for row in base:
        yield row, partner.get(id(row))
    for row in new:
        if id(row) not in taken:
            yield None, row


def _alike(row: Json) -> Hashable:
    return row["id"], row["cause"], _ranks(row)


def _same_cause(row: Json) -> Hashable:
    return row["id"], row["cause"]


def _same_id(row: Json) -> Hashable:
    return (row["id"],)


def _ranks(row: Json) -> tuple[int, ...]:
    """The ranks that a finding is about, none where any rank would show it."""
    return tuple(row["ranks"]) if row["id"] in _NAMES_RANKS else ()


def _row(one: Json | None, other: Json | None) -> Json:
    shown = other or one or {}
    return {
        "id": shown["id"],
        "title": shown["title"],
        "status": "gone" if other is None else "new" if one is None else "in both",
        "changed": None if one is None or other is None else _changed(one, other),
        "base_ns": _cost(one),
        "new_ns": _cost(other),
        "base_severity": one["severity"] if one else None,
        "new_severity": other["severity"] if other else None,
    }


def _cost(row: Json | None) -> int | None:
    """The time that the reports show with a finding: what could come back, where that is not known what it costs."""
    if row is None:
        return None
    cost: int | None = row["charged_ns"] if row["recoverable_ns"] is None else row["recoverable_ns"]
    return cost


def _changed(one: Json, other: Json) -> str | None:
    """What is not the same in both, where it is more than a number; ``None`` if nothing is."""
    parts = []
    if _ranks(one) != _ranks(other):
        parts.append(f"now {_who(other)}, was {_who(one)}")
    if one["id"] == "straggler" and _cause(one) != _cause(other):
        parts.append(f"cause now {_cause(other)}, was {_cause(one)}")
    if not parts and _core(one["title"]) != _core(other["title"]):
        parts.append(f"was: {one['title']}")
    return "; ".join(parts) or None


def _who(row: Json) -> str:
    ranks = row["ranks"]
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {rank_ranges(ranks)}" if ranks else "no single rank"


def _cause(row: Json) -> str:
    known = late_word(row["cause"], row.get("or_cause"))
    return known.name if known else clean(row["cause"], 40)


def _core(title: str) -> str:
    """A title without its figures."""
    return _NUMBERS.sub("", title)
