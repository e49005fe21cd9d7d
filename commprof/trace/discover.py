"""Which files are meant: a file, a folder, a glob, a URL, or several of them, each with its manifest if it has one."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from commprof.errors import InputRefused
from commprof.manifest import SLOW_PREFIX, SUFFIX, Manifest, read_manifests

_GLOB_MARKS = frozenset("*?[")
_NOWHERE = -1
"""Size of what a link names that leads to no file."""

LEADS_NOWHERE = "a link that leads nowhere"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a trace: ``display`` is its path in the report, ``named`` whether it was given by name."""

    path: str
    display: str
    named: bool
    manifest: Manifest | None = None
    size: int = 0


def find_candidates(
    paths: Sequence[str], only: str | None = None, dangling: list[str] | None = None
) -> list[Candidate]:
    """All candidates in order of path; raises :class:`InputRefused` for a path that is not there.

    ``only`` keeps the files whose name or relative path matches the pattern. Links in folders that lead nowhere are
    added to ``dangling``, as they would show in the report.
    """
    found: list[Candidate] = []
    for path in paths:
        found += _in_url(path) if "://" in path else _in_path(path)
    wanted = [c for c in (_told_apart(found) if len(paths) > 1 else found) if only is None or _matches(c, only)]
    lost = [candidate.display for candidate in wanted if candidate.size == _NOWHERE]
    chosen = _once([candidate for candidate in wanted if candidate.size != _NOWHERE])
    if dangling is not None:
        dangling += lost
    if not chosen:
        _refuse_empty_captures(paths)
        reason = "no file in it" if only is None else f"no file matches {only!r}"
        if lost:
            reason = f"{lost[0]} is a link that leads nowhere"
        hint = "give the folder of a capture or a trace file"
        if found and not lost:
            hint = f"--only is a glob on names or paths, such as {os.path.basename(found[0].path)!r}"
        raise InputRefused(f"{', '.join(paths)}: {reason}", hint=hint)
    return sorted(chosen, key=lambda candidate: candidate.path)


def _once(found: list[Candidate]) -> list[Candidate]:
    """Each file once, however many of the paths, links to folders and links beside it lead to it."""
    folders: dict[str, str] = {}
    unique: dict[str, Candidate] = {}
    for candidate in found:
        if "://" in candidate.path:
            unique[candidate.path] = candidate
        else:
            folder, name = os.path.split(candidate.path)
            if folder not in folders:
                folders[folder] = os.path.realpath(folder)
            unique[os.path.join(folders[folder], name)] = candidate
    # A link to a file that is not meant itself stands for it.
    return [it for place, it in unique.items() if not os.path.islink(place) or os.path.realpath(place) not in unique]


def _told_apart(found: list[Candidate]) -> list[Candidate]:
    """Candidates of several paths under names that say which they came from: those of folders, and equal ones."""
    names = Counter(candidate.display for candidate in found)
    return [
        candidate
        if "://" in candidate.path or (candidate.named and names[candidate.display] == 1)
        else replace(candidate, display=candidate.path)
        for candidate in found
    ]


def _refuse_empty_captures(paths: Iterable[str]) -> None:
    """Say why a capture folder holds no trace, if its manifests know."""
    for path in paths:
        if os.path.isdir(path) and any(name.endswith(SUFFIX) for name in os.listdir(path)):
            reasons = sorted({manifest.reason or "no reason given" for manifest in read_manifests(path)})
            raise InputRefused(f"{path}: the capture wrote no trace: {'; '.join(reasons)}", hint="capture again")


def _matches(candidate: Candidate, only: str) -> bool:
    return fnmatch.fnmatch(os.path.basename(candidate.path), only) or fnmatch.fnmatch(candidate.display, only)


def _in_path(path: str) -> list[Candidate]:
    if path == "-":
        raise InputRefused("-: standard input is not read", hint="give a file or a folder")
    if os.path.isdir(path):
        return _in_folder(path)
    if not os.path.exists(path) and _GLOB_MARKS & set(path):
        matches = sorted(glob.glob(path, recursive=True))
        if not matches:
            raise InputRefused(f"{path}: matches no file", hint="check the pattern")
        return [candidate for match in matches for candidate in _in_path(match)]
    if not os.path.exists(path):
        raise InputRefused(f"{path}: no such file", hint="check the path")
    if not os.path.isfile(path):
        _refuse_stream(path)
    manifest = _manifests(os.path.dirname(path) or ".").get(os.path.basename(path))
    return [Candidate(path, os.path.basename(path), True, manifest, os.path.getsize(path))]


