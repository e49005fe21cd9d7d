"""Some neighbouring events of a file, decoded by one call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from commprof.trace.events import events_decoder, full_decoder
from commprof.trace.huge_numbers import has_huge_number
from commprof.trace.repeated_keys import may_repeat_keys

# As wide as the words in which keys are searched, so that the first key of a batch is found like any other.
_OPENING = b"       ["


@dataclass(slots=True)
class Batch:
    """Some events of the file: decoded, and as JSON text; ``faults`` maps an index to the repair it needed."""

    events: list[Any]
    text: bytes
    faults: dict[int, str] = field(default_factory=dict)


def clean_batch(events: bytes) -> Batch | None:
    """The batch if the text, events with commas between them, is flawless JSON of known shape; else ``None``."""
    text = _OPENING + events + b"]"
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError:
            return None
    try:
        decoded = _decoded(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if has_huge_number(text) or may_repeat_keys(text, decoded):
        return None
    return Batch(decoded, text)


def _decoded(text: bytes) -> list[Any]:
    """The events; where one lacks a key that profilers always write, by the decoder that allows for it."""
    try:
        return full_decoder.decode(text)  # type: ignore[no-any-return]
    except msgspec.ValidationError:
        return events_decoder.decode(text)  # type: ignore[no-any-return]
