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
from commprof.trace.nesting import too_deep
from commprof.trace.repair import LARGEST_REPAIR, repair
from commprof.trace.repeated_keys import repeats_keys

_NEXT_EVENT = re.compile(r'\}(?=\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|s|bp|tts|sf)"\s*:)')
_NEXT_AFTER_VALUE = re.compile(_NEXT_EVENT.pattern.replace(r"\}", r"[^\s,]", 1))
_LAST_EVENT = re.compile(r"\}(?=\s*\](?:\s*[,}]|\s*$))")
_ANOTHER_FILE = re.compile(r'"(?:schemaVersion|traceEvents|distributedInfo|deviceProperties)"\s*:')
_FOLLOWS = re.compile(r"\s*(?:[,\]]|$)")
_CANDIDATES = 6
_PATIENCE = 100
"""After so many unreadable events the next ones are given up sooner: trying is what takes time."""

_HOPELESS = 2000
_GAP = re.compile(r"[ \t\r\n,]*")
_LONGEST_TOKEN = len("-Infinity") + 1


@dataclass(slots=True)
class Walk:
    """Outcome of one walk: valid JSON per event, where it stopped, and what it had to do."""

    fragments: list[bytes] = field(default_factory=list)
    faults: dict[int, str] = field(default_factory=dict)
    bad_events: int = 0
    commas: int = 0
    events_before: int = 0
    bad_before: int = 0
    position: int = 0
    array_ended: bool = False

    @property
    def bad(self) -> int:
        """Unreadable events of the file so far."""
        return self.bad_before + self.bad_events

    def close_gap(self) -> None:
        """Count what is missing between two commas."""
        self.bad_events += max(self.commas - 1, 0)
        self.commas = 0

    def drop(self, path: str) -> None:
        """Count an event that cannot be read; give up on a file in which most cannot."""
        self.bad_events += 1
        if self.bad > _HOPELESS and 2 * self.bad > self.events_before + len(self.fragments) + self.bad_events:
            raise another_writer(path)

    def add(self, fragment: bytes, fault: str | None) -> None:
        if fault is not None:
            self.faults[len(self.fragments)] = fault
        self.fragments.append(fragment)


def walk_events(
    buffer: bytes, start: int, stop: int, path: str, final: bool = True, *, events: int = 0, bad: int = 0
) -> Walk:
    """Walk the events of ``buffer[start:stop]``; :attr:`Walk.position` is where an unfinished one begins.

    ``final`` says that nothing follows; otherwise an event is judged only when all that the judgement looks at is
    in the text, so that it is the same wherever the text happens to end. ``events`` and ``bad`` are the counts so far.
    """
    text = buffer[start:stop].decode("utf-8", "surrogateescape")
    walk = Walk(events_before=events, bad_before=bad)
    position = 0
    scanner = _Scanner()
    while True:
        gap = _GAP.match(text, position).end()  # type: ignore[union-attr]
        walk.commas += text.count(",", position, gap)
        position = gap
        if position == len(text):
            break
        if text[position] == "]":
            walk.close_gap()
            walk.array_ended = True
            position += 1
            break
        end = scanner.end_of_value(text, position)
        if end is None and scanner.ran_out and not final:
            break
        if end is not None:
            walk.close_gap()
            _take(walk, text[position:end], scanner.repeated, path)
        else:
            end = _recover(walk, text, position, path, final)
            if end is None:
                break
        position = end
    walk.position = start + len(text[:position].encode("utf-8", "surrogateescape"))
    return walk


class _Scanner:
    """Finds where a JSON value ends, with the tolerance of the standard library's scanner."""

    def __init__(self) -> None:
        self.repeated = False
        self.ran_out = False
        self._decoder = json.JSONDecoder(
            strict=False, object_pairs_hook=self._object, parse_float=_ignore, parse_int=_ignore
        )

    def end_of_value(self, text: str, position: int) -> int | None:
        self.repeated = self.ran_out = False
        try:
            end = self._decoder.raw_decode(text, position)[1]
            # A raw quote before a brace ends an object early; then no comma follows.
            return end if _FOLLOWS.match(text, end) and not too_deep(text[position:end]) else None
        except json.JSONDecodeError as error:
            self.ran_out = error.pos > len(text) - _LONGEST_TOKEN or error.msg.startswith("Unterminated")
        except RecursionError:
            pass
        return None

    def _object(self, pairs: list[tuple[str, Any]]) -> None:
        self.repeated = self.repeated or repeats_keys(pairs)


def _ignore(_: str) -> None:
    return None


def _take(walk: Walk, text: str, repeated: bool, path: str) -> None:
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
    elif data is None or not _is_unknown_phase(data):
        walk.drop(path)


def _recover(walk: Walk, text: str, position: int, path: str, final: bool) -> int | None:
    """Repair or drop the broken event at ``position``; returns where the next one begins.

    ``None`` if that cannot be told from this text: then it must be looked at again together with what follows.
    """
    ends: list[int] = []
    search = position
    next_event = _NEXT_EVENT if text[position] == "{" else _NEXT_AFTER_VALUE
    wanted = _CANDIDATES if walk.bad < _PATIENCE else 1
    while len(ends) < wanted:
        match = next_event.search(text, search) or (_LAST_EVENT.search(text, search) if final else None)
        if match is None:
            break
        ends.append(match.end())
        search = match.end()
    if len(ends) < wanted and not final:
        return None
    last = len(text.rstrip())
    at_end = text[last - 1] == "}" and len(ends) < wanted
    for end in [*ends, *([last] if at_end else [])]:
        repaired = repair(text[position:end], _is_event)
        if repaired is not None:
            walk.close_gap()
            walk.add(*repaired)
            return end
    if not ends:
        return None
    if _ANOTHER_FILE.search(text, position, ends[0]):
        raise another_writer(path)
    walk.close_gap()
    walk.drop(path)
    return ends[0]


def another_writer(path: str) -> InputRefused:
    """The error for a file whose content belongs to two."""
    return InputRefused(f"{path}: looks as if more than one process wrote it", hint="give each rank a file of its own")


def _is_event(data: bytes) -> bool:
    if too_deep(data):
        return False
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


class _Phase(msgspec.Struct):
    ph: Any = None


def _is_unknown_phase(data: bytes) -> bool:
    """An object without ``ph``, or with one that the format does not know, is skipped like any unused event."""
    try:
        phase = msgspec.json.decode(data, type=_Phase).ph
    except (msgspec.MsgspecError, RecursionError):
        return False
    return bool(phase != "X")


def _without_args(text: str) -> bytes | None:
    """A complete event whose ``args`` is no object, without them."""
    if len(text) > LARGEST_REPAIR:
        return None
    try:
        value = json.loads(text, parse_float=str, strict=False)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or isinstance(value.get("args"), dict) or "args" not in value:
        return None
    value.pop("args")
    data = json.dumps(value).encode("utf-8", "replace")
    return data if _is_event(data) else None
