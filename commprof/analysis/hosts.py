"""Which host each rank runs on, and whether a group of ranks crosses hosts.

A file of hosts (``--hosts``) wins over what traces and captures say of themselves. It has one of two forms; blank
lines and what follows ``#`` are ignored:

* ``RANK HOST`` on each line, ranks as one number or a range: ``0-7 node1``;
* a hostfile as MPI and DeepSpeed use it, ``HOST slots=8``: ranks are placed in the order of its lines. A host
  without ``slots`` takes one rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from commprof.analysis.model import Analysis
from commprof.errors import InputRefused

_RANKS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?:?")
_SLOTS = re.compile(r"(?:slots|max_slots|max-slots)=(\d{1,6})")
_MOST_RANKS = 1 << 20
_FORMS = "write lines 'RANK HOST' (0-7 node1), or a hostfile with lines 'HOST slots=8'"


def find_hosts(analysis: Analysis, path: str | None) -> dict[int, str]:
    """Host of every rank of which one is known: from the file if one is given, else from captures and traces.

    Raises :class:`~commprof.errors.InputRefused` for a file that cannot be understood. A file of another run, with
    ranks that this one does not have or without some that it has, is used as far as it goes, and that is said.
    """
    if path is not None:
        hosts = read_hosts(path)
        analysis.warnings += _strangers(path, hosts, analysis)
        return hosts
    hosts = {manifest.rank: manifest.host for manifest in analysis.manifests if manifest.host}
    hosts.update({rank.rank: rank.file.host for rank in analysis.ranks if rank.file.host})
    return hosts


def _strangers(path: str, hosts: Mapping[int, str], analysis: Analysis) -> list[str]:
    """One line about ranks that only the file or only the run has; none where both name the same."""
    have = {rank.rank for rank in analysis.ranks}
    world = analysis.world_size or max(have, default=0) + 1
    extra = sorted(rank for rank in hosts if rank >= world)
    without = sorted(have - set(hosts))
    parts = [f"it names {_listed(extra)}, and the run has {world} ranks"] if extra else []
    parts += [f"it has no host for {_listed(without)}"] if without else []
    return [f"{path}: {'; '.join(parts)}"] if parts else []


def _listed(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def read_hosts(path: str) -> dict[int, str]:
    """The hosts of a file in one of the two forms; raises :class:`~commprof.errors.InputRefused`."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.partition("#")[0].split() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise InputRefused(f"{path}: cannot be read: {reason}", hint=_FORMS) from None
    filled = [(number, words) for number, words in enumerate(lines, start=1) if words]
    if not filled:
        raise InputRefused(f"{path}: names no host", hint=_FORMS)
    by_rank = [len(words) == 2 and _RANKS.fullmatch(words[0]) is not None for _, words in filled]
    if all(by_rank):
        return _ranked(path, filled)
    if any(by_rank):
        number = filled[by_rank.index(False)][0]
        raise InputRefused(f"{path}: line {number} names no rank, others do", hint=_FORMS)
    return _slotted(path, filled)


def crosses_hosts(ranks: Sequence[int] | None, hosts: Mapping[int, str]) -> bool | None:
    """Whether these ranks sit on more than one host; ``None`` where that is not known.

    Two known hosts are enough for a yes; a no needs the host of every rank.
    """
    if not ranks:
        return None
    known = {hosts[rank] for rank in ranks if rank in hosts}
    if len(known) > 1:
        return True
    return False if all(rank in hosts for rank in ranks) else None


def ranks_per_host(ranks: Iterable[int], hosts: Mapping[int, str]) -> list[int] | None:
    """How many of the ranks each host holds; ``None`` where a host is not known."""
    counts: dict[str, int] = {}
    for rank in ranks:
        if rank not in hosts:
            return None
        counts[hosts[rank]] = counts.get(hosts[rank], 0) + 1
    return list(counts.values())


def _ranked(path: str, lines: list[tuple[int, list[str]]]) -> dict[int, str]:
    hosts: dict[int, str] = {}
    for number, (ranks, host) in lines:
        match = _RANKS.fullmatch(ranks)
        assert match is not None
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= _MOST_RANKS:
            raise InputRefused(
                f"{path}: line {number}: {ranks} is no range of ranks: the last there can be is {_MOST_RANKS - 1:,}",
                hint=_FORMS,
            )
        if last < first:
            raise InputRefused(f"{path}: line {number}: {ranks} is no range of ranks", hint=_FORMS)
        for rank in range(first, last + 1):
            if hosts.setdefault(rank, host) != host:
                raise InputRefused(f"{path}: line {number}: rank {rank} is on {hosts[rank]} and on {host}", hint=_FORMS)
    return hosts


def _slotted(path: str, lines: list[tuple[int, list[str]]]) -> dict[int, str]:
    hosts: dict[int, str] = {}
    for number, (host, *options) in lines:
        slots = 1
        for option in options:
            match = _SLOTS.fullmatch(option)
            if match is None:
                raise InputRefused(f"{path}: line {number}: {option!r} is not understood", hint=_FORMS)
            if option.startswith("slots"):
                slots = int(match[1])
        if len(hosts) + slots > _MOST_RANKS:
            raise InputRefused(f"{path}: line {number}: more than {_MOST_RANKS:,} ranks in all", hint=_FORMS)
        for _ in range(slots):
            hosts[len(hosts)] = host
    return hosts
