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

from commprof.trace.byte_pairs import PairSearch
from commprof.trace.events import FLOW_KEYS, FlowEnd, FlowStart, FullComplete, Metadata, SlimComplete

EVENT_KEYS = ("ph", "ts", "dur", "cat", "pid", "tid", "name", "args")
"""Keys of an event that are watched, at any depth of it."""


def _word(key: str) -> int:
    """The four bytes that end in the key, or those of the key after its opening quote if that makes four."""
    text = key.encode() if len(key) == 4 else f'"{key}'.encode()
    return int.from_bytes(text, "little")


_WORDS = [_word(key) for key in EVENT_KEYS]
_search = PairSearch()
_COUNTED = frozenset({SlimComplete, FullComplete, FlowStart, FlowEnd})


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


def may_repeat_keys(text: bytes, events: list[Any], keys: KeyCount) -> bool:
    """Whether some event of a batch may hold a watched key twice; ``events`` is the batch as the reader decodes it."""
    if b"\\" in text and _ESCAPED_KEY.search(text):
        return True
    counts = keys.counts
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
    kinds = list(map(type, events))
    complete = kinds.count(SlimComplete) + kinds.count(FullComplete)
    flows = kinds.count(FlowStart) + kinds.count(FlowEnd)
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


class KeyCount:
    """How often each watched key stands in a text: its last bytes before every quote that a colon follows.

    ``counts`` is ``None`` if a colon stands apart from its key somewhere: such a key would be missed. ``phases`` are
    the places of the closing quote of every ``ph``. Before the first key of the text there are at least eight bytes.
    """

    def __init__(self, text: bytes) -> None:
        self.phases: list[NDArray[np.intp]] = []
        data = np.frombuffer(text, np.uint8)
        words = np.ndarray((max(len(text) - 3, 0),), "<u4", text, strides=(1,))
        counts = [0] * len(EVENT_KEYS)
        spaced = False
        for closing, blank_before_colon in _search.quote_then_colon(text):
            spaced = spaced or blank_before_colon
            before = words[closing - 4]
            short = before >> np.uint32(8)
            for place, (key, word) in enumerate(zip(EVENT_KEYS, _WORDS, strict=True)):
                found = (short if len(key) == 2 else before) == word
                if len(key) == 4:
                    found = data[closing[found] - 5] == ord('"')
                elif key == "ph":
                    self.phases.append(closing[found])
                counts[place] += int(np.count_nonzero(found))
        self.counts = None if spaced and _COLON_APART.search(text) else counts


def repeats_keys(pairs: list[tuple[str, Any]]) -> bool:
    """Whether one object, given as its pairs, holds a watched key twice."""
    if len(dict(pairs)) == len(pairs):
        return False
    keys = [key for key, _ in pairs]
    return any(keys.count(key) > 1 for key in EVENT_KEYS)
