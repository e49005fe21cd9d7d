"""The table of calls from what was found out about each: sizes, groups, peers and types as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array
from commprof.trace.arguments import CallFacts
from commprof.trace.group_table import GroupTable
from commprof.trace.model import NO_ID, NOT_LAUNCHED, SOURCES, UNKNOWN_SIZE, Calls, RankTrace
from commprof.trace.operations import OPERATIONS, element_bytes, standard_dtype


@dataclass(slots=True)
class Drafts:
    """Calls before they are a table, in order of their first kernel; columns have one entry per call.

    ``fact`` is the place of a call's facts in ``facts``, which calls that are alike share. ``kernel_start`` and
    ``kernel_end`` hold the kernels of all calls, call by call, ``kernels`` how many each has.
    """

    facts: list[CallFacts]
    fact: Int64Array
    source: NDArray[np.int8]
    sequence: Int64Array
    with_metadata: NDArray[np.bool_]
    device: Int64Array
    stream: Int64Array
    channels: Int64Array
    launched: Int64Array
    issued: Int64Array
    thread: Int64Array
    copy_engine: NDArray[np.bool_]
    sync: NDArray[np.bool_]
    fused: NDArray[np.bool_]
    graph: NDArray[np.bool_]
    kernels: Int64Array
    kernel_start: Int64Array
    kernel_end: Int64Array


@dataclass(slots=True)
class Call:
    """One call while it is put together: its facts, where they came from, and its pieces."""

    facts: CallFacts
    source: str
    start: list[int]
    end: list[int]
    device: int = 0
    stream: int = 0
    launched: int = NOT_LAUNCHED
    issued: int = NOT_LAUNCHED
    thread: int = 0
    has_metadata: bool = False


def assemble(calls: list[Call], rank: RankTrace) -> Calls:
    """The table of calls that were found one by one, in order of start, stream and appearance."""
    calls = sorted(calls, key=lambda call: (min(call.start), call.stream))
    nothing = np.zeros(len(calls), np.bool_)

    def column(name: str) -> Int64Array:
        return np.array([getattr(call, name) for call in calls], np.int64)

    return finish(
        Drafts(
            facts=[call.facts for call in calls],
            fact=np.arange(len(calls)),
            source=np.array([SOURCES.index(call.source) for call in calls], np.int8),
            sequence=np.array([NO_ID if s is None else s for s in (call.facts.sequence for call in calls)], np.int64),
            with_metadata=np.array([call.has_metadata for call in calls], np.bool_),
            device=column("device"),
            stream=column("stream"),
            channels=np.full(len(calls), -1, np.int64),
            launched=column("launched"),
            issued=column("issued"),
            thread=column("thread"),
            copy_engine=nothing,
            sync=nothing.copy(),
            fused=nothing.copy(),
            graph=nothing.copy(),
            kernels=np.array([len(call.start) for call in calls], np.int64),
            kernel_start=np.array([start for call in calls for start in call.start], np.int64),
            kernel_end=np.array([end for call in calls for end in call.end], np.int64),
        ),
        rank,
    )


def finish(drafts: Drafts, rank: RankTrace) -> Calls:
    """The table of the drafted calls."""
    details = _Details(rank, drafts.facts)
    fact = drafts.fact
    last = np.cumsum(drafts.kernels)
    first = last - drafts.kernels
    start, end, duration = _spans(drafts, first, last)
    calls = Calls(
        source=drafts.source, sequence=drafts.sequence, start=start, end=end, duration=duration, device=drafts.device,
        stream=drafts.stream, channels=drafts.channels, launched=drafts.launched, issued=drafts.issued,
        thread=drafts.thread, copy_engine=drafts.copy_engine, sync=drafts.sync, fused=drafts.fused,
        graph=drafts.graph, first=first, last=last, kernel_start=drafts.kernel_start, kernel_end=drafts.kernel_end,
        **{name: column[fact] for name, column in details.columns.items()},
    )  # fmt: skip
    calls.groups, calls.dtypes = details.groups.facts, list(details.dtypes)
    for index, place in enumerate(fact.tolist() if details.splits or details.partners else []):
        if place in details.splits:
            calls.splits[index] = details.splits[place]
        if place in details.shortened:
            calls.shortened.add(index)
        if place in details.partners:
            calls.partners[index] = details.partners[place]
    # A barrier does nothing but wait, whatever carries it out.
    calls.sync |= calls.operation == OPERATIONS.index("barrier")
    calls.without_metadata = int((~drafts.with_metadata & ~drafts.fused).sum())
    calls.unknown_dtype = int(details.unknown_dtype[fact].sum())
    return calls


def _spans(drafts: Drafts, first: Int64Array, last: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Start, end and the time with any kernel of each call."""
    if not len(first):
        return first, first.copy(), first.copy()
    start = np.minimum.reduceat(drafts.kernel_start, first)
    end = np.maximum.reduceat(drafts.kernel_end, first)
    duration = end - start
    for call in np.flatnonzero(drafts.kernels > 1).tolist():
        # Kernels stand in order of start: what no kernel covers lies between one start and the ends before it.
        begins, ends = drafts.kernel_start[first[call] : last[call]], drafts.kernel_end[first[call] : last[call]]
        gaps = begins[1:] - np.maximum.accumulate(ends)[:-1]
        duration[call] -= int(np.maximum(gaps, 0).sum())
    return start, end, duration


