"""What a file says about itself beside its events: rank, world size, process groups, host, devices."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from commprof.trace.model import FileFacts, ProcessGroup

_DIGITS = re.compile(r"\s*[0-9]{1,18}\s*")
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:rank|worker|r)[-_.]?([0-9]{1,6})(?![0-9a-z])", re.IGNORECASE)


def decide_rank(facts: FileFacts, metadata: dict[str, Any], manifest_rank: int | None, stated: int | None) -> list[str]:
    """Set ``facts.rank`` and its source: the content wins over the manifest, that over the name, else it is 0.

    ``stated`` is the rank in ``distributedInfo``. Returns warnings, one line each.
    """
    in_name = rank_in_name(facts.path)
    if stated is not None:
        facts.rank, facts.rank_source = stated, "distributedInfo"
        if in_name is not None and in_name != stated:
            return [f"{facts.path}: the file says rank {stated}, its name {in_name}; rank {stated} is used"]
        return []
    if manifest_rank is not None:
        facts.rank, facts.rank_source = manifest_rank, "manifest"
        return []
    if in_name is not None:
        facts.rank, facts.rank_source = in_name, "filename"
        return [f"{facts.path}: no rank in the file; rank {in_name} is taken from its name"]
    return [f"{facts.path}: no rank in the file or its name; rank 0 is assumed"]


def rank_in_name(path: str) -> int | None:
    """The rank that a file name states (``host_rank3.json``, ``r0-x.json``), ``None`` if it states none."""
    found = _RANK_IN_NAME.findall(os.path.basename(path))
    return int(found[-1]) if found else None


class Distributed:
    """``distributedInfo`` in any of its spellings; what cannot be read is counted in ``bad`` and ignored."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.bad = 0
        info = self._decoded(metadata.get("distributedInfo"), dict) or {}
        self.rank = self._number(info, "rank")
        self.world_size = self._number(info, "world_size")
        backend = info.get("backend")
        self.backend = backend if isinstance(backend, str) and backend else None
        entries = self._decoded(info.get("pg_config"), list) or []
        self.groups = tuple(group for entry in entries if (group := self._group(entry)) is not None)

    def _decoded(self, value: Any, kind: type) -> Any:
        """The value, or the value that its text holds; older and on-demand captures write JSON in a string."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                self.bad += 1
                return None
        if value is None:
            return None
        if not isinstance(value, kind):
            self.bad += 1
            return None
        return value

    def _number(self, info: dict[str, Any], key: str) -> int | None:
        value = info.get(key)
        if value is None:
            return None
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
            self.bad += 1
            return None
        return value

    def _group(self, entry: Any) -> ProcessGroup | None:
        if not isinstance(entry, dict):
            self.bad += 1
            return None
        name = entry.get("pg_name", entry.get("uid"))
        ranks = entry.get("ranks")
        members = parse_ranks(ranks)
        if ranks is not None and members is None and not (isinstance(ranks, str) and "..." in ranks):
            self.bad += 1
        size = self._number(entry, "pg_size")
        if size is None and members is not None:
            size = len(members)
        description = entry.get("pg_desc", entry.get("uid", ""))
        return ProcessGroup("" if name is None else str(name), str(description or ""), size, members)


def parse_ranks(value: Any) -> tuple[int, ...] | None:
    """Members of a group from a list or its text; ``None`` if it is absent, unreadable or shortened with ``...``."""
    if isinstance(value, str):
        text = value.strip()
        if not re.fullmatch(r"\[\s*(?:[0-9]{1,9}\s*(?:,\s*[0-9]{1,9}\s*)*)?\]", text):
            return None
        value = [int(number) for number in re.findall(r"\d+", text)]
    if isinstance(value, list) and all(type(rank) is int and 0 <= rank < 1 << 31 for rank in value):
        return tuple(value) or None
    return None


def shown_ranks(value: Any) -> tuple[int, ...]:
    """The members that a list shortened with ``...`` still shows; empty for anything else."""
    if not isinstance(value, str) or "..." not in value:
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", value) if len(number) < 10)


def device_facts(metadata: dict[str, Any]) -> tuple[tuple[str, ...], tuple[int | None, ...]]:
    """Names and numbers of multiprocessors of the devices, by device index."""
    entries = metadata.get("deviceProperties")
    names: list[str] = []
    counts: list[int | None] = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            count = entry.get("numSms")
            names.append(str(entry.get("name", "")))
            counts.append(count if type(count) is int and 0 < count < 1 << 31 else None)
    return tuple(names), tuple(counts)


def text_or_none(value: Any) -> str | None:
    """A non-empty string as it is, anything else as ``None``."""
    return value if isinstance(value, str) and value else None
