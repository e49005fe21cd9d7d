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

from commprof.errors import InputRefused
from commprof.trace.events import event_decoder
from commprof.trace.huge_numbers import has_huge_number
from commprof.trace.repair import repair
from commprof.trace.repeated_keys import repeats_keys

_NEXT_EVENT = re.compile(r'\}(?=\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp|tts|sf)"\s*:)')
_LAST_EVENT = re.compile(r"\}(?=\s*\](?:\s*[,}]|\s*$))")
_ANOTHER_FILE = re.compile(r'"(?:schemaVersion|traceEvents|distributedInfo|deviceProperties)"\s*:')
_CANDIDATES = 6
_SPACE_OR_COMMA = " \t\r\n,"


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
        self.repeated = False
        try:
            return self._decoder.raw_decode(text, position)[1]
        except (ValueError, RecursionError):
            return None

    def _object(self, pairs: list[tuple[str, Any]]) -> None:
        self.repeated = self.repeated or repeats_keys(pairs)


def _ignore(_: str) -> None:
    return None


def _take(walk: Walk, text: str, repeated: bool) -> None:
    """Add one value that is JSON in the loose sense; its repair is counted."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        data = None
    if data is not None and repeated:
        data = _last_of_each_key(data)
    if data is not None and not has_huge_number(data) and _is_event(data):
        walk.add(data, "duplicate_key" if repeated else None)
        return
    repaired = repair(text, _is_event)
    if repaired is not None:
        walk.add(*repaired)
        return
    if data is not None and _is_event(data):
        walk.add(data, "duplicate_key" if repeated else None)
        return
    kept = _without_args(text)
    if kept is not None:
        walk.add(kept, None)
    elif not _is_unknown_phase(text):
        walk.bad_events += 1


def _recover(walk: Walk, text: str, position: int, path: str) -> int | None:
    """Repair or drop the broken event at ``position``; returns where the next one begins.

    ``None`` if it may go on after the text: then it must be looked at again together with what follows.
    """
    ends: list[int] = []
    search = position
    while len(ends) < _CANDIDATES:
        match = _NEXT_EVENT.search(text, search) or _LAST_EVENT.search(text, search)
        if match is None:
            break
        ends.append(match.end())
        search = match.end()
    last = len(text.rstrip())
    at_end = text[last - 1] == "}" and len(ends) < _CANDIDATES
    for end in [*ends, *([last] if at_end else [])]:
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


def _last_of_each_key(data: bytes) -> bytes:
    """The event with every repeated key at its last value alone: also ``ph``, which decides how it is decoded."""
    try:
        return msgspec.json.encode(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, RecursionError):
        return data


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
