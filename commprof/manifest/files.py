"""Names of the files in a capture folder; reads and writes its manifests."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec

from commprof.errors import InputRefused
from commprof.manifest.rank_manifest import FORMAT, VERSION, Manifest

SUFFIX = ".manifest.json"
SLOW_PREFIX = "slow-step-"


class _Header(msgspec.Struct):
    format: str = ""
    version: int = 0


def step_name(index: int) -> str:
    """Name of the loop's step ``index`` (the first is 0) in a trace."""
    return f"ProfilerStep#{index}"


def slow_folder(step: int) -> str:
    """Name of the subfolder with the recording of ``step``, which followed a slow one."""
    return f"{SLOW_PREFIX}{step}"


def trace_name(rank: int, number: int = 1) -> str:
    """File name of the trace of ``rank``; later captures into one folder are numbered from 2."""
    return f"{_stem(rank, number)}.pt.trace.json.gz"


def manifest_name(rank: int, number: int = 1) -> str:
    """File name of the manifest of ``rank``, numbered like its trace."""
    return f"{_stem(rank, number)}{SUFFIX}"


def write_manifest(folder: str | os.PathLike[str], manifest: Manifest, *, number: int = 1) -> Path:
    """Write ``manifest`` into ``folder`` under its final name in one rename, and return its path.

    Raises ``OSError`` as the file system gives it; then the final name holds what it held before.
    """
    final = Path(folder) / manifest_name(manifest.rank, number)
    scratch = final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")
    try:
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=1))
        os.replace(scratch, final)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    return final


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest in the file ``path``.

    Raises ``InputRefused`` for a file that cannot be read, is not a manifest, or has a version unknown here.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
        header = msgspec.json.decode(data, type=_Header)
    except OSError as error:
        raise InputRefused(f"{path}: cannot be read: {error.strerror or error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: not a manifest: {error}", hint="capture the run again") from error
    if header.format != FORMAT:
        raise InputRefused(f"{path}: not a manifest: format is {header.format!r}, not {FORMAT!r}")
    if header.version != VERSION:
        raise InputRefused(
            f"{path}: version {header.version} of {FORMAT} is unknown, this release reads version {VERSION}",
            hint="update commprof",
        )
    try:
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputRefused(f"{path}: broken manifest: {error}", hint="capture the run again") from error


def read_manifests(folder: str | os.PathLike[str]) -> list[Manifest]:
    """All manifests of the capture folder, by rank and then by file name; empty where it holds none.

    Raises ``InputRefused`` for a folder that is not there and for a manifest that ``read_manifest`` refuses.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputRefused(f"{folder}: no such folder")
    paths = sorted(p for p in folder.glob(f"rank-*{SUFFIX}") if not p.name.startswith("."))
    return sorted((read_manifest(path) for path in paths), key=lambda manifest: manifest.rank)


def _stem(rank: int, number: int) -> str:
    return f"rank-{rank:05d}" if number == 1 else f"rank-{rank:05d}.{number}"
