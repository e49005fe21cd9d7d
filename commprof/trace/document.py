"""A stream of bytes as a trace document: header, batches of events, tail.

The stream is cut where one event ends and the next begins, each batch is decoded by one call of the typed decoder,
and only a batch that fails is looked at closer: it is halved until the faulty piece is small, and that piece goes
through :mod:`commprof.trace.walker` event by event.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from commprof.errors import CannotAnswer, InputRefused, NotATrace
from commprof.trace.batch import Batch, clean_batch
from commprof.trace.events import events_decoder
from commprof.trace.repair import json_object, repair_object
from commprof.trace.walker import Walk, walk_events

if TYPE_CHECKING:
    from commprof.trace.ahead import Ahead
    from commprof.trace.columns import Chunk

_HEAD_LIMIT = 64 << 20
_EVENT_LIMIT = 16 << 20
_WALK_BYTES = 64 << 10
_SNIFFED = 4096
_TAIL_SEARCH = 256 << 10
_SEARCH_BYTES = 16 << 10
BATCH_BYTES = 1 << 20
"""Text that is decoded at once: with its events it stays near the core, and each is looked at ten times."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
_ARRAY_END = re.compile(rb"\}\s*\]")
_GAP = re.compile(rb"[ \t\r\n,]*")


@dataclass(slots=True)
class Document:
    """The framing of one file; after :meth:`batches` is exhausted, the metadata and counts are complete."""

    path: str
    tolerant: bool = False
    metadata: dict[str, Any] = field(default_factory=dict)
    events: int = 0
    bad_events: int = 0
    bad_metadata: int = 0
    truncated: bool = False
    is_list: bool = False
    _begun: bool = False
    _commas: int = 0
    """Commas since the last event: one too many stands for an event that is not there."""

    def batches(self, blocks: Iterator[bytes], ahead: Ahead | None = None) -> Iterator[Batch | Chunk]:
        """Batches of events in file order; with the help of other processes, some of them as columns already.

        Raises :class:`InputRefused` for what is no trace, :class:`CannotAnswer` for a trace without any event.
        """
        stream = Lookahead(blocks)
        buffer = self.read_head(stream)
        tail: bytes | None = None
        if ahead is not None and not self.tolerant:
            buffer, tail = yield from ahead.batches(self, buffer, stream)
        while tail is None:
            buffer = buffer[self._skip(buffer, 0) :]
            if stream.at_end:
                tail = yield from self._last_batches(buffer)
                break
            if cut := last_boundary(buffer):
                consumed, ended = yield from self.decode(buffer, cut)
                buffer = buffer[consumed:]
                tail = buffer if ended else None
            if tail is None:
                self.refuse_endless(buffer)
                buffer += stream.take()
        if tail is not None:
            self._read_tail(tail, stream)
        self._judge()

    def refuse_endless(self, buffer: bytes) -> None:
        """Refuse a text in which no event ends for too long; without a limit it would all be held."""
        if len(buffer) > _EVENT_LIMIT:
            raise InputRefused(
                f"{self.path}: no end of an event within {_EVENT_LIMIT >> 20} MB", hint="is this a trace?"
            )

    def accept(self, text: bytes, events: int) -> None:
        """Take note of a flawless segment that was decoded elsewhere; ``text`` begins with the gap before it."""
        self._skip(text, 0)
        self._close_gap(True)
        self.events += events

    def read_head(self, stream: Lookahead) -> bytes:
        """Consume everything before the first event; returns what follows it."""
        buffer = stream.take() if not stream.at_end else b""
        while len(buffer) < 4 and not stream.at_end:
            buffer += stream.take()
        if not buffer:
            raise NotATrace(f"{self.path}: empty file", hint="capture again")
        buffer = self._check_encoding(buffer)
        first = len(buffer) - len(buffer.lstrip())
        while first == len(buffer) and not stream.at_end:
            buffer = stream.take()
            first = len(buffer) - len(buffer.lstrip())
        root = buffer[first : first + 1]
        if root == b"[":
            self.is_list = True
            return buffer[first + 1 :]
        if not root:
            raise NotATrace(f"{self.path}: empty file", hint="capture again")
        if root != b"{":
            while len(buffer) < _SNIFFED and not stream.at_end:
                buffer += stream.take()
            if _is_tar(buffer):
                raise NotATrace(f"{self.path}: a tar archive", hint="unpack it and give the folder")
            raise NotATrace(f"{self.path}: not a trace ({_kind_of(buffer)})", hint="give a Kineto JSON trace")
        while True:
            for match in _EVENTS_KEY.finditer(buffer):
                head = json_object(buffer[first : match.start()] + b'"traceEvents":[]}')
                if head is not None:
                    self.metadata = head
                    self.metadata.pop("traceEvents", None)
                    return buffer[match.end() :]
            if stream.at_end or len(buffer) > _HEAD_LIMIT:
                break
            buffer += stream.take()
        return self._head_without_events(buffer, first)

    def _head_without_events(self, buffer: bytes, first: int) -> bytes:
        match = _EVENTS_KEY.search(buffer)
        if match is not None:
            head = repair_object(buffer[first : match.start()] + b'"traceEvents":[]}')
            self.bad_metadata += 1
            self.metadata = head or {}
            self.metadata.pop("traceEvents", None)
            return buffer[match.end() :]
        head = json_object(buffer[first:])
        if head is None and len(buffer) <= _HEAD_LIMIT and not re.search(rb'"(?:schemaVersion|traceEvents)"', buffer):
            raise NotATrace(f"{self.path}: not a trace (broken JSON)", hint="give a Kineto JSON trace")
        if head is None:
            raise NotATrace(f"{self.path}: cut before the first event", hint="capture again or copy the whole file")
        if "traceEvents" in head:
            raise NotATrace(f"{self.path}: traceEvents is no list", hint="capture again")
        if "nodes" in head and "schema" in head:
            raise NotATrace(
                f"{self.path}: execution trace, not a profiler trace", hint="give what export_chrome_trace wrote"
            )
        raise NotATrace(f"{self.path}: no traceEvents", hint="give what export_chrome_trace wrote")

    def _check_encoding(self, buffer: bytes) -> bytes:
        if buffer.startswith(b"\xef\xbb\xbf"):
            return buffer[3:]
        for marks, name in (
            ((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "UTF-32"),
            ((b"\xff\xfe", b"\xfe\xff"), "UTF-16"),
        ):
            if buffer.startswith(marks):
                raise NotATrace(f"{self.path}: {name} text", hint="convert it to UTF-8")
        start = buffer.lstrip(b" \t\r\n")[:4]
        if len(start) == 4 and b"\0" in start and start.strip(b"\0")[:1] in (b"{", b"[", b"\n", b"\r"):
            name = "UTF-32" if start.count(b"\0") == 3 else "UTF-16"
            raise NotATrace(f"{self.path}: {name} text", hint="convert it to UTF-8")
        return buffer

    def decode(self, buffer: bytes, limit: int, final: bool = False) -> Generator[Batch, None, tuple[int, bool]]:
        """Yield batches from ``buffer[:limit]``; returns how far it came and whether the array ended there.

        ``final`` says that no more bytes follow those of the buffer. Where an event is not finished at the limit
        and is not known to be the last, it is left for the next call: what becomes of it may never depend on where
        blocks happen to end.
        """
        cuts = [limit, *reversed(list(boundaries(buffer, limit)))]
        position = 0
        walk_to = limit if self.tolerant else 0
        while True:
            position = self._skip(buffer, position)
            while cuts and position >= cuts[-1]:
                cuts.pop()
            if not cuts:
                return position, False
            if position >= walk_to:
                cut = cuts[-1]
                batch = clean_batch(buffer, position, cut)
                if batch is not None:
                    self._close_gap(True)
                    self.events += len(batch.events)
                    yield batch
                    position = cut
                    continue
                middle = _middle_boundary(buffer, position, cut) if cut - position > _WALK_BYTES else None
                if middle is not None:
                    cuts.append(middle)
                    continue
                walk_to = cut
            self._close_gap(buffer[position] != ord("]"))
            walk = walk_events(
                buffer,
                position,
                walk_to,
                self.path,
                final and walk_to == limit,
                events=self.events,
                bad=self.bad_events,
            )
            yield from self._walked(walk)
            position = walk.position
            if walk.array_ended:
                return position, True
            if position < walk_to:
                if walk_to == limit:
                    return position, False
                walk_to = _boundary_after(buffer, 2 * walk_to - position + _WALK_BYTES, limit)

    def _skip(self, buffer: bytes, position: int) -> int:
        """The first position that is neither white space nor a comma."""
        end = gap_after(buffer, position)
        if end > position:
            self._commas += buffer.count(b",", position, end)
        return end

    def _close_gap(self, before_event: bool) -> None:
        """Count empty places between commas as events that cannot be read; one comma may stand at either end."""
        allowed = 1 if self._begun or not before_event else 0
        self._begun = True
        if self._commas > allowed:
            self.bad_events += self._commas - allowed
            self.events += self._commas - allowed
        self._commas = 0

    def _walked(self, walk: Walk) -> Iterator[Batch]:
        self.bad_events += walk.bad_events
        self.events += walk.bad_events
        self._commas = walk.commas
        if walk.fragments:
            text = b"[" + b",".join(walk.fragments) + b"]"
            events = events_decoder.decode(text)
            self.events += len(events)
            yield Batch(events, text, walk.faults)

    def _last_batches(self, buffer: bytes) -> Generator[Batch, None, bytes | None]:
        """The whole rest of the stream is in ``buffer``; returns what follows the array, ``None`` if it is open."""
        end = self._find_end(buffer)
        consumed, ended = yield from self.decode(buffer, len(buffer) if end is None else end, final=True)
        rest = buffer[self._skip(buffer, consumed) :]
        if ended:
            return rest
        self._close_gap(False)
        if rest.startswith(b"]"):
            return rest[1:]
        if end is not None:
            # The array is closed behind it, so what is left of it is one event that nothing can repair.
            self.bad_events += 1
            self.events += 1
            return buffer[_ARRAY_END.match(buffer, end - 1).end() :]  # type: ignore[union-attr]
        self.truncated = bool(rest) or not self.is_list
        return None

    def _find_end(self, buffer: bytes) -> int | None:
        """Position after the last event, where a valid rest of the document follows."""
        floor = max(0, len(buffer) - _TAIL_SEARCH)
        for match in _ARRAY_END.finditer(buffer, floor):
            if self.is_list:
                if not buffer[match.end() :].strip():
                    return match.start() + 1
            elif json_object(b'{"":0' + buffer[match.end() :]) is not None:
                return match.start() + 1
        return None

    def _read_tail(self, tail: bytes, stream: Lookahead) -> None:
        while not stream.at_end and len(tail) < _HEAD_LIMIT:
            tail += stream.take()
        if self.is_list:
            if tail.strip():
                self.bad_metadata += 1
            return
        found = json_object(b'{"":0' + tail)
        if found is None:
            if not tail.strip().endswith(b"}"):
                self.truncated = True
            found = repair_object(b'{"":0' + tail)
            self.bad_metadata += not self.truncated
        if "traceEvents" in (found if found is not None else _keys_like_events(tail)):
            raise InputRefused(
                f"{self.path}: holds two lists of traceEvents, as two traces in one file do",
                hint="give each trace a file of its own",
            )
        found = found or {}
        found.pop("", None)
        self.metadata.update(found)

    def _judge(self) -> None:
        """Refuse a file that is damaged all over: its readable events cannot be trusted either."""
        readable = self.events - self.bad_events
        if self.bad_events > 5 and self.bad_events * 50 > self.events:
            raise InputRefused(
                f"{self.path}: {self.bad_events} of {self.events} events are unreadable, as if more than one process "
                "wrote the file",
                hint="give each rank a file of its own",
            )
        if readable:
            return
        if self.truncated or self.bad_events:
            raise NotATrace(f"{self.path}: no whole event in it (cut, or no trace)", hint="capture again")
        raise CannotAnswer(f"{self.path}: no events", hint="was the profiler active while the job ran?")


def _keys_like_events(tail: bytes) -> list[str]:
    """What a rest that cannot be read seems to hold: a second array of events, or nothing of note."""
    return ["traceEvents"] if _EVENTS_KEY.search(tail) else []


class Lookahead:
    """An iterator of blocks that knows whether another one follows."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._next = next(blocks, None)

    @property
    def at_end(self) -> bool:
        return self._next is None

    def take(self) -> bytes:
        block = self._next
        self._next = next(self._blocks, None)
        return block or b""


def last_boundary(buffer: bytes, begin: int = 0, end: int | None = None) -> int:
    """Position after the last ``}`` of ``buffer[begin:end]`` that a comma and ``{`` follow; 0 if there is none."""
    end = len(buffer) if end is None else end
    while end > begin:
        piece = max(begin, end - _SEARCH_BYTES)
        # A boundary may lie across the end of the piece: white space between brackets is short.
        found = [match.start() for match in _BOUNDARY.finditer(buffer, piece, min(len(buffer), end + 64))]
        while found and found[-1] >= end:
            found.pop()
        if found:
            return found[-1] + 1
        end = piece
    return 0


def gap_after(text: bytes, position: int) -> int:
    """The first position that is neither white space nor a comma."""
    return _GAP.match(text, position).end()  # type: ignore[union-attr]


def boundaries(text: bytes, limit: int) -> Iterator[int]:
    """Where to cut ``text[:limit]`` into batches: every :data:`BATCH_BYTES` or so, where an event seems to end."""
    place = BATCH_BYTES
    while place < limit - BATCH_BYTES // 2:
        place = _boundary_after(text, place, limit)
        if place < limit:
            yield place
        place += BATCH_BYTES


def _boundary_after(buffer: bytes, position: int, limit: int) -> int:
    match = _BOUNDARY.search(buffer, position, limit) if position < limit else None
    return limit if match is None else match.start() + 1


def _middle_boundary(buffer: bytes, position: int, cut: int) -> int | None:
    middle = (position + cut) // 2
    match = _BOUNDARY.search(buffer, middle, cut)
    return match.start() + 1 if match is not None else last_boundary(buffer, position, middle) or None


def _is_tar(buffer: bytes) -> bool:
    """Whether this is the header of the first file in a tar archive (POSIX.1-1988 and GNU)."""
    return buffer[257:262] == b"ustar"


def _kind_of(buffer: bytes) -> str:
    """What a file that is no JSON seems to be, in a few words."""
    for magic, kind in (
        (b"SQLite format 3", "an SQLite database"),
        (b"\x89PNG", "a PNG picture"),
        (b"%PDF", "a PDF"),
        (b"\x7fELF", "a program"),
        (b"PAR1", "a Parquet file"),
        (b"<", "HTML or XML"),
    ):
        if buffer.lstrip(b"\r\n\t ").startswith(magic):
            return kind
    return "binary data" if b"\0" in buffer[:_SNIFFED] else "text that is no JSON"