def _refuse_stream(path: str) -> NoReturn:
    """Several passes go over an input, some of them in other processes, and each begins at its start."""
    mode = os.stat(path).st_mode
    if stat.S_ISFIFO(mode):
        raise InputRefused(f"{path}: is a pipe, not a file", hint="write what comes from it to a file and give that")
    kind = "socket" if stat.S_ISSOCK(mode) else "device"
    raise InputRefused(f"{path}: is a {kind}, not a file", hint="give a trace file or the folder of a capture")


def _in_folder(folder: str) -> list[Candidate]:
    found = []
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        manifests = _manifests(base) if any(name.endswith(SUFFIX) for name in names) else {}
        if manifests:
            # A step recorded after a slow one is a capture of its own, of the same ranks; the report names it.
            folders[:] = [name for name in folders if not name.startswith(SLOW_PREFIX)]
        for name in sorted(names):
            path = os.path.join(base, name)
            if name.startswith(".") or name.endswith(SUFFIX):
                continue
            if not os.path.isfile(path):
                if os.path.islink(path) and not os.path.exists(path):
                    found.append(Candidate(path, os.path.relpath(path, folder), False, None, _NOWHERE))
                continue
            found.append(
                Candidate(path, os.path.relpath(path, folder), False, manifests.get(name), os.path.getsize(path))
            )
    return found


def manifests_without_trace(candidates: Iterable[Candidate]) -> list[Manifest]:
    """Manifests of captures that wrote no trace, from the folders of the candidates; each says why."""
    folders = sorted(
        {os.path.dirname(candidate.path) or "." for candidate in candidates if "://" not in candidate.path}
    )
    return [
        manifest
        for folder in folders
        if any(name.endswith(SUFFIX) for name in os.listdir(folder))
        for manifest in read_manifests(folder)
        if manifest.trace is None
    ]


def _manifests(folder: str) -> dict[str, Manifest]:
    if not any(name.endswith(SUFFIX) for name in os.listdir(folder)):
        return {}
    return {manifest.trace: manifest for manifest in read_manifests(folder) if manifest.trace}


def _refuse_missing(url: str, error: ImportError) -> NoReturn:
    """fsspec names the packages: ``requires "requests" and "aiohttp"``, ``Please install gcsfs``."""
    words = str(error)
    packages = re.findall(r'"([\w.-]+)"', words) or re.findall(r"[Ii]nstall (?:the )?([\w.-]+)", words)
    if not packages:
        raise InputRefused(f"{url}: {words}", hint="install the package that it names") from None
    scheme = url.partition("://")[0]
    needed = " and ".join(packages)
    are = "are" if len(packages) > 1 else "is"
    hint = f"pip install {' '.join(packages)}"
    raise InputRefused(f"{url}: {scheme}:// needs {needed}, which {are} not installed", hint=hint) from None


def _in_url(url: str) -> list[Candidate]:
    import fsspec

    try:
        filesystem, inner = fsspec.url_to_fs(url)
        if _GLOB_MARKS & set(inner):
            inside = sorted(filesystem.glob(inner))
        elif filesystem.isdir(inner):
            inside = sorted(filesystem.find(inner))
        else:
            return [Candidate(url, url, True, None, int(filesystem.size(inner) or 0))]
        return [
            Candidate(filesystem.unstrip_protocol(name), name, False, None, int(filesystem.size(name) or 0))
            for name in inside
            if not name.endswith(SUFFIX)
        ]
    except FileNotFoundError:
        raise InputRefused(f"{url}: no such file", hint="check the URL") from None
    except ImportError as error:
        _refuse_missing(url, error)
    except (OSError, ValueError) as error:
        raise InputRefused(f"{url}: {' '.join(str(error).split())}", hint="check the URL") from None
