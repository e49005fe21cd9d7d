"""The slow way through a piece of a trace: one event at a time, with repairs.

An event that the typed decoder takes is passed on untouched and counts as clean, so that both ways through a file
give the same result; only what the decoder refuses is repaired, or left out and counted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw, Struct

from commprof.errors import InputRefused
from commprof.trace.events import NO_ARGS, Complete, event_decoder
from commprof.trace.repair import repair

_NEXT_EVENT = re.compile(r'\}(?=\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp|tts|sf)"\s*:)')
_LAST_EVENT = re.compile(r"\}(?=\s*\](?:\s*[,}]|\s*$))")
_ANOTHER_FILE = re.compile(r'"(?:schemaVersion|traceEvents|distributedInfo|deviceProperties)"\s*:')
_CANDIDATES = 6
_SPACE_OR_COMMA = " \t\r\n,"

WATCHED_KEYS = ("ts", "dur", "args")
"""Keys whose repetition in one event is noticed: the ones that carry numbers."""


@dataclass(slots=True)
class Walk:
    """Outcome of one walk: valid JSON per event, where it stopped, and what it had to do."""

    fragments: list[bytes] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    bad_events: int = 0
    position: int = 0
    array_ended: bool = False

    def add(self, fragment: bytes, fault: str | None) -> None:
        if fault is not None:
            self.faults[len(self.fragments)] = fault
        self.fragments.append(fragment)


class _Watched(Struct, gc=False):
    ts: Raw | msgspec.UnsetType = msgspec.UNSET
    dur: Raw | msgspec.UnsetType = msgspec.UNSET
    args: Raw | msgspec.UnsetType = msgspec.UNSET


_watched_decoder = msgspec.json.Decoder(list[_Watched])


def has_repeated_keys(text: bytes, events: list[Any]) -> bool:
    """Whether some event of a valid batch may hold a watched key twice (a decoder keeps the last one silently)."""
    counts = [text.count(f'"{key}"'.encode()) for key in WATCHED_KEYS]
    with_args = len(events) - [event.args is NO_ARGS for event in events].count(True)
    with_dur = len(events) - [type(event) is Complete and event.dur is not None for event in events].count(False)
    if counts == [len(events), with_dur, with_args]:
        return False
    # Some event lacks a ts, or one of the words stands elsewhere in the text: look exactly.
    try:
        found = _watched_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True
    present = [sum(getattr(event, key) is not msgspec.UNSET for event in found) for key in WATCHED_KEYS]
    return present != counts


def walk_events(buffer: bytes, start: int, stop: int, path: str) -> Walk:
    """Walk the events of ``buffer[start:stop]``; :attr:`Walk.position` is where an unfinished one begins."""
    text = buffer[start:stop].decode("utf-8", "surrogateescape")
    walk = Walk()
    position = 0
    scanner = _Scanner()
    while True:
        while position < len(text) and text[position] in _SPACE_OR_COMMA:
            position += 1
        if position == len(text):
            break
        if text[position] == "]":
            walk.array_ended = True
            position += 1
            break
        end = scanner.end_of_value(text, position)
        if end is not None:
            _take(walk, text[position:end], scanner.repeated)
        else:
            end = _recover(walk, text, position, path)
            if end is None:
                break
        position = end
    walk.position = start + len(text[:position].encode("utf-8", "surrogateescape"))
    return walk


class _Scanner:
    """Finds where a JSON value ends, with the tolerance of the standard library's scanner."""

    def __init__(self) -> None:
        self.repeated = False
        self._decoder = json.JSONDecoder(
            strict=False, object_pairs_hook=self._object, parse_float=_ignore, parse_int=_ignore
        )

    def end_of_value(self, text: str, position: int) -> int | None:
        try:
            return self._decoder.raw_decode(text, position)[1]
        except (ValueError, RecursionError):
            return None

    def _object(self, pairs: list[tuple[str, Any]]) -> None:
        # Inner objects come first, so what stands here last is the event itself.
        keys = [key for key, _ in pairs]
        self.repeated = any(keys.count(key) > 1 for key in WATCHED_KEYS)


def _ignore(_: str) -> None:
    return None


def _take(walk: Walk, text: str, repeated: bool) -> None:
    """Add one value that is JSON in the loose sense; its repair is counted."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = None
    if data is not None and _is_event(data):
        walk.add(data, "duplicate_key" if repeated else None)
        return
    repaired = repair(text, _is_event)
    if repaired is not None:
        walk.add(*repaired)
        return
    kept = _without_args(text)
    if kept is not None:
        walk.add(kept, None)
    elif not _is_unknown_phase(text):
        walk.bad_events += 1


def _recover(walk: Walk, text: str, position: int, path: str) -> int | None:
    """Repair or drop the broken event at ``position``; returns where the next one begins."""
    ends: list[int] = []
    search = position
    while len(ends) < _CANDIDATES:
        match = _NEXT_EVENT.search(text, search) or _LAST_EVENT.search(text, search)
        if match is None:
            break
        ends.append(match.end())
        search = match.end()
    for end in ends:
        repaired = repair(text[position:end], _is_event)
        if repaired is not None:
            walk.add(*repaired)
            return end
    if not ends:
        return None
    if _ANOTHER_FILE.search(text, position, ends[0]):
        raise InputRefused(
            f"{path}: looks as if more than one process wrote it", hint="give each rank a file of its own"
        )
    walk.bad_events += 1
    return ends[0]


def _is_event(data: bytes) -> bool:
    try:
        event_decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_unknown_phase(text: str) -> bool:
    """An object without ``ph``, or with one that the format does not know, is skipped like any unused event."""
    try:
        value = msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("ph") != "X"


def _without_args(text: str) -> bytes | None:
    """A complete event whose ``args`` is no object, without them."""
    try:
        value = json.loads(text, parse_float=str, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or isinstance(value.get("args"), dict) or "args" not in value:
        return None
    value.pop("args")
    data = json.dumps(value).encode("utf-8", "replace")
    return data if _is_event(data) else None
