"""What is known about the call that a device event belongs to: from metadata, operator, ranges around it and name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter

import numpy as np

from commprof.intervals import Int64Array
from commprof.trace.arguments import CallFacts, from_dims, from_metadata, number
from commprof.trace.classify import Classification, call_operators
from commprof.trace.coalesced import Coalesced
from commprof.trace.events import Args
from commprof.trace.kernel_names import rule_for
from commprof.trace.links import NONE, index_spans, thread_keys
from commprof.trace.model import NO_ID, NOT_LAUNCHED, CpuSpans, RankTrace
from commprof.trace.operations import operation_of

# Everything that decides the facts but the number of the call, which no two calls share.
_WHAT = attrgetter(
    "collective", "in_nelems", "out_nelems", "in_nelems_2023", "out_nelems_2023", "in_split", "out_split", "dtype",
    "group_size", "group_name", "group_number", "group_description", "group_ranks", "rank", "source_rank",
    "destination_rank",
)  # fmt: skip


class Describer:
    """Finds the facts of calls; calls that are alike share one entry of :attr:`facts`.

    ``noted`` are the facts of rows that a CUDA graph replayed.
    ``issued`` and ``thread`` say for every device row when and where the CPU enqueued it (``NOT_LAUNCHED``: unknown).
    """

    def __init__(
        self,
        rank: RankTrace,
        kinds: Classification,
        coalesced: Coalesced,
        issued: Int64Array,
        thread: Int64Array,
        noted: Mapping[int, CallFacts],
    ) -> None:
        self.facts: list[CallFacts] = []
        self._place: dict[object, int] = {}
        self._rank = rank
        self._kinds = kinds
        self._coalesced = coalesced
        self._issued, self._thread = issued, thread
        self._noted = noted
        self._around: list[tuple[Int64Array, CpuSpans]] | None = None
        self._in_barriers = _calls_in_barriers(rank)

    def call(self, row: int) -> tuple[int, str, int, bool]:
        """Place of the facts of a device row's call, where they come from, its number, and whether metadata told."""
        rank = self._rank
        own = rank.device.args.get(row)
        if own is not None and own.collective is None:
            own = None
        operator = int(self._kinds.operator[row])
        told = None if operator == NONE else rank.operators.args.get(operator)
        if told is not None and told.collective is None:
            told = None
        if own is not None or told is not None:
            place, source, sequence, known = self._from_metadata(own, told)
            if operator in self._in_barriers:
                facts = replace(self.facts[place], operation="barrier", elements_in=None, elements_out=None)
                place = self._placed(("barrier", place), facts)
            return place, source, sequence, known
        noted = self._noted.get(row)
        if noted is not None:
            return self._placed(noted, noted), "annotation", NO_ID, True
        batch = self._coalesced.facts.get(row)
        if batch is not None:
            return self._placed(batch, batch), "link", NO_ID if batch.sequence is None else batch.sequence, True
        if row in self._kinds.ranges:
            facts = CallFacts(self._operation_of_range(row))
            return self._placed(facts, facts), "annotation", NO_ID, False
        rule = rule_for(rank.names[rank.device.name[row]])
        around = self._from_cpu(row)
        if around is not None:
            return self._named(around, rule[1] if rule else "unknown"), "annotation", NO_ID, False
        if self._kinds.by_pattern[row]:
            facts, source = CallFacts(operation_of(rank.names[rank.device.name[row]])), "pattern"
        elif operator != NONE and rule is None:
            facts, source = CallFacts("unknown"), "link"
        else:
            facts, source = CallFacts(rule[1] if rule else "unknown"), "name"
        return self._placed(facts, facts), source, NO_ID, False

    def _named(self, place: int, operation: str) -> int:
        """The facts at a place; their operation is the kernel's where they have none, as ``nccl:coalesced`` has."""
        if self.facts[place].operation != "unknown" or operation == "unknown":
            return place
        return self._placed(("named", place, operation), replace(self.facts[place], operation=operation))

    def _from_metadata(self, own: Args | None, told: Args | None) -> tuple[int, str, int, bool]:
        key = (own and _WHAT(own), told and _WHAT(told))
        try:
            place = self._place.get(key)
        except TypeError:  # a list or an object where a word or number belongs
            key = repr(key)  # type: ignore[assignment]
            place = self._place.get(key)
        if place is None:
            facts = [from_metadata(args) for args in (own, told) if args is not None]
            # Some of it stands on the operator alone, such as the root of a broadcast.
            place = self._placed(key, completed(facts[0], facts[-1]))
        sequence = None
        for args in (own, told):
            if args is not None and sequence is None:
                sequence = number(args.sequence)
        return place, "metadata" if own is not None else "link", NO_ID if sequence is None else sequence, True

    def _operation_of_range(self, row: int) -> str:
        """Of the range of symmetric memory that a peer copy belongs to, such as ``fused_all_gather_matmul``."""
        number, span = self._kinds.ranges[row]
        table = (self._rank.operators, self._rank.annotations)[number]
        return operation_of(self._rank.names[table.name[span]])

    def _placed(self, key: object, facts: CallFacts) -> int:
        place = self._place.get(key)
        if place is None:
            place = self._place[key] = len(self.facts)
            self.facts.append(facts)
        return place

    def _from_cpu(self, row: int) -> int | None:
        """From the ``nccl:*`` annotation around the launch, completed by the ``c10d::*`` operator around both."""
        if self._issued[row] == NOT_LAUNCHED:
            return None
        if self._around is None:
            rank = self._rank
            self._around = [
                (self._spans(rank.annotations, ("nccl:", "xccl:")), rank.annotations),
                (self._spans(rank.operators, ("c10d::",)), rank.operators),
            ]
        told = []
        for spans, table in self._around:
            span = int(spans[row])
            args = table.args.get(span)
            if args is not None:
                told.append((self._rank.names[table.name[span]], args))
        if not told:
            return None
        key = tuple((name, bytes(args.dims), bytes(args.types), bytes(args.concrete)) for name, args in told)
        place = self._place.get(key)
        if place is None:
            facts = [from_dims(name, args) for name, args in told]
            place = self._placed(key, completed(facts[0], facts[-1]))
        return place

    def _spans(self, table: CpuSpans, prefixes: tuple[str, ...]) -> Int64Array:
        """For every device row the innermost span of such a name that it was enqueued in."""
        codes = [code for code, name in enumerate(self._rank.names) if name.startswith(prefixes)]
        index = index_spans(table, np.flatnonzero(np.isin(table.name, codes)))
        out = np.full(len(self._issued), NONE, np.int64)
        rows = np.flatnonzero(self._issued != NOT_LAUNCHED)
        out[rows] = index.innermost(self._thread[rows], self._issued[rows])
        return out


