"""Write a report: JSON, HTML."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from commprof.errors import CommprofError, UsageError


def json_text(report: dict[str, Any]) -> bytes:
    """The machine-readable report as strict JSON with a final newline, the same bytes for the same input."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


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


def refuse_clashes(outputs: Sequence[str | os.PathLike[str] | None], inputs: Sequence[str]) -> None:
    """Raise :class:`UsageError` where an output would replace an input or another output."""
    places = [os.path.realpath(path) for path in outputs if path is not None]
    for path in places:
        if places.count(path) > 1 and os.path.isfile(path) | (not os.path.exists(path)):
            raise UsageError(f"{path}: two reports would be written there", hint="give each a name of its own")
        if path in {os.path.realpath(given) for given in inputs if "://" not in given}:
            raise UsageError(f"{path}: is an input; it would be replaced", hint="write the report elsewhere")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
