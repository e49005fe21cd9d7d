"""Which ranks record, and into which folder: checks that a person should hear about before the first step."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from commprof.errors import UsageError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.\-]*://")

Ranks = str | Iterable[int]


def parse_ranks(ranks: Ranks) -> frozenset[int] | None:
    """The ranks that record.

    ``None`` means all. Raises ``UsageError`` for what is neither "all" nor ranks.
    """
    if isinstance(ranks, str):
        if ranks == "all":
            return None
        raise UsageError(f'Capture: ranks={ranks!r} is neither "all" nor a list of ranks')
    try:
        chosen = frozenset(ranks)
    except TypeError:
        raise UsageError(f'Capture: ranks={ranks!r} is neither "all" nor a list of ranks') from None
    if not chosen or any(isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 for rank in chosen):
        raise UsageError(f"Capture: ranks={ranks!r} is not a list of ranks, the first being 0")
    return chosen


def parse_folder(out: str | os.PathLike[str]) -> Path:
    """The capture folder as a local path.

    Raises ``UsageError`` for a URL: taken as a path it would make a folder named ``s3:`` beside the script.
    """
    text = os.fspath(out)
    if not isinstance(text, str) or not text:
        raise UsageError(f"Capture: out={out!r} is not a folder")
    if _URL.match(text):
        raise UsageError(
            f"Capture: out={text!r} is a URL, captures are written to local folders",
            hint="write to a local folder and copy it afterwards",
        )
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"Capture: out={text!r} is a file, not a folder")
    return path
