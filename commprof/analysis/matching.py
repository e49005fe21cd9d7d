"""One call over all ranks (``spec``: section 5): which rows are the same call, who is missing, what stays unmatched."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.all_calls import AllCalls, gather_calls
from commprof.analysis.exchanges import EXCHANGE, find_exchanges
from commprof.analysis.lanes import NO_LANE, Lanes, changes, find_lanes
from commprof.analysis.model import Analysis, Note
from commprof.analysis.pairing import Pairs, pair_calls, steps_carried_on
from commprof.intervals import Int64Array

REASONS = ("window-edge", "rank-missing", "extra-call", "group-unknown", "ambiguous")
_WINDOW_EDGE, _RANK_MISSING, _EXTRA_CALL, _GROUP_UNKNOWN, _AMBIGUOUS = range(len(REASONS))

NO_MATCH = -1
COLLECTIVE = -1
"""Source and sink of a match that is no message."""
UNKNOWN_MEMBERS = -1
_LISTED = 200


@dataclass(frozen=True, slots=True)
class Unmatched:
    """One call that some of its members in the input (``absent``) took no part in, as far as can be seen."""

    reason: str
    group: int
    operation: int
    sequence: int
    present: tuple[int, ...]
    absent: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Matching:
    """Matches in order of their earliest start; ``rows[first[m]:first[m + 1]]`` are the rows of match ``m``, by rank.

    Per row of ``calls``: ``match`` (:data:`NO_MATCH`), ``reason`` (index into :data:`REASONS`, -1 where matched) and
    ``missing``, the members that no row speaks for (-1: unknown). Per match: ``group``, ``operation`` (of its first
    row), ``source`` and ``sink`` of messages (``COLLECTIVE``: none, ``EXCHANGE``: several), and ``absent``, the
    members that the input lacks (-1: unknown).
    """

    calls: AllCalls
    match: Int64Array
    reason: NDArray[np.int8]
    missing: Int64Array
    first: Int64Array
    rows: Int64Array
    group: Int64Array
    operation: NDArray[np.int8]
    source: Int64Array
    sink: Int64Array
    absent: Int64Array
    unmatched_by_reason: dict[str, int]
    unmatched: list[Unmatched] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.group)

    @property
    def of_row(self) -> Int64Array:
        """Match of each entry of ``rows``."""
        return np.repeat(np.arange(len(self)), np.diff(self.first))


def match_calls(analysis: Analysis, left_out: Collection[int] = ()) -> Matching:
    """Match the calls of all ranks; what could not be matched becomes counts, a list and a note.

    Ranks ``left_out`` (indices into the input) count as missing.
    """
    calls = gather_calls(analysis)
    lanes = find_lanes(calls)
    lanes.leave_out(calls, left_out)
    pairs = pair_calls(calls, lanes)
    _join_batches(analysis, calls, lanes, pairs)
    found = _settle(analysis, calls, lanes, pairs)
    _notes(analysis, found, lanes, pairs)
    return found


def _join_batches(analysis: Analysis, calls: AllCalls, lanes: Lanes, pairs: Pairs) -> None:
    """Give batches of messages, and the single calls that they meet, lanes and keys of their own, in place."""
    found = find_exchanges(analysis, calls, lanes.compared, steps_carried_on(calls))
    if found is None:
        return
    groups = sorted(set(found.group.values()))
    base, key = len(lanes), int(pairs.key.max(initial=-1)) + 1
    # Per group one lane for batches whose partners are all in the input, and one for the others.
    lanes.append(
        np.repeat(np.array(groups, np.int64), 2),
        np.tile([EXCHANGE, EXCHANGE], len(groups)),
        np.tile([0, 1], len(groups)),
    )
    for row in np.flatnonzero(found.component >= 0).tolist():
        number = int(found.component[row])
        lanes.lane[row] = base + 2 * groups.index(found.group[number]) + (number in found.missing)
        pairs.key[row], pairs.ambiguous[row] = key + number, False
    loose = np.flatnonzero(np.isin(found.component, list(found.broken)))
    pairs.key[loose] = key + len(found.group) + np.arange(len(loose))


@dataclass(slots=True, eq=False)
class _Candidates:
    """Rows that could be one call, grouped by key: ``rows`` by key, time and rank, ``first`` of each group."""

    rows: Int64Array
    first: Int64Array
    lane: Int64Array
    present: Int64Array
    begins: Int64Array


def _candidates(calls: AllCalls, lanes: Lanes, pairs: Pairs) -> _Candidates:
    rows = np.flatnonzero(pairs.key >= 0)
    rows = rows[np.lexsort((calls.rank[rows], pairs.key[rows]))]
    first = np.flatnonzero(changes(pairs.key[rows])) if len(rows) else np.empty(0, np.int64)
    present = np.diff(np.append(first, len(rows)))
    begins = np.minimum.reduceat(calls.start[rows], first) if len(rows) else first
    return _Candidates(rows, first, lanes.lane[rows[first]], present, begins)


def _settle(analysis: Analysis, calls: AllCalls, lanes: Lanes, pairs: Pairs) -> Matching:
    """Keep the candidates that every member in the input takes part in; say of the others why not."""
    found = _candidates(calls, lanes, pairs)
    given, size = _members(analysis, calls, lanes)
    absent = np.where(size < 0, UNKNOWN_MEMBERS, size - given)[found.lane]
    whole = (found.present >= given[found.lane]) & (found.present >= 2)
    reason = np.full(len(calls), -1, np.int8)
    reason[lanes.lane == NO_LANE] = _GROUP_UNKNOWN
    reason[~np.isin(calls.rank, lanes.compared)] = _RANK_MISSING
    reason[pairs.ambiguous] = _AMBIGUOUS
    why = _why(found, whole, given)
    of_row = np.repeat(np.arange(len(whole)), found.present)
    reason[found.rows] = np.where(whole, -1, why)[of_row]
    missing = np.where(lanes.lane == NO_LANE, UNKNOWN_MEMBERS, np.append(size, -1)[lanes.lane] - 1)
    missing[missing < 0] = UNKNOWN_MEMBERS
    lacking = np.where(size[found.lane] < 0, UNKNOWN_MEMBERS, size[found.lane] - found.present)
    missing[found.rows] = np.where(lanes.source[found.lane] == EXCHANGE, absent, lacking)[of_row]
    return _numbered(analysis, calls, lanes, pairs, found, whole, absent, reason, missing)


def _numbered(
    analysis: Analysis, calls: AllCalls, lanes: Lanes, pairs: Pairs, found: _Candidates, whole: NDArray[np.bool_],
    absent: Int64Array, reason: NDArray[np.int8], missing: Int64Array,
) -> Matching:  # fmt: skip
    order = np.flatnonzero(whole)
    order = order[np.argsort(found.begins[order], kind="stable")]
    counts = found.present[order]
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    inside = np.arange(first[-1]) - np.repeat(first[:-1], counts)
    rows = found.rows[np.repeat(found.first[order], counts) + inside]
    match = np.full(len(calls), NO_MATCH, np.int64)
    match[rows] = np.repeat(np.arange(len(order)), counts)
    lane = found.lane[order]
    lost = _lost(analysis, calls, lanes, found, ~whole, reason)
    return Matching(
        calls, match, reason, missing, first, rows, lanes.group[lane], calls.operation[rows[first[:-1]]],
        lanes.source[lane], lanes.sink[lane], absent[order], _counts(found, ~whole, reason), lost,
    )  # fmt: skip


def _members(analysis: Analysis, calls: AllCalls, lanes: Lanes) -> tuple[Int64Array, Int64Array]:
    """Per lane: how many of its members are in the input, and how many it has (-1: unknown)."""
    numbers = calls.numbers[lanes.compared]
    have = set(numbers.tolist())
    seen = np.zeros(len(lanes), np.int64)
    rows = np.flatnonzero(lanes.lane != NO_LANE)
    if len(rows):
        rows = rows[np.lexsort((calls.rank[rows], lanes.lane[rows]))]
        np.add.at(seen, lanes.lane[rows][changes(lanes.lane[rows], calls.rank[rows])], 1)
    known = [None if facts.ranks is None else len(have.intersection(facts.ranks)) for facts in analysis.groups]
    in_input = np.array([-1 if count is None else count for count in known] + [-1], np.int64)
    sizes = np.array([_size(facts.size, facts.ranks) for facts in analysis.groups] + [-1], np.int64)
    pair = lanes.source >= 0
    ends = np.isin(lanes.source, numbers).astype(np.int64) + np.isin(lanes.sink, numbers)
    given = np.where(pair, ends, in_input[lanes.group])
    given = np.where(given < 0, seen, given)
    size = np.where(pair, 2, sizes[lanes.group])
    batch = lanes.source == EXCHANGE
    given, size = np.where(batch, 2 - lanes.sink, given), np.where(batch, 2, size)
    return given, np.where(size < given, np.where(size < 0, size, given), size)


def _size(size: int | None, ranks: tuple[int, ...] | None) -> int:
    return len(ranks) if ranks is not None else -1 if size is None else size


def _why(found: _Candidates, whole: NDArray[np.bool_], given: Int64Array) -> NDArray[np.int8]:
    """Why each candidate is no match: its peers are not in the input, a capture began or ended, a call is extra."""
    lanes = len(given)
    begin, end = np.full(lanes, np.iinfo(np.int64).max), np.full(lanes, np.iinfo(np.int64).min)
    np.minimum.at(begin, found.lane[whole], found.begins[whole])
    np.maximum.at(end, found.lane[whole], found.begins[whole])
    between = (found.begins > begin[found.lane]) & (found.begins < end[found.lane])
    why = np.where(between, _EXTRA_CALL, _WINDOW_EDGE)
    return np.where(given[found.lane] < 2, _RANK_MISSING, why).astype(np.int8)


def _counts(found: _Candidates, lost: NDArray[np.bool_], reason: NDArray[np.int8]) -> dict[str, int]:
    """Unmatched calls by reason: one for all ranks that took part, or one per rank where that is not known."""
    counts = np.bincount(reason[found.rows[found.first[lost]]], minlength=len(REASONS))
    loose = np.ones(len(reason), np.bool_)
    loose[found.rows] = False
    counts = counts + np.bincount(reason[loose & (reason >= 0)], minlength=len(REASONS))
    return dict(zip(REASONS, counts.tolist(), strict=True))


def _lost(
    analysis: Analysis, calls: AllCalls, lanes: Lanes, found: _Candidates, lost: NDArray[np.bool_],
    reason: NDArray[np.int8],
) -> list[Unmatched]:  # fmt: skip
    out = []
    have = set(calls.numbers[lanes.compared].tolist())
    for index in np.flatnonzero(lost)[:_LISTED].tolist():
        low = int(found.first[index])
        rows = found.rows[low : low + int(found.present[index])]
        lane = int(found.lane[index])
        present = tuple(calls.numbers[calls.rank[rows]].tolist())
        if lanes.source[lane] >= 0:
            members: tuple[int, ...] = (int(lanes.source[lane]), int(lanes.sink[lane]))
        else:
            members = analysis.groups[lanes.group[lane]].ranks or ()
        row = int(rows[0])
        out.append(
            Unmatched(
                REASONS[reason[row]], int(lanes.group[lane]), int(calls.operation[row]), int(calls.sequence[row]),
                present, tuple(sorted((set(members) & have) - set(present))),
            )
        )  # fmt: skip
    return out


def _notes(analysis: Analysis, found: Matching, lanes: Lanes, pairs: Pairs) -> None:
    if len(analysis.ranks) < 2:
        return
    lost = {reason: count for reason, count in found.unmatched_by_reason.items() if count}
    if lost:
        listed, total = ", ".join(f"{count:,} {reason}" for reason, count in lost.items()), sum(lost.values())
        analysis.notes.append(
            Note(
                "unmatched",
                f"{total:,} calls are not matched over ranks ({listed}); nothing is said about waiting in them.",
            )
        )
    if len(pairs.untrusted):
        groups = sorted({str(analysis.groups[lanes.group[lane]].name) for lane in pairs.untrusted.tolist()})
        analysis.notes.append(
            Note(
                "sequence-untrusted",
                f"group {', '.join(groups[:4])}: sequence numbers contradict operation or size; calls are matched by "
                "order.",
            )
        )
    _captures_apart(analysis, found)


def _captures_apart(analysis: Analysis, found: Matching) -> None:
    """Captures that share no instant and no call say nothing about each other."""
    calls = found.calls
    used = np.flatnonzero(np.diff(calls.first) > 0)
    if len(found) or len(used) < 2:
        return
    if calls.begins[used].max() >= calls.ends[used].min():
        analysis.notes.append(
            Note(
                "captures-apart",
                "The captures of the ranks do not overlap in time; every number is of one rank alone, nobody is late.",
            )
        )
