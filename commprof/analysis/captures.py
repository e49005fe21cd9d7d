"""Two files for one rank: how to choose one of the captures that lie together."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex

_NUMBER = re.compile(r"\d+")
_GENERAL = (
    "choose one capture with --only, such as --only 'rank-?????.pt*' or --only '*.2.*'; "
    "or name the files rank0.json, rank1.json, ..."
)


def hint_to_choose(one: str, other: str, rank: int) -> str:
    """What to add to the command so that only one of the captures is read that hold ``one`` and ``other``.

    Both are paths in the folder that was given, of files of ``rank``. Captures in folders of their own are told apart
    by the folder, others by the form of their names, if no form fits both.
    """
    folders = os.path.dirname(one), os.path.dirname(other)
    if folders[0] != folders[1] and all(folders):
        patterns = [f"{folder}/*" for folder in folders]
    else:
        patterns = [_form(path, rank) for path in (one, other)]
    if any(_fits(path, pattern) for path, pattern in ((one, patterns[1]), (other, patterns[0]))):
        return _GENERAL
    first, second = map(shlex.quote, patterns)
    first_do = "hold them against each other with commprof compare, or " if patterns[0].endswith("/*") else ""
    return f"two captures lie there; {first_do}choose one with --only {first} or --only {second}"


def _form(path: str, rank: int) -> str:
    """The name of a file with the number of its rank left open: ``rank-?????.json``, ``rank[0-9]*.json``."""
    name = os.path.basename(path)
    for found in _NUMBER.finditer(name):
        if int(found[0]) == rank:
            padded = len(found[0]) > 1 and found[0].startswith("0")
            return name[: found.start()] + ("?" * len(found[0]) if padded else "[0-9]*") + name[found.end() :]
    return name


def _fits(path: str, pattern: str) -> bool:
    """As ``--only`` compares: the name or the whole path."""
    return fnmatch.fnmatch(os.path.basename(path), pattern) or fnmatch.fnmatch(path, pattern)
