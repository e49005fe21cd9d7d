"""Decoded events to columns, batch by batch; the only place where the shape of an event meets that of a table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.batch import Batch
from commprof.trace.categories import Table, TableByCategory
from commprof.trace.events import (
    NO_ARGS,
    Args,
    Complete,
    ExactComplete,
    FullComplete,
    SlimArgs,
    SlimComplete,
    exact_decoder,
)
from commprof.trace.interning import Ids, Names, integers
from commprof.trace.model import NO_ID, CpuSpans, DeviceEvents, RuntimeCalls
from commprof.trace.packing import Packed, joined, merged, packed
from commprof.trace.timestamps import MISSING, NOT_FINITE, exact_to_ns, floats_to_ns, is_large, to_ns

_LONGEST_NS = 1 << 53
"""104 days: no event of a trace is longer, and a thousand such still have a sum."""

_LATEST_NS = (1 << 61) + (1 << 60)
"""Year 2079 as Unix time; the distance of two times with one such base still fits."""


_FRESH_ROWS = 1 << 15
"""Rows of a table that wait as they came, in many short arrays, before they are packed into few."""

_Event = Complete | FullComplete | SlimComplete
_PID, _TID = attrgetter("pid"), attrgetter("tid")


@dataclass(slots=True)
class Chunk:
    """Columns of a part of a file, made in another process; names and rows are numbered on their own."""

    events: int
    names: list[str]
    columns: dict[Table, dict[str, Packed]]
    rows: dict[Table, int]
    args: dict[Table, dict[int, Args]]
    skipped: Counter[str]
    ignored: int


@dataclass(frozen=True, slots=True)
class Keep:
    """Which rows of a trace of a device are kept: the memory of a large file goes into rows that nobody asks for.

    Operators whose name matches, or that touch one called ``around``; runtime calls whose name matches, or that
    launched device work. Everything is kept of a trace without a device, and of one with copies between devices,
    where any operator may matter.
    """

    operators: re.Pattern[str]
    around: str
    calls: re.Pattern[str]


class Columns:
    """Collects the complete events of one file into the tables of :mod:`commprof.trace.model`."""

    def __init__(self) -> None:
        self.names = Names()
        self.skipped: Counter[str] = Counter()
        self.repaired: Counter[str] = Counter()
        self.ignored = 0
        self._tables = TableByCategory()
        self._ids = Ids()
        self._columns: dict[Table, dict[str, list[Packed]]] = defaultdict(lambda: defaultdict(list))
        self._fresh: dict[Table, dict[str, list[NDArray[Any]]]] = defaultdict(lambda: defaultdict(list))
        self._fresh_rows: Counter[Table] = Counter()
        self._rows: Counter[Table] = Counter()
        self._args: dict[Table, dict[int, Args]] = defaultdict(dict)

    def add(self, batch: Batch) -> None:
        """Append the complete events of one batch."""
        events = batch.complete()
        if not events:
            self.repaired.update(batch.faults.values())
            return
        start, duration = _times(events, batch)
        usable = self._check(start, duration, batch)
        tables = batch.tables()
        if tables is None:
            tables = self._table_of_each(events)
            self.ignored += int((tables == Table.UNKNOWN).sum())
        # Fills and copies share a table with kernels, in file order: what counts is that they occupy the device.
        is_copy = tables == Table.COPY
        tables[is_copy] = Table.KERNEL
        for table in (Table.OPERATOR, Table.RUNTIME, Table.KERNEL, Table.ANNOTATION):
            rows = np.flatnonzero((tables == table) & usable)
            if len(rows):
                chosen = [events[row] for row in rows.tolist()]
                columns, args = self._fresh[table], _args_of(chosen, batch)
                columns["start"].append(start[rows])
                columns["duration"].append(duration[rows])
                if table is Table.KERNEL:
                    columns["is_copy_row"].append(is_copy[rows])
                describing = self._append(table, chosen, args)
                self._keep_args(table, batch, rows, [i for i in describing if chosen[i].args is not None])
                self._fresh_rows[table] += len(rows)
                if self._fresh_rows[table] >= _FRESH_ROWS:
                    self._settle(table)

    def _settle(self, *tables: Table) -> None:
        """Pack the rows that came last."""
        for table in tables or tuple(self._fresh):
            columns = self._columns[table]
            for name, parts in self._fresh.pop(table, {}).items():
                columns[name].append(packed(np.concatenate(parts)))
            self._fresh_rows[table] = 0

    def _check(self, start: Int64Array, duration: Int64Array, batch: Batch) -> NDArray[np.bool_]:
        """Which events have usable times; the others are counted by reason, each once."""
        usable = np.ones(len(start), np.bool_)
        if start.min() > 0 and start.max() <= _LATEST_NS and 0 <= duration.min() <= duration.max() <= _LONGEST_NS:
            if batch.faults:
                self._count_repairs(batch, usable)
            return usable
        for reason, bad in (
            ("non_finite", (start == NOT_FINITE) | (duration == NOT_FINITE) | _beyond_measure(start, duration)),
            ("bad_event", start == MISSING),
            ("no_duration", duration == MISSING),
            ("negative_duration", duration < 0),
            ("zero_timestamp", (start == 0) & (duration == 0)),
        ):
            fresh = bad & usable
            if fresh.any():
                self.skipped[reason] += int(fresh.sum())
                usable &= ~fresh
        if batch.faults:
            self._count_repairs(batch, usable)
        return usable

    def _count_repairs(self, batch: Batch, usable: NDArray[np.bool_]) -> None:
        """Count repairs of events that are kept: one that is skipped is counted there and not twice."""
        position = -1
        for index, event in enumerate(batch.events):
            complete = type(event) is Complete  # a batch with faults was decoded event by event
            position += complete
            fault = batch.faults.get(index)
            if fault is not None and not (complete and not usable[position]):
                self.repaired[fault] += 1

    def _table_of_each(self, events: Sequence[_Event]) -> NDArray[np.int8]:
        categories = [event.cat for event in events]
        try:
            return np.fromiter(map(self._tables.__getitem__, categories), np.int8, len(categories))
        except TypeError:  # an unhashable category
            return np.array([self._tables[c if isinstance(c, str) else None] for c in categories], np.int8)

    def _append(self, table: Table, events: Sequence[_Event], args: list[Any]) -> list[int]:
        """Append all columns but the times; returns the places of the events whose arguments are to be kept."""
        columns = self._fresh[table]
        names = self.names.encode([event.name for event in events])
        columns["name"].append(names)
        columns["external_id"].append(_external_ids(args))
        if table is Table.KERNEL:
            columns["correlation"].append(_numbers([a.correlation for a in args]))
            columns["device"].append(self._or_else([a.device for a in args], events, _PID))
            columns["stream"].append(self._or_else([a.stream for a in args], events, _TID))
            columns["graph_node"].append(_numbers([a.graph_node or 0 for a in args]))
            columns["blocks"].append(_blocks([a.grid for a in args]))
            return [
                i
                for i, a in enumerate(args)
                if a.collective is not None
                or a.in_nelems is not None
                or a.group_name is not None
                or a.in_nelems_2023 is not None
            ]
        columns["pid"].append(self._ids.encode([event.pid for event in events]))
        columns["tid"].append(self._ids.encode([event.tid for event in events]))
        if table is Table.RUNTIME:
            columns["correlation"].append(_numbers([a.correlation for a in args]))
            return []
        return np.flatnonzero(self.names.speaks(names)).tolist()

    def _or_else(self, values: list[Any], events: Sequence[_Event], fallback: Callable[[_Event], Any]) -> Int64Array:
        """The values as ids, and where there is none (``None``) that of the event."""
        if None not in values:
            return self._ids.encode(values)
        return self._ids.encode(
            [fallback(event) if value is None else value for value, event in zip(values, events, strict=True)]
        )

    def _keep_args(self, table: Table, batch: Batch, rows: NDArray[np.intp], wanted: list[int]) -> None:
        """Keep the arguments of some of the rows that were just appended; ``rows`` are their places in the batch."""
        kept, first = self._args[table], self._rows[table]
        self._rows[table] += len(rows)
        if wanted:
            for index, args in zip(wanted, batch.all_args(rows[wanted].tolist()), strict=True):
                kept[first + index] = args

    def device(self) -> DeviceEvents:
        """The finished table of device work."""
        get = self._column(Table.KERNEL)
        start = get("start")
        return DeviceEvents(
            get("name", np.int32), start, start + get("duration"), get("device"), get("stream"), get("correlation"),
            get("external_id"), get("blocks"), get("is_copy_row", np.bool_), get("graph_node"),
            self._args[Table.KERNEL],
        )  # fmt: skip

    def runtime(self) -> RuntimeCalls:
        """The finished table of runtime calls."""
        get = self._column(Table.RUNTIME)
        start = get("start")
        return RuntimeCalls(
            get("name", np.int32), start, start + get("duration"), get("pid"), get("tid"), get("correlation"),
            get("external_id"),
        )  # fmt: skip

    def spans(self, table: Table) -> CpuSpans:
        """The finished table of operators or annotations."""
        get = self._column(table)
        start = get("start")
        return CpuSpans(
            get("name", np.int32), start, start + get("duration"), get("pid"), get("tid"), get("external_id"),
            self._args[table],
        )  # fmt: skip

    def chunk(self, events: int) -> Chunk:
        """Everything collected so far, to be merged into the columns of the whole file."""
        self._settle()
        columns = {
            table: {name: merged(parts) for name, parts in columns.items()} for table, columns in self._columns.items()
        }
        return Chunk(events, list(self.names), columns, dict(self._rows), dict(self._args), self.skipped, self.ignored)

    def merge(self, chunk: Chunk) -> None:
        """Append what another process collected from the text that follows."""
        self._settle()
        code_of = self.names.encode(chunk.names)
        for table, columns in chunk.columns.items():
            mine = self._columns[table]
            for name, values in columns.items():
                mine[name].append(packed(code_of[values.wide()]) if name == "name" else values)
            first = self._rows[table]
            self._args[table].update({first + row: args for row, args in chunk.args.get(table, {}).items()})
            self._rows[table] += chunk.rows[table]
        self.skipped += chunk.skipped
        self.ignored += chunk.ignored

    def prune(self, keep: Keep) -> None:
        """Let go of the rows that nobody will ask for; to be called when all events are in."""
        self._settle()
        if not self._rows[Table.KERNEL] or self._has_peer_copies():
            return
        names = list(self.names)
        wanted = np.array([keep.operators.search(name) is not None for name in names], np.bool_)
        calls = np.array([keep.calls.search(name) is not None for name in names], np.bool_)
        launched = np.unique(joined(self._columns[Table.KERNEL]["correlation"], np.int64))
        around = self._spans_named(Table.OPERATOR, self.names.get(keep.around, -1))
        operators, runtime = self._columns[Table.OPERATOR], self._columns[Table.RUNTIME]
        self._filter(
            Table.OPERATOR,
            [
                wanted[name.wide()] | around.touches(start.wide(), start.wide() + duration.wide())
                for name, start, duration in zip(
                    operators["name"], operators["start"], operators["duration"], strict=True
                )
            ],
        )
        self._filter(
            Table.RUNTIME,
            [
                calls[name.wide()] | _is_among(correlation.wide(), launched)
                for name, correlation in zip(runtime["name"], runtime["correlation"], strict=True)
            ],
        )

    def _has_peer_copies(self) -> bool:
        peers = [code for name, code in self.names.items() if "ptop" in name.lower().replace(" ", "")]
        return any(np.isin(part.wide(), peers).any() for part in self._columns[Table.KERNEL]["name"])

    def _spans_named(self, table: Table, code: int) -> IntervalSet:
        columns = self._columns[table]
        spans = [
            (name.wide() == code, start.wide(), duration.wide())
            for name, start, duration in zip(columns["name"], columns["start"], columns["duration"], strict=True)
        ]
        parts = [(start[rows], (start + duration)[rows]) for rows, start, duration in spans]
        if not parts:
            return empty()
        starts, ends = (np.concatenate(side) for side in zip(*parts, strict=True))
        # One longer, so that a span without length still meets what lies at the same instant.
        return union(starts, ends + 1)

    def _filter(self, table: Table, masks: list[NDArray[np.bool_]]) -> None:
        columns, args = self._columns[table], self._args[table]
        if not masks:
            return
        mask = np.concatenate(masks)
        place = np.cumsum(mask) - 1
        self._args[table] = {int(place[row]): value for row, value in args.items() if mask[row]}
        for parts in columns.values():
            for index, keep in enumerate(masks):
                parts[index] = packed(parts[index].wide()[keep])
        self._rows[table] = int(mask.sum())

    def _column(self, table: Table) -> Callable[..., NDArray[Any]]:
        self._settle()
        columns = self._columns[table]

        def get(name: str, dtype: type[np.generic] = np.int64) -> NDArray[Any]:
            return joined(columns.pop(name, []), dtype)

        return get


def _beyond_measure(start: Int64Array, duration: Int64Array) -> NDArray[np.bool_]:
    """Times so far out that spans or sums of them would leave 64 bits: as good as infinite."""
    beyond: NDArray[np.bool_] = (start < -_LATEST_NS) & (start != MISSING)
    return (duration > _LONGEST_NS) | beyond | (start > _LATEST_NS)


def _times(events: Sequence[_Event], batch: Batch) -> tuple[Int64Array, Int64Array]:
    starts, durations = [event.ts for event in events], [event.dur for event in events]
    if batch.codes is not None:
        (start, inexact_start), (duration, inexact_duration) = floats_to_ns(starts), floats_to_ns(durations)
    else:
        (start, inexact_start), (duration, inexact_duration) = to_ns(starts), to_ns(durations)
    if inexact_start or inexact_duration:
        texts = [event for event in exact_decoder.decode(batch.text) if type(event) is ExactComplete]
        # Only what a double cannot hold is read again, so that a time never depends on its neighbours in the batch.
        if inexact_start:
            start = np.where(is_large(start, starts), exact_to_ns([_text(event.ts) for event in texts]), start)
        if inexact_duration:
            duration = np.where(
                is_large(duration, durations), exact_to_ns([_text(event.dur) for event in texts]), duration
            )
    return start, duration


def _args_of(events: Sequence[_Event], batch: Batch) -> list[Any]:
    if batch.codes is not None:
        return [event.args for event in events]
    return [NO_ARGS if event.args is None else event.args for event in events]


def _text(value: Any) -> bytes | None:
    if value is msgspec.UNSET:
        return None
    text = bytes(value)
    return None if text == b"null" else text.strip(b'"')


def _is_among(values: NDArray[Any], members: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each value is one of the sorted members; ``np.isin`` would make a table of their range each time."""
    if not len(members):
        return np.zeros(len(values), np.bool_)
    place = np.minimum(np.searchsorted(members, values), len(members) - 1)
    found: NDArray[np.bool_] = members[place] == values
    return found


