"""All-to-alls with unequal splits: who sent and received how much (``spec``: sections 6 and 9)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.waiting import MatchTimes
from commprof.trace.model import UNKNOWN_SIZE

_MATRIX_MEMBERS = 64
"""Larger tables of who sends to whom are not kept: nobody reads them, and they grow with the square."""


@dataclass(frozen=True, slots=True)
class Imbalance:
    """One all-to-all with unequal splits: bytes by rank, ``None`` where a rank does not say. ``ratio`` is the largest
    over the mean of the bytes sent, ``ratio_received`` of those received. ``per_peer[i][j]`` are the bytes from the
    ``i``-th to the ``j``-th of ``members`` (global ranks); where it is ``None``, ``per_peer_missing`` says why."""

    match: int
    group: int
    step: str | None
    sent: dict[int, int | None]
    received: dict[int, int | None]
    members: tuple[int, ...] | None
    per_peer: list[list[int]] | None
    per_peer_missing: str | None
    ratio: float | None
    ratio_received: float | None


def find_imbalance(analysis: Analysis, found: Matching, times: MatchTimes) -> list[Imbalance]:
    """One entry per match whose splits are unequal on any rank, in order of time."""
    calls = found.calls
    out = []
    for match in np.flatnonzero(times.uneven).tolist():
        rows = found.rows[int(found.first[match]) : int(found.first[match + 1])]
        sent, received = {}, {}
        stated, cut = {}, False
        for row in rows.tolist():
            index = int(calls.rank[row])
            own, place = analysis.ranks[index].calls, row - int(calls.first[index])
            number = analysis.ranks[index].rank
            sent[number], received[number] = _known(own.sent_bytes[place]), _known(own.received_bytes[place])
            if place in own.splits and own.splits[place][0] is not None:
                stated[number] = own.splits[place][0]
            cut |= place in own.shortened
        step = int(calls.step[rows[0]])
        members = analysis.groups[found.group[match]].ranks
        matrix = _matrix(members, stated)
        out.append(
            Imbalance(
                match,
                int(found.group[match]),
                calls.step_names[step] if step >= 0 else None,
                sent,
                received,
                members,
                matrix,
                None if matrix is not None else _why_not(members, set(sent), cut),
                _ratio(sent),
                _ratio(received),
            )
        )
    return out


def _known(value: np.int64) -> int | None:
    return None if value == UNKNOWN_SIZE else int(value)


def _ratio(values: dict[int, int | None]) -> float | None:
    """Largest over mean; ``None`` where a rank does not say or nothing moves."""
    known = [value for value in values.values() if value is not None]
    if not known or len(known) < len(values) or not sum(known):
        return None
    return max(known) * len(known) / sum(known)


def _matrix(members: tuple[int, ...] | None, stated: dict[int, tuple[int, ...] | None]) -> list[list[int]] | None:
    if members is None or len(members) > _MATRIX_MEMBERS:
        return None
    rows = [stated.get(rank) for rank in members]
    if any(row is None or len(row) != len(members) for row in rows):
        return None
    return [list(row) for row in rows if row is not None]


def _why_not(members: tuple[int, ...] | None, given: set[int], cut: bool) -> str:
    """Why nothing is known of the bytes between each two members; ``given`` are the ranks in the input."""
    if cut:
        return "split sizes truncated"
    if members is None:
        return "members of the group unknown"
    if len(members) > _MATRIX_MEMBERS:
        return f"more than {_MATRIX_MEMBERS} members"
    return "split sizes not stated" if given.issuperset(members) else "traces of members missing"
