"""Write a report: JSON, HTML."""

from __future__ import annotations

import contextlib
import html
import os
import re
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from commprof.errors import CommprofError, UsageError
from commprof.report.charts.wording import clean

MOST_SUBJECT = 2000
"""Longest name of an input that a page states of itself (``<meta name="commprof-subject">``)."""
_SUBJECT = re.compile(r'<meta name="commprof-subject" content="([^"]*)">')
_HEAD_BYTES = 16_384


def json_text(report: dict[str, Any]) -> bytes:
    """The machine-readable report as strict JSON with a final newline, the same bytes for the same input."""
    try:
        text = msgspec.json.encode(report)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_encodable(report))
    return msgspec.json.format(text, indent=1) + b"\n"


def encodable(text: str) -> str:
    """Text with the name of a file that the locale cannot read: as UTF-8 where it is, else with U+FFFD for a byte."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")
    return raw.decode("utf-8", "replace")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def write_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all: into a neighbour first, then under its name.

    A link is followed; a device or a pipe is written to as it is. Raises :class:`CommprofError` with exit code 4 when
    the disk is full or the place cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:
                stream.write(data)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
            os.chmod(scratch, 0o666 & ~_umask())
            os.replace(scratch, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise
    except OSError as error:
        reason = error.strerror or error
        raise CommprofError(f"{path}: {reason}", hint="choose another place with -o or --json") from None


def free_place(usual: Path, subject: str) -> Path:
    """``usual``, or ``NAME-2``, ``NAME-3``, ... beside it: the first that is free or holds the report of ``subject``.

    So a second look at one input replaces its report, and the report of another input of the same name stays.
    """
    for number in count(1):
        place = usual if number == 1 else usual.with_name(f"{usual.stem}-{number}{usual.suffix}")
        if not os.path.lexists(place) or _subject(place) == clean(subject, MOST_SUBJECT):
            return place
    raise AssertionError


def _subject(page: Path) -> str | None:
    """What an HTML report of ours says that it is about; ``None`` for any other file."""
    try:
        with page.open("rb") as stream:
            found = _SUBJECT.search(stream.read(_HEAD_BYTES).decode("utf-8", "replace"))
    except OSError:
        return None
    return None if found is None else html.unescape(found[1])


def refuse_clashes(outputs: Sequence[str | os.PathLike[str] | None], inputs: Sequence[str]) -> None:
    """Raise :class:`UsageError` where an output would replace an input or another output, or cannot be a file."""
    places = [os.path.realpath(path) for path in outputs if path is not None]
    for path in places:
        if os.path.isdir(path):
            raise UsageError(f"{path}: is a folder", hint="give a file in it")
        above = next(folder for folder in Path(path).parents if folder.exists())
        if not above.is_dir():
            raise UsageError(f"{path}: {above} is a file, not a folder", hint="write the report elsewhere")
        if places.count(path) > 1 and os.path.isfile(path) | (not os.path.exists(path)):
            raise UsageError(f"{path}: two reports would be written there", hint="give each a name of its own")
        if path in {os.path.realpath(given) for given in inputs if "://" not in given}:
            raise UsageError(f"{path}: is an input; it would be replaced", hint="write the report elsewhere")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
