"""JSON that commprof itself wrote, as an input: a report, which ``compare`` takes, or the wrong file for a verb."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from commprof.errors import InputRefused
from commprof.report.view import SCHEMA

_ENDINGS = (".json", ".json.gz")
_KIND = re.compile(rb'^\s*\{\s*"schema":\s*"commprof\.(\w+)/')
_HEAD_BYTES = 512
_NAMES = {"report": "a report of commprof", "comparison": "a comparison of commprof", "doctor": "what doctor found"}


def kept_report(path: str) -> dict[str, Any] | None:
    """The JSON report of an earlier run, plain or gzip; ``None`` for any other input.

    Raises :class:`InputRefused` for one that cannot be used, and for other JSON of ours.
    """
    kind = _kind(path)
    if kind is None:
        return None
    if kind != "report":
        raise InputRefused(f"{path}: {_NAMES[kind]}, not a report", hint="give a run, or what analyze --json wrote")
    try:
        report = msgspec.json.decode(_bytes(path))
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise InputRefused(f"{path}: not a report: {error}", hint="analyse its traces again") from None
    if not isinstance(report, dict) or report.get("schema") != SCHEMA or "per_step" not in report:
        raise InputRefused(f"{path}: a report of another version of commprof", hint="analyse its traces again")
    return report


def refuse_kept(paths: Iterable[str]) -> None:
    """Raise :class:`InputRefused` where a trace is wanted and a file given by name is JSON of ours."""
    for path in paths:
        kind = _kind(path)
        if kind is not None:
            also = "; commprof compare takes reports" if kind == "report" else ""
            raise InputRefused(f"{path}: {_NAMES[kind]}, not a trace", hint=f"give the trace or its folder{also}")


def _kind(path: str) -> str | None:
    """``report``, ``comparison`` or ``doctor``; ``None`` for a file that is none of these or cannot be read."""
    if not path.endswith(_ENDINGS) or not os.path.isfile(path):
        return None
    try:
        found = _KIND.search(_bytes(path, _HEAD_BYTES))
    except (OSError, EOFError, zlib.error):
        return None
    kind = None if found is None else found[1].decode()
    return kind if kind in _NAMES else None


def _bytes(path: str, most: int = -1) -> bytes:
    if path.endswith(".gz"):
        with gzip.open(path) as stream:
            return stream.read(most)
    with Path(path).open("rb") as stream:
        return stream.read(most)
