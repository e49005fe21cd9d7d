"""Some neighbouring events of a file, decoded by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from commprof.trace.events import (
    ABSENT,
    NO_ARGS,
    Args,
    Complete,
    FullComplete,
    SlimComplete,
    events_decoder,
    full_decoder,
    full_event_decoder,
    slim_decoder,
)
from commprof.trace.huge_numbers import has_huge_number, has_long_number
from commprof.trace.repeated_keys import KeyCount, may_repeat_keys

# As wide as the words in which keys are searched, so that the first key of a batch is found like any other.
_OPENING = b"       ["


@dataclass(slots=True)
class Batch:
    """Some events of the file: decoded, and as JSON text; ``faults`` maps an index to the repair it needed.

    ``phases`` are the places of the key ``ph`` in the text, where they are known.
    """

    events: list[Any]
    text: bytes
    faults: dict[int, str] = field(default_factory=dict)
    phases: list[NDArray[np.intp]] = field(default_factory=list)
    _places: list[int] = field(default_factory=list, init=False)

    def complete(self) -> list[Any]:
        """The complete events; a batch holds them in one of three classes."""
        for kind in (SlimComplete, FullComplete, Complete):
            self._places = [index for index, event in enumerate(self.events) if type(event) is kind]
            if self._places:
                break
        return [self.events[index] for index in self._places]

    def all_args(self, rows: Sequence[int]) -> list[Args]:
        """Everything that the ``args`` of some of the complete events hold, without a reference to the text."""
        wanted = [self._places[row] for row in rows]
        if wanted and type(self.events[wanted[0]]) is SlimComplete:
            events = self._again(wanted)
        else:
            events = [self.events[index] for index in wanted]
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
        decoded = _decoded(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    keys = KeyCount(text)
    if has_huge_number(text) or may_repeat_keys(text, decoded, keys):
        return None
    return Batch(decoded, text, phases=keys.phases)


def _decoded(text: bytes) -> list[Any]:
    """The events; where one lacks a key that profilers always write, by the decoder that allows for it."""
    # What the slim decoder skips, the full one would look into: an escape or a number out of range it may refuse.
    if b"\\" not in text and not has_long_number(text):
        try:
            return slim_decoder.decode(text)  # type: ignore[no-any-return]
        except msgspec.ValidationError:
            pass
    try:
        return full_decoder.decode(text)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return events_decoder.decode(text)  # type: ignore[no-any-return]


def _detached(args: Args) -> Args:
    """The same values without a reference to the text of the whole batch."""
    if args.dims is ABSENT and args.types is ABSENT and args.concrete is ABSENT:
        return args
    return msgspec.structs.replace(args, dims=args.dims.copy(), types=args.types.copy(), concrete=args.concrete.copy())
