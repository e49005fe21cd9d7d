"""Segments of one large file decoded in other processes, while this one decodes too and puts the results in order.

A segment that is not flawless is read in this process the careful way; after one that left an event unfinished, this
process goes on alone. So the result is the same as without help, whatever the file holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

from commprof.trace.batch import Batch
from commprof.trace.columns import Chunk
from commprof.trace.document import Document, Lookahead
from commprof.trace.segments import Result, Segments, decode_segment
from commprof.trace.team import Team

_MOST_PENDING = 8


@dataclass(frozen=True, slots=True)
class _Pending:
    """A segment that is not handed out yet; until then its text is kept, in case that it needs the careful way."""

    number: int
    text: bytes
    length: int


class Ahead:
    """Reads the middle of one document together with a team."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._pending: deque[_Pending] = deque()
        self._results: dict[int, Result] = {}

    def close(self) -> None:
        """End the other processes."""
        self._team.close()

    def batches(
        self, document: Document, buffer: bytes, stream: Lookahead
    ) -> Generator[Batch | Chunk, None, tuple[bytes, bytes | None]]:
        """The events up to the last block, or to where the others can help no more.

        Returns what is left of the text, and what follows the array if it ended.
        """
        segments = Segments(document, buffer, stream)
        mine = self._team.claim()
        for number, (text, length) in enumerate(segments):
            self._pending.append(_Pending(number, text, length))
            if number == mine or number >= self._team.numbers:
                self._results[number] = Result(number, length, decode_segment(text, length))
                mine = self._team.claim()
            carry, ended = yield from self._settle(document, at_most=_MOST_PENDING)
            document.refuse_endless(carry)
            if ended or carry:
                rest = carry + self._take_back() + segments.rest
                return (b"", rest) if ended else (rest, None)
        carry, ended = yield from self._settle(document, at_most=0)
        rest = carry + self._take_back() + segments.rest
        return (b"", rest) if ended else (rest, None)

    def _settle(self, document: Document, at_most: int) -> Generator[Batch | Chunk, None, tuple[bytes, bool]]:
        """Hand out finished segments in order, until at most so many are pending.

        Returns unfinished text, and whether the array ended in it.
        """
        while self._pending:
            self._receive(patient=False)
            segment = self._pending[0]
            if segment.number not in self._results:
                if len(self._pending) <= at_most:
                    break
                self._await(segment)
            self._pending.popleft()
            result = self._results.pop(segment.number)
            if result.chunk is not None and result.length == segment.length:
                document.accept(segment.text, result.chunk.events)
                yield result.chunk
                continue
            text = segment.text[: segment.length]
            consumed, ended = yield from document.decode(text, segment.length)
            if text[consumed:] or ended:
                return text[consumed:], ended
        return b"", False

    def _await(self, segment: _Pending) -> None:
        """Wait for the result of a segment; if nobody will send it, find it here."""
        while segment.number not in self._results:
            if not self._receive(patient=True):
                self._results[segment.number] = Result(segment.number, segment.length, None)

    def _receive(self, *, patient: bool) -> bool:
        """Take what the others sent; returns whether there was anything."""
        results = self._team.results(patient=patient)
        self._results.update((result.number, result) for result in results)
        return bool(results)

    def _take_back(self) -> bytes:
        """The text of all segments that were begun: one before them did not end where it seemed to."""
        joined = b"".join(segment.text[: segment.length] for segment in self._pending)
        self._pending.clear()
        return joined