def _calls_in_barriers(rank: RankTrace) -> set[int]:
    """Rows of the calls that a barrier makes: NCCL has none of its own, so that it is an all-reduce of one element."""
    table = rank.operators
    barriers = [row for row, args in table.args.items() if args.collective == "barrier"]
    codes = [code for code, name in enumerate(rank.names) if name == "c10d::barrier"]
    barriers += np.flatnonzero(np.isin(table.name, codes)).tolist()
    if not barriers:
        return set()
    calls = call_operators(rank)
    around = index_spans(table, np.array(sorted(set(barriers)), np.int64))
    inside = around.innermost(thread_keys(table.pid[calls], table.tid[calls]), table.start[calls])
    return set(calls[inside != NONE].tolist())


_FIELDS = tuple(name for name in CallFacts.__dataclass_fields__ if name not in ("operation", "parts"))


def completed(facts: CallFacts, other: CallFacts) -> CallFacts:
    """What the first does not say, from the other, as long as both speak of one operation."""
    if facts is other:
        return facts
    if facts.operation == "unknown":
        return other
    if other.operation not in (facts.operation, "unknown"):
        return facts
    missing = {
        name: getattr(other, name)
        for name in _FIELDS
        if getattr(facts, name) in (None, 0) and getattr(other, name) is not None
    }
    return replace(facts, **missing) if missing else facts
