"""Write a report: JSON, HTML."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from commprof.errors import CommprofError


def json_text(report: dict[str, Any]) -> bytes:
    """The machine-readable report as strict JSON with a final newline, the same bytes for the same input."""
    return msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n"


def write_bytes(data: bytes, path: str | os.PathLike[str]) -> None:
    """Write a file whole or not at all: into a neighbour first, then under its name.

    Raises :class:`CommprofError` with exit code 4 when the disk is full or the place cannot be written.
    """
    target = Path(path)
    try:
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
        raise CommprofError(
            f"{target}: {error.strerror or error}", hint="choose another place with -o or --json"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
