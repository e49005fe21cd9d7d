"""Keys that stand twice in one event: a decoder keeps the last one without a word, so they are counted here.

The text of a whole batch is searched at once: how often each watched key stands in it must be how often the decoded
events have it. Only where that is not so is the batch looked at event by event.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, Raw, Struct, UnsetType
from numpy.typing import NDArray

from commprof.trace.byte_pairs import PairSearch
from commprof.trace.categories import FLOW, ONLY_OTHERS, OTHER
from commprof.trace.events import FLOW_KEYS, FlowEnd, FlowStart, FullComplete, Metadata, SlimMetadata

EVENT_KEYS = ("ph", "ts", "dur", "cat", "pid", "tid", "name", "args")
"""Keys of an event that are watched, at any depth of it."""

_WORDS = [int.from_bytes(f'"{key}"'.encode(), "little") for key in EVENT_KEYS]
_BITS = [np.uint64(8 * (6 - len(key))) for key in EVENT_KEYS]
"""By how much the eight bytes before a colon are shifted so that a key of that length and its quotes are left."""

_LENGTHS = tuple(dict.fromkeys(_BITS))

_search = PairSearch()


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
_SLIM_GETTERS = [None, *(attrgetter(key if key != "cat" else "category") for key in EVENT_KEYS[1:])]
_decoder = msgspec.json.Decoder(list[_Outer])


def may_repeat_keys(text: bytes, events: list[Any], codes: bytes | None, keys: KeyCount) -> bool:
    """Whether some event of a batch may hold a watched key twice.

    ``events`` is the batch as the reader decodes it; ``codes`` say what each is, if the slim decoder did it.
    """
    if b"\\" in text and _ESCAPED_KEY.search(text):
        return True
    counts = keys.counts
    if counts is None:
        return True
    if counts == (_expected(events) if codes is None else _expected_slim(events, codes)):
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
    complete, flows = kinds.count(FullComplete), kinds.count(FlowStart) + kinds.count(FlowEnd)
    others: list[Any] = []
    if complete + flows < len(events):
        others = [event for event in events if type(event) not in (FullComplete, FlowStart, FlowEnd)]
    return _together(complete, flows, others, _GETTERS)


def _expected_slim(events: list[Any], codes: bytes) -> list[int]:
    """The same for events of the slim decoder, whose codes say what they are."""
    flows, others = codes.count(FLOW), codes.count(OTHER)
    rest = list(compress(events, codes.translate(ONLY_OTHERS))) if others else []
    return _together(len(codes) - flows - others, flows, rest, _SLIM_GETTERS)


def _together(complete: int, flows: int, others: list[Any], getters: Sequence[Any]) -> list[int]:
    expected = [complete + (flows if key in FLOW_KEYS else 0) for key in EVENT_KEYS]
    if others:
        for place, get in enumerate(getters):
            expected[place] += len(others) - (list(map(get, others)).count(None) if get is not None else 0)
        # Threads and processes have their name in their arguments.
        named = [
            event.args.name for event in others if type(event) in (Metadata, SlimMetadata) and event.args is not None
        ]
        expected[EVENT_KEYS.index("name")] += len(named) - named.count(None)
    return expected


class KeyCount:
    """How often each watched key stands in a text: the eight bytes before every colon that follows a quote.

    ``counts`` is ``None`` if a colon stands apart from its key somewhere: such a key would be missed. ``phases`` are
    the places of the closing quote of every ``ph``. Before the first key of the text there are at least eight bytes.
    """

    def __init__(self, text: bytes) -> None:
        self.phases: list[NDArray[np.intp]] = []
        data = np.frombuffer(text, np.uint8)
        words = np.ndarray((max(len(text) - 7, 0),), "<u8", text, strides=(1,))
        colons = np.concatenate([np.empty(0, np.intp), *_search.colons(text)])
        previous = data[colons - 1]
        spaced = bool((previous <= ord(" ")).any())
        colons = colons[previous == ord('"')]
        before = words[colons - 8]
        shifted = {bits: before >> bits for bits in _LENGTHS}
        found = [shifted[bits] == word for bits, word in zip(_BITS, _WORDS, strict=True)]
        self.phases.append(colons[found[EVENT_KEYS.index("ph")]] - 1)
        counts = [int(np.count_nonzero(places)) for places in found]
        self.counts = None if spaced and _COLON_APART.search(text) else counts


def repeats_keys(pairs: list[tuple[str, Any]]) -> bool:
    """Whether one object, given as its pairs, holds a watched key twice."""
    if len(dict(pairs)) == len(pairs):
        return False
    keys = [key for key, _ in pairs]
    return any(keys.count(key) > 1 for key in EVENT_KEYS)