def _numbers(values: list[Any]) -> Int64Array:
    """Integers as they are, anything else as :data:`NO_ID`."""
    found = integers(values)
    if found is not None:
        return found
    numbers = [v if isinstance(v, int) and -1 << 63 <= v < 1 << 63 else NO_ID for v in map(_as_number, values)]
    return np.array(numbers, np.int64)


def _as_number(value: Any) -> Any:
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.strip().isdigit():
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _external_ids(args: list[Args] | list[SlimArgs]) -> Int64Array:
    ids = _numbers([a.external_id for a in args])
    if (ids == NO_ID).any():
        older = _numbers([a.external_id_2021 for a in args])
        ids = np.where(ids == NO_ID, older, ids)
    return ids


def _blocks(grids: list[Any]) -> Int64Array:
    """Thread blocks of each launch, the product of its grid; -1 where it is not given."""
    given = [row for row, grid in enumerate(grids) if grid is not None]
    try:
        products = integers([x * y * z for x, y, z in map(grids.__getitem__, given)])
    except (TypeError, ValueError):
        products = None
    if products is None or not 0 <= products.min(initial=0) <= products.max(initial=0) < 1 << 62:
        return np.array([_product(grid) for grid in grids], np.int64)
    blocks = np.full(len(grids), -1, np.int64)
    blocks[given] = products
    return blocks


def _product(grid: Any) -> int:
    if isinstance(grid, list | tuple) and grid and all(isinstance(side, int) for side in grid):
        product = 1
        for side in grid:
            product *= side
        return product if 0 <= product < 1 << 62 else -1
    return -1
