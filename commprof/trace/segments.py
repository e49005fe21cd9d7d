"""A document as segments: text that ends where one event seems to end and the next to begin.

Whether one really ends there, only decoding tells: what several processes decode at once is decided before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from commprof.errors import CommprofError
from commprof.trace.batch import clean_batch
from commprof.trace.columns import Chunk, Columns
from commprof.trace.document import Document, Lookahead, boundaries, gap_after, last_boundary
from commprof.trace.source import open_source


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one segment: its number, its length in bytes, and its columns if it was flawless."""

    number: int
    length: int
    chunk: Chunk | None


class Segments:
    """The text of a document after its head, block by block; iterating gives each text and where its segment ends.

    ``rest`` is what follows the last of them; the last block is in it.
    """

    def __init__(self, document: Document, buffer: bytes, stream: Lookahead) -> None:
        self.rest = buffer
        self._document = document
        self._stream = stream

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        while not self._stream.at_end:
            text = self.rest
            if cut := last_boundary(text):
                self.rest = text[cut:]
                yield text, cut
            else:
                self._document.refuse_endless(text)
            self.rest += self._stream.take()


def decode_segment(text: bytes, length: int) -> Chunk | None:
    """The columns of ``text[:length]`` if it is flawless; ``None`` if it needs the careful way."""
    columns, events, start = Columns(), 0, gap_after(text, 0)
    for end in (*boundaries(text, length), length):
        batch = clean_batch(text, start, end)
        if batch is None:
            return None
        columns.add(batch)
        events += len(batch.events)
        start = gap_after(text, end)
    return columns.chunk(events)


def decoded_segments(path: str, claim: Callable[[], int | None]) -> Iterator[Result]:
    """Those segments of a file whose numbers ``claim`` gives, in rising order, as far as it can be read.

    What is wrong with a file, the process that leads meets too, and says so.
    """
    with suppress(CommprofError, OSError, EOFError):
        yield from _decoded(path, claim)


def _decoded(path: str, claim: Callable[[], int | None]) -> Iterator[Result]:
    document = Document(path)
    stream = Lookahead(open_source(path).blocks(background=False))
    wanted = claim()
    for number, (text, length) in enumerate(Segments(document, document.read_head(stream), stream)):
        if wanted is None:
            return
        if number == wanted:
            yield Result(number, length, decode_segment(text, length))
            wanted = claim()
