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

from commprof.trace.byte_pairs import PairSearch
from commprof.trace.events import FLOW_KEYS, FlowEnd, FlowStart, FullComplete, Metadata

EVENT_KEYS = ("ph", "ts", "dur", "cat", "pid", "tid", "name", "args")
"""Keys of an event that are watched, at any depth of it."""


def _signature(key: str) -> tuple[np.uint64, np.uint64]:
    """Mask and value of the eight bytes before the closing quote that end in the opening quote and the key."""
    text = f'"{key}'.encode()
    width = 8 * len(text)
    unused = 64 - width
    return np.uint64(((1 << width) - 1) << unused), np.uint64(int.from_bytes(text, "little") << unused)


_SIGNATURES = [_signature(key) for key in EVENT_KEYS]
_search = PairSearch()
_COUNTED = frozenset({FullComplete, FlowStart, FlowEnd})


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


# A letter may be written as an escape; nobody does, and such a batch goes the slow way.
_ESCAPED_KEY = re.compile(rb'\\u00[0-9a-fA-F]{2}[^"]{0,12}"\s*:')
_COLON_APART = re.compile(rb'"[ \t\r\n]+:')
_GETTERS = [None, *(attrgetter(key) for key in EVENT_KEYS[1:])]
_decoder = msgspec.json.Decoder(list[_Outer])


def may_repeat_keys(text: bytes, events: list[Any]) -> bool:
    """Whether some event of a batch may hold a watched key twice; ``events`` is the batch as the reader decodes it."""
    if b"\\" in text and _ESCAPED_KEY.search(text):
        return True
    counts = _counts(text)
    if counts is None:
        return True
    if counts == _expected(events):
        return False
    # A watched word stands deeper in some event as well, or a colon apart from its key: look exactly.
    try:
        found = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True
    inner = [event.args for event in found if isinstance(event.args, _Inner)]
    present = [
        sum(getattr(event, key) is not UNSET for level in (found, inner) for event in level) for key in EVENT_KEYS
    ]
    return present != counts


def _expected(events: list[Any]) -> list[int]:
    """How often each watched key stands in the events if none holds one twice."""
    kinds = [type(event) for event in events]
    complete, flows = kinds.count(FullComplete), kinds.count(FlowStart) + kinds.count(FlowEnd)
    expected = [complete + (flows if key in FLOW_KEYS else 0) for key in EVENT_KEYS]
    if complete + flows == len(events):
        return expected
    others = [event for event in events if type(event) not in _COUNTED]
    for place, get in enumerate(_GETTERS):
        expected[place] += len(others) - (list(map(get, others)).count(None) if get is not None else 0)
    # Threads and processes have their name in their arguments.
    named = [event.args.name for event in others if type(event) is Metadata and event.args is not None]
    expected[EVENT_KEYS.index("name")] += len(named) - named.count(None)
    return expected


def _counts(text: bytes) -> list[int] | None:
    """How often each watched key stands in the text: its last bytes before every quote that a colon follows.

    ``None`` if a colon stands apart from its key somewhere: such a key would be missed.
    """
    words = np.ndarray((max(len(text) - 7, 0),), "<u8", text, strides=(1,))
    counts = [0] * len(EVENT_KEYS)
    spaced = False
    for closing, blank_before_colon in _search.quote_then_colon(text):
        spaced = spaced or blank_before_colon
        before = words[closing[closing >= 8] - 8]
        for place, (mask, value) in enumerate(_SIGNATURES):
            counts[place] += int(np.count_nonzero((before & mask) == value))
    return None if spaced and _COLON_APART.search(text) else counts


def repeats_keys(pairs: list[tuple[str, Any]]) -> bool:
    """Whether one object, given as its pairs, holds a watched key twice."""
    if len(dict(pairs)) == len(pairs):
        return False
    keys = [key for key, _ in pairs]
    return any(keys.count(key) > 1 for key in EVENT_KEYS)
