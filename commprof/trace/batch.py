"""Some neighbouring events of a file, decoded by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from commprof.trace.categories import FLOW, ONLY_COMPLETE, CodeByCategory
from commprof.trace.events import (
    ABSENT,
    NO_ARGS,
    Args,
    Complete,
    FullComplete,
    events_decoder,
    full_decoder,
    full_event_decoder,
    slim_decoder,
)
from commprof.trace.huge_numbers import has_huge_number, has_long_number
from commprof.trace.nesting import may_be_too_deep
from commprof.trace.repeated_keys import KeyCount, may_repeat_keys

# As wide as the words in which keys are searched, so that the first key of a batch is found like any other.
_OPENING = b"       ["
_codes = CodeByCategory()


@dataclass(slots=True)
class Batch:
    """Some events of the file: decoded, and as JSON text; ``faults`` maps an index to the repair it needed.

    ``phases`` are the places of the key ``ph`` in the text, where they are known. ``codes`` say what each event is
    (:class:`~commprof.trace.categories.CodeByCategory`) where the slim decoder did the work.
    """

    events: list[Any]
    text: bytes
    faults: dict[int, str] = field(default_factory=dict)
    phases: list[NDArray[np.intp]] = field(default_factory=list)
    codes: bytes | None = None
    _places: list[int] | None = field(default=None, init=False)

    def complete(self) -> list[Any]:
        """The complete events; a batch holds them in one of three classes."""
        if self.codes is not None:
            if max(self.codes, default=0) < FLOW:
                return self.events
            return list(compress(self.events, self.codes.translate(ONLY_COMPLETE)))
        for kind in (FullComplete, Complete):
            self._places = [index for index, event in enumerate(self.events) if type(event) is kind]
            if self._places:
                break
        return [self.events[index] for index in self._places or ()]

    def tables(self) -> NDArray[np.int8] | None:
        """The table of each complete event (:class:`~commprof.trace.categories.Table`), where the codes say it."""
        if self.codes is None:
            return None
        codes = np.frombuffer(self.codes, np.int8)
        return codes[codes < FLOW]

    def all_args(self, rows: Sequence[int]) -> list[Args]:
        """Everything that the ``args`` of some of the complete events hold, without a reference to the text."""
        if self.codes is not None:
            places = np.flatnonzero(np.frombuffer(self.codes, np.int8) < FLOW)
            events = self._again(places[rows].tolist())
        else:
            assert self._places is not None
            events = [self.events[self._places[row]] for row in rows]
        return [NO_ARGS if event.args is None else _detached(event.args) for event in events]

    def _again(self, wanted: list[int]) -> list[FullComplete]:
        """Some events decoded in full: each from its own text if every ``ph`` opens an event, else all of them."""
        starts = np.concatenate(self.phases) if self.phases else np.empty(0, np.intp)
        if len(starts) == len(self.events):
            found = [self._at(starts, index) for index in wanted]
            if None not in found:
                return found  # type: ignore[return-value]
        events = full_decoder.decode(self.text)
        return [events[index] for index in wanted]

    def _at(self, phases: NDArray[np.intp], index: int) -> FullComplete | None:
        """The event whose first key is the ``ph`` of that index; ``None`` if it is not its first."""
        text = self.text
        last = index + 1 == len(phases)
        start = text.rfind(b"{", 0, phases[index])
        end = len(text) if last else text.rfind(b"{", 0, phases[index + 1])
        if text[start + 1 : phases[index]].strip() != b'"ph':
            return None
        try:
            event = full_event_decoder.decode(text[start:end].rstrip(b" \t\r\n,]" if last else b" \t\r\n,"))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return event if type(event) is FullComplete else None


def clean_batch(text: bytes, start: int = 0, end: int | None = None) -> Batch | None:
    """The batch if ``text[start:end]``, events with commas between them, is flawless JSON of known shape.

    ``None`` if it is not, and has to be looked at event by event.
    """
    text = b"".join((_OPENING, memoryview(text)[start:end], b"]"))
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            return None
    try:
        events, codes = _decoded(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    keys = KeyCount(text)
    if has_huge_number(text) or may_repeat_keys(text, events, codes, keys) or may_be_too_deep(text, keys.phases):
        return None
    return Batch(events, text, phases=keys.phases, codes=codes)


def _decoded(text: bytes) -> tuple[list[Any], bytes | None]:
    """The events, and their codes; where one is not as profilers write it, by the decoder that allows for it."""
    # What the slim decoder skips, the full one would look into: an escape or a number out of range it may refuse.
    if b"\\" not in text and not has_long_number(text):
        try:
            events = slim_decoder.decode(text)
            return events, bytes([_codes[event.cat] for event in events])
        except msgspec.ValidationError:
            pass
    try:
        return full_decoder.decode(text), None
    except msgspec.ValidationError:
        return events_decoder.decode(text), None


def _detached(args: Args) -> Args:
    """The same values without a reference to the text of the whole batch."""
    if args.dims is ABSENT and args.types is ABSENT and args.concrete is ABSENT:
        return args
    return msgspec.structs.replace(args, dims=args.dims.copy(), types=args.types.copy(), concrete=args.concrete.copy())
