"""Segments of one large file decoded in other processes, while this one decodes too and puts the results in order.

A segment is text between two places where one event seems to end and the next to begin. Whether it really is, only the
result tells: a segment that is not flawless, or that follows one that left an event unfinished, is given back to be
read in this process the careful way. So the result is the same as without help, whatever the file holds.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING

from commprof.errors import WorkerDied
from commprof.trace.batch import Batch, clean_batch
from commprof.trace.columns import Chunk, Columns
from commprof.trace.document import boundaries, gap_after, last_boundary
from commprof.trace.workers import open_pool, summon, take_begun

if TYPE_CHECKING:
    from commprof.trace.document import Document, Lookahead

_WAITING_PER_WORKER = 2


def decode_segment(text: bytes) -> Chunk | None:
    """The columns of a flawless segment; ``None`` if it needs the careful way."""
    columns, events, start = Columns(), 0, gap_after(text, 0)
    for end in (*boundaries(text, len(text)), len(text)):
        batch = clean_batch(text, start, end)
        if batch is None:
            return None
        columns.add(batch)
        events += len(batch.events)
        start = gap_after(text, end)
    return columns.chunk(events)


@dataclass(slots=True)
class _Segment:
    text: bytes
    future: Future[Chunk | None] | None
    chunk: Chunk | None = None

    def ready(self) -> bool:
        return self.future is None or self.future.done()

    def result(self) -> Chunk | None:
        return self.chunk if self.future is None else self.future.result()


class Ahead:
    """Reads the middle of one document with the help of other processes."""

    def __init__(self, workers: int) -> None:
        begun = take_begun()
        if begun is None:
            begun = open_pool(workers)
            summon(begun, workers)
        self._pool = begun
        self._most_waiting = workers * _WAITING_PER_WORKER
        self._pending: deque[_Segment] = deque()

    def close(self) -> None:
        """End the other processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def batches(
        self, document: Document, buffer: bytes, stream: Lookahead
    ) -> Generator[Batch | Chunk, None, tuple[bytes, bytes | None]]:
        """Everything up to the last block; returns what is left of the text, and what follows the array if it ended."""
        try:
            while not stream.at_end:
                if cut := last_boundary(buffer):
                    self._begin(buffer[:cut])
                    buffer = buffer[cut:]
                else:
                    document.refuse_endless(buffer)
                carry, ended = yield from self._settle(document, all_of_them=False)
                document.refuse_endless(carry)
                if ended or carry:
                    buffer = carry + self._take_back() + buffer
                if ended:
                    return b"", buffer
                buffer += stream.take()
            carry, ended = yield from self._settle(document, all_of_them=True)
            buffer = carry + self._take_back() + buffer
            return (b"", buffer) if ended else (buffer, None)
        except BrokenProcessPool:
            for child in multiprocessing.active_children():
                child.kill()
            raise WorkerDied(
                "a worker process ended before its part was read", hint="out of memory? try --jobs 1"
            ) from None

    def _begin(self, text: bytes) -> None:
        """Give a segment to another process, or decode it here while all of them are busy."""
        waiting = sum(not segment.ready() for segment in self._pending)
        if waiting < self._most_waiting:
            self._pending.append(_Segment(text, self._pool.submit(decode_segment, text)))
        else:
            self._pending.append(_Segment(text, None, decode_segment(text)))

    def _settle(self, document: Document, *, all_of_them: bool) -> Generator[Batch | Chunk, None, tuple[bytes, bool]]:
        """Hand out finished segments in order; returns unfinished text, and whether the array ended in it."""
        while self._pending and (
            all_of_them or self._pending[0].ready() or len(self._pending) > 2 * self._most_waiting
        ):
            segment = self._pending.popleft()
            chunk = segment.result()
            if chunk is not None:
                document.accept(segment.text, chunk.events)
                yield chunk
                continue
            consumed, ended = yield from document.decode(segment.text, len(segment.text))
            rest = segment.text[consumed:]
            if rest or ended:
                return rest, ended
        return b"", False

    def _take_back(self) -> bytes:
        """The text of all segments that were begun: one before them did not end where it seemed to."""
        texts: Iterator[bytes] = (segment.text for segment in self._pending)
        joined = b"".join(texts)
        for segment in self._pending:
            if segment.future is not None:
                segment.future.cancel()
        self._pending.clear()
        return joined