class _Details:
    """Everything that calls with the same facts share, as columns over the distinct facts."""

    def __init__(self, rank: RankTrace, facts: list[CallFacts]) -> None:
        self.groups = GroupTable(rank)
        self.dtypes: dict[str, int] = {}
        self.splits: dict[int, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = {}
        self.shortened: set[int] = set()
        self.partners: dict[int, tuple[tuple[int, int, int], ...]] = {}
        self.unknown_dtype = np.zeros(len(facts), np.int64)
        kinds = {"operation": np.int8, "unequal": np.int8, "group": np.int32, "dtype": np.int32}
        names = ("size_bytes", "group_size", "peer", "root", "sent_bytes", "received_bytes")
        self.columns: dict[str, Any] = {
            name: np.zeros(len(facts), kind) for name, kind in [*kinds.items(), *((name, np.int64) for name in names)]
        }
        for place in sorted(range(len(facts)), key=lambda place: facts[place].group_ranks is None):
            self.columns["group"][place] = self.groups.index(facts[place])
        for place, one in enumerate(facts):
            self._fill(place, one)

    def _fill(self, place: int, facts: CallFacts) -> None:
        columns = self.columns
        group = int(columns["group"][place])
        size = facts.group_size or (self.groups.facts[group].size if group >= 0 else None)
        columns["operation"][place] = OPERATIONS.index(facts.operation)
        name = standard_dtype(facts.dtype)
        columns["dtype"][place] = -1 if name is None else self.dtypes.setdefault(name, len(self.dtypes))
        columns["group_size"][place] = size or -1
        peer = facts.peer if facts.peer is not None else self.groups.member(group, facts.peer_place)
        root = self.groups.member(group, facts.root_place)
        if facts.parts:
            peer = self._batch(place, facts, group, size)
        else:
            message = facts.size_bytes(size)
            columns["size_bytes"][place] = UNKNOWN_SIZE if message is None else message
            self._buffers(place, facts, size)
        columns["peer"][place] = NO_ID if peer is None else peer
        columns["root"][place] = NO_ID if root is None else root
        self.unknown_dtype[place] = any(
            part.dtype is not None and element_bytes(part.dtype) is None for part in facts.parts or (facts,)
        )

    def _buffers(self, place: int, facts: CallFacts, size: int | None) -> None:
        """What the rank gives and gets in bytes, and to whom."""
        width = element_bytes(facts.dtype)
        sent, received = facts.elements_in, facts.elements_out
        if facts.operation == "all_to_all":
            found = facts.exchange(size)
            sent, received = found.sent, found.received
            self.columns["unequal"][place] = found.unequal
            if width is not None and (facts.given is not None or facts.got is not None):
                self.splits[place] = (_scaled(found.sent_to, width), _scaled(found.received_from, width))
            if any(shown is not None and not shown.complete for shown in (facts.given, facts.got)):
                self.shortened.add(place)
        elif facts.operation == "send":
            sent, received = sent or received, 0
        elif facts.operation == "recv":
            sent, received = 0, received or sent
        self.columns["sent_bytes"][place] = UNKNOWN_SIZE if sent is None or width is None else sent * width
        self.columns["received_bytes"][place] = UNKNOWN_SIZE if received is None or width is None else received * width

    def _batch(self, place: int, facts: CallFacts, group: int, size: int | None) -> int | None:
        """A batch of calls: the sums of their bytes; returns the peer if it is the same for all."""
        columns = self.columns
        sizes = {"send": 0, "recv": 0, "other": 0}
        partners: list[tuple[int, int, int]] = []
        for part in facts.parts:
            message = part.size_bytes(size)
            kind = part.operation if part.operation in sizes else "other"
            sizes[kind] = UNKNOWN_SIZE if message is None or sizes[kind] < 0 else sizes[kind] + message
            peer = part.peer if part.peer is not None else self.groups.member(group, part.peer_place)
            told = UNKNOWN_SIZE if message is None else message
            if kind != "other":
                given, got = (told, 0) if kind == "send" else (0, told)
                partners.append((NO_ID if peer is None else peer, given, got))
        if partners:
            self.partners[place] = tuple(partners)
            columns["sent_bytes"][place], columns["received_bytes"][place] = sizes["send"], sizes["recv"]
            # As nccl-tests counts an exchange: the bytes of one direction.
            whole = UNKNOWN_SIZE if min(sizes.values()) < 0 else max(sizes["send"], sizes["recv"])
        else:
            whole = sizes["other"]
            columns["sent_bytes"][place] = columns["received_bytes"][place] = UNKNOWN_SIZE
        columns["size_bytes"][place] = whole
        peers = {peer for peer, _, _ in partners}
        return peers.pop() if len(peers) == 1 and NO_ID not in peers else None


def _scaled(elements: tuple[int, ...] | None, width: int) -> tuple[int, ...] | None:
    return None if elements is None else tuple(width * count for count in elements)
