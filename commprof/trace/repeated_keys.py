"""Keys that stand twice in one event: a decoder keeps the last one without a word, so they are counted here.

The text of a whole batch is searched at once: how often each watched key stands in it must be how often the decoded
events have it. Only where that is not so is the batch looked at event by event.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from commprof.trace.events import Metadata

EVENT_KEYS = ("ph", "ts", "dur", "cat", "pid", "tid", "name", "args")
"""Keys of an event that are watched, at any depth of it."""

# Bytes before the closing quote that tell a key: the opening quote, and what of it fits into eight bytes.
_SIGNATURES = [(f'"{key}'.encode()[-8:]) for key in EVENT_KEYS]


class _Inner(Struct, gc=False):
    ph: Raw | UnsetType = UNSET
    ts: Raw | UnsetType = UNSET
    dur: Raw | UnsetType = UNSET
    cat: Raw | UnsetType = UNSET
    pid: Raw | UnsetType = UNSET
    tid: Raw | UnsetType = UNSET
    name: Raw | UnsetType = UNSET
    args: Raw | UnsetType = UNSET


class _Outer(_Inner, gc=False):
    args: _Inner | UnsetType | None = UNSET  # type: ignore[assignment]


# "ts" : 1 is legal and nobody writes it; such a file goes the slow way.
_OTHER_SPACING = re.compile(rb'"[ \t\r\n]+:')
_GETTERS = [attrgetter(key) for key in EVENT_KEYS[1:]]
_decoder = msgspec.json.Decoder(list[_Outer])


def may_repeat_keys(text: bytes, events: list[Any]) -> bool:
    """Whether some event of a batch may hold a watched key twice; ``events`` is the batch as the reader decodes it."""
    if _OTHER_SPACING.search(text):
        return True
    counts = _counts(text)
    missing = [list(map(get, events)).count(None) for get in _GETTERS]
    expected = [len(events), *(len(events) - absent for absent in missing)]
    expected[EVENT_KEYS.index("name")] += _names_of_threads(events)
    if counts == expected:
        return False
    # A watched word stands deeper in some event as well: look exactly.
    try:
        found = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True
    inner = [event.args for event in found if isinstance(event.args, _Inner)]
    present = [
        sum(getattr(event, key) is not UNSET for level in (found, inner) for event in level) for key in EVENT_KEYS
    ]
    return present != counts


def _names_of_threads(events: list[Any]) -> int:
    kinds = [type(event) for event in events]
    if Metadata not in kinds:
        return 0
    named = [event.args for event in events if type(event) is Metadata and event.args is not None]
    return sum(args.name is not None for args in named)


def _counts(text: bytes) -> list[int]:
    """How often each watched key stands in the text: its last bytes before every quote that a colon follows."""
    data = np.frombuffer(text, np.uint8)
    closing = np.flatnonzero((data[:-1] == ord('"')) & (data[1:] == ord(":")))
    closing = closing[closing >= 8]
    words = np.ndarray((max(len(data) - 7, 0),), "<u8", text, strides=(1,))[closing - 8]
    return [_matches(words, signature) for signature in _SIGNATURES]


def _matches(words: NDArray[np.uint64], signature: bytes) -> int:
    width = 8 * len(signature)
    value = np.uint64(int.from_bytes(signature, "little") << (64 - width))
    mask = np.uint64(((1 << width) - 1) << (64 - width))
    return int(np.count_nonzero((words & mask) == value))


def repeats_keys(pairs: list[tuple[str, Any]]) -> bool:
    """Whether one object, given as its pairs, holds a watched key twice."""
    keys = [key for key, _ in pairs]
    return any(keys.count(key) > 1 for key in EVENT_KEYS)
