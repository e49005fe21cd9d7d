"""What other ranks tell of a rank's exposed time: which of it was waiting for a peer, and why a long start was long."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.combine import ranks_text
from commprof.analysis.exposedwait import waiting_pieces
from commprof.analysis.flags import FIRST_USE, PROFILER_START
from commprof.analysis.model import Analysis, Note, NoteCode, RankAnalysis
from commprof.analysis.places import CAUSES, NOWHERE, PEER_WAIT, UNKNOWN_CAUSE
from commprof.analysis.purposes import POINT_TO_POINT
from commprof.analysis.waiting import CallWaits
from commprof.intervals import Int64Array
from commprof.trace.model import NOT_LAUNCHED, Calls
from commprof.units import format_ns, format_share

_STRUCTURAL, _PROFILER_START, _FIRST_USE = (
    CAUSES.index(name) for name in ("structural", "profiler-start", "first-use")
)


def refine_with_waits(analysis: Analysis) -> None:
    """Take waiting for peers out of the causes of every rank, and tell the first use of a communicator from the start
    of a profiler: the one is long on all members, the other on those that started first.

    The host-bound part stays what it is. A message of a pipeline needs its peer to be understood: what of it is no
    waiting is the dependency of one stage on the other. Where nothing tells the wait (a send without a common clock,
    messages that cannot be matched though all members of their group are there), one that lasts twice the shortest of
    its kind is taken to have waited for its peer.
    """
    _share_flags(analysis)
    _note_starts(analysis)
    have = {rank.rank for rank in analysis.ranks}
    whole = [bool(facts.ranks) and have.issuperset(facts.ranks or ()) for facts in analysis.groups]
    for rank, groups, waits in zip(analysis.ranks, analysis.group_of, analysis.waiting, strict=True):
        if len(rank.causes.cause):
            complete = np.array([*(whole[group] for group in groups), False])[rank.calls.group]
            _refine(rank, waits, complete & (len(have) > 1))


def _refine(rank: RankAnalysis, waits: CallWaits, complete: NDArray[np.bool_]) -> None:
    pieces, causes, flag = rank.shares.pieces, rank.causes, rank.places.flag[rank.shares.pieces.call]
    known = waits.wait >= 0
    waiting = waiting_pieces(pieces, rank.calls.start, waits.wait)
    counts = known[pieces.call] & (flag == NOWHERE)
    causes.wait = np.where(counts, np.maximum(np.minimum(waiting, pieces.ns - causes.host), 0), causes.wait)
    open_ = (causes.cause == UNKNOWN_CAUSE) & (flag == NOWHERE)
    message = (rank.places.purpose == POINT_TO_POINT) & (rank.calls.issued != NOT_LAUNCHED)
    message &= (waits.match >= 0) | complete
    causes.cause[open_ & (message & known)[pieces.call]] = _STRUCTURAL
    silent = message & ~known
    long = silent & (rank.calls.duration >= 2 * _shortest(rank.calls))
    causes.cause[open_ & silent[pieces.call]] = _STRUCTURAL
    causes.cause[open_ & long[pieces.call]] = PEER_WAIT
    causes.cause[flag == FIRST_USE] = _FIRST_USE
    causes.cause[flag == PROFILER_START] = _PROFILER_START


def _shortest(calls: Calls) -> Int64Array:
    """For each call the shortest duration among those of its operation, group, peer and size."""
    kinds = np.stack([calls.operation.astype(np.int64), calls.group.astype(np.int64), calls.peer, calls.size_bytes])
    _, kind = np.unique(kinds, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    shortest = np.full(int(kind.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, kind, calls.duration)
    return shortest[kind]


def _share_flags(analysis: Analysis) -> None:
    """One flag for all rows of a match."""
    matching = analysis.matching
    if matching is None or not len(matching):
        return
    flag = np.concatenate([rank.places.flag for rank in analysis.ranks])
    row, match = matching.rows, matching.of_row
    flagged = np.bincount(match, weights=flag[row] == PROFILER_START, minlength=len(matching))
    members = np.bincount(match, minlength=len(matching))
    shared = np.where(flagged == 0, NOWHERE, np.where(flagged == members, FIRST_USE, PROFILER_START)).astype(np.int8)
    flag[row] = np.where(shared[match] == NOWHERE, flag[row], shared[match])
    borders = np.cumsum([len(rank.calls) for rank in analysis.ranks])[:-1]
    for rank, part in zip(analysis.ranks, np.split(flag, borders), strict=True):
        rank.places.flag = part


def _note_starts(analysis: Analysis) -> None:
    """Say how much of exposed communication is calls that only the start of a recording or a communicator made long."""
    total = sum(int(rank.shares.exposed.sum()) for rank in analysis.ranks)
    either = "the start of the recording or of a communicator made long"
    waited = "waited for other ranks to start recording" if len(analysis.ranks) > 1 else either
    reasons: tuple[tuple[int, NoteCode, str], ...] = (
        (PROFILER_START, "profiler-start", waited),
        (FIRST_USE, "first-use", "set up their communicator"),
    )
    for flag, code, why in reasons:
        found = {rank.rank: rank.shares.exposed[rank.places.flag == flag] for rank in analysis.ranks}
        found = {rank: exposed for rank, exposed in found.items() if exposed.any()}
        ns, count = (sum(int(of(exposed)) for exposed in found.values()) for of in (np.sum, len))
        if found:
            who = f"{'rank' if len(found) == 1 else 'ranks'} {ranks_text(list(found))}"
            what = f"{count:,} {'call that' if count == 1 else 'calls that'} {why} had {format_ns(ns)} of exposed time"
            share = f"{format_share(ns / total)} of exposed communication"
            rest = "The split counts it; averages, bandwidth and late ranks do not."
            analysis.notes.append(Note(code, f"{who}: {what}, {share}. {rest}"))
