"""Text of one event that is not JSON, made JSON with as little change as possible.

Profilers have written raw Windows paths, control bytes, unescaped quotes, bare NaN and broken UTF-8 into their files.
A repair never guesses a number: what cannot be made readable is left out by the caller, and counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from commprof.trace.nesting import too_deep

LARGEST_REPAIR = 256 << 10
"""Characters of a text that is worth a repair; an event has hundreds, and a repair needs a hundred times its space."""

# Strings are matched without a way back, so that one of any length costs its length once.
_TOKEN = re.compile(r'("(?>[^"\\]+|\\.)*+")|[-+.\w#]+(?:\([a-z]*\))?', re.IGNORECASE | re.DOTALL)
_NOT_FINITE = re.compile(
    r"[-+]?(?:nan(?:\([a-z]*\))?|inf(?:inity)?|1\.\#(?:inf|ind|qnan|snan)\w*)|-?[0-9][0-9.]*e\+?[0-9]{3,}",
    re.IGNORECASE | re.ASCII,
)
_BAD_ESCAPE = re.compile(r"\\(?:([\"\\/bfnrt]|u[0-9a-fA-F]{4})|)", re.DOTALL)
_SUSPICIOUS = re.compile(r"[\x00-\x1f\\]")
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATE = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(\\u[dD][c-fC-F][0-9a-fA-F]{2})?|\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_CLOSES = re.compile(r"\s*(?::|,\s*[\"\[{\d-]|,\s*(?:null|true|false)|[}\]](?=\s*(?:[,}\]]|$)))")
_QUOTE = re.compile(r'(?<!\\)(\\*)"')
_NEXT_KEY = re.compile(r'\s*(?:[}\]]|,\s*"[^"\\]{1,60}"\s*:)')


def repair(fragment: str, is_valid: Callable[[bytes], bool]) -> tuple[bytes, str] | None:
    """The fragment as valid JSON and the kind of its first fault, or ``None`` when no repair helps.

    ``fragment`` may hold surrogate escapes for bytes that are no UTF-8; they become U+FFFD.
    """
    if len(fragment) > LARGEST_REPAIR:
        return None
    faults: list[str] = []
    text = _replace_bytes(fragment, faults)
    for requote in (None, _escape_inner_quotes, _close_after_backslash):
        found = list(faults)
        candidate = text
        if requote is not None:
            candidate = requote(text)
            if candidate == text:
                continue
            found.insert(0, "raw_quote" if requote is _escape_inner_quotes else "invalid_escape")
        data = _repair_tokens(candidate, found).encode("utf-8", "replace")
        if found and is_valid(data):
            return data, found[0]
    return None


def _replace_bytes(text: str, faults: list[str]) -> str:
    """Bytes that were no UTF-8 (held as lone surrogates U+DC80 to U+DCFF) as U+FFFD."""
    clean = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if clean != text:
        faults.append("encoding")
    return clean


def _repair_tokens(text: str, faults: list[str]) -> str:
    def fix(match: re.Match[str]) -> str:
        token = match[0]
        if match[1] is not None:
            return _repair_string(token, faults) if _SUSPICIOUS.search(token) else token
        if _NOT_FINITE.fullmatch(token):
            _note(faults, "non_finite")
            return f'"{token}"'
        return token

    return _TOKEN.sub(fix, text)


def _repair_string(text: str, faults: list[str]) -> str:
    escaped = _BAD_ESCAPE.sub(lambda m: m[0] if m[1] else "\\\\", text)
    if escaped != text:
        _note(faults, "invalid_escape")
    paired = _SURROGATE.sub(lambda m: m[0] if m[1] else "\\ufffd", escaped)
    if paired != escaped:
        _note(faults, "encoding")
    clean = _CONTROL.sub(lambda m: " " if m[0] in "\t\n\r" else "�", paired)
    if clean != paired:
        _note(faults, "control_character")
    return clean


def _note(faults: list[str], kind: str) -> None:
    if kind not in faults:
        faults.append(kind)


def _escape_inner_quotes(text: str) -> str:
    """Escape every quote inside a string that is not followed by what may follow a closing quote."""
    out: list[str] = []
    inside = False
    last = 0
    for match in _QUOTE.finditer(text):
        escaped = len(match[1]) % 2 == 1
        out.append(text[last : match.end() - 1])
        last = match.end()
        if not inside:
            inside = True
            out.append('"')
        elif escaped:
            out.append('"')
        elif _CLOSES.match(text, match.end()):
            inside = False
            out.append('"')
        else:
            out.append('\\"')
    out.append(text[last:])
    return "".join(out)


def _close_after_backslash(text: str) -> str:
    r"""Close strings that end in one raw backslash (``"name": "x\", "cat": ...``) by doubling it."""
    return re.sub(
        r'(?<!\\)((?:\\\\)*)\\"',
        lambda m: f'{m[1]}\\\\"' if _NEXT_KEY.match(text, m.end()) else m[0],
        text,
    )


def json_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object from bytes, ``None`` where they are not exactly one, or one that is nested too deep."""
    if too_deep(data):
        return None
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def repair_object(data: bytes) -> dict[str, Any] | None:
    """A JSON object from bytes that may need a repair; ``None`` if it cannot be read."""

    def is_valid(candidate: bytes) -> bool:
        return json_object(candidate) is not None

    found = json_object(data)
    if found is not None:
        return found
    repaired = repair(data.decode("utf-8", "surrogateescape"), is_valid)
    return None if repaired is None else json_object(repaired[0])
