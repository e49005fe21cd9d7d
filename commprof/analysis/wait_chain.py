"""From the longest wait of the worst step back to the rank where it began (``spec``: section 10).

A rank that comes late to one group may have waited in another. Each link says who waited for whom in which call, and
what the late rank had done before it came; the last link is the one whose late rank was held up by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commprof.analysis.blame import CAUSE_OF, compute_excess
from commprof.analysis.charges import Charges
from commprof.analysis.core_noise import SLOW_CORE
from commprof.analysis.lateness import INHERITED, REASONS
from commprof.analysis.matching import NO_MATCH, Matching
from commprof.analysis.model import Analysis
from commprof.analysis.peers import Peers
from commprof.analysis.segments import smallest
from commprof.analysis.stragglers import SHARE_OF_STEP, Straggler, ledger_of
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

WAITING = "waiting"
"""A late rank that waited for others itself: the next link says for whom."""
_MOST_LINKS = 12
"""Longer chains are not read. A chain that is cut here ends with a rank that waited itself, and says so."""
_LEAST_SHARE = 0.005
"""Activities below this share of a lateness would be printed as 0 or 1 %."""


@dataclass(frozen=True, slots=True)
class Link:
    """``rank`` waited ``wait`` ns for ``waited_for`` in a call of ``group`` (-1: unknown), the match ``match``.

    ``did`` is what made the late rank late: shares of its lateness by activity, :data:`WAITING` or ``inherited``, the
    largest first.
    """

    rank: int
    wait: int
    operation: str
    group: int
    match: int
    waited_for: int
    did: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class WaitChain:
    """The chain of step ``step``, in which late ranks cost every rank of the job ``lost`` ns; ``root`` is where it
    began and ``cause`` why, in the words for late ranks."""

    step: str
    lost: int
    links: tuple[Link, ...]
    root: int
    cause: str


def find_wait_chain(analysis: Analysis, found: Matching, charges: Charges, peers: Peers) -> WaitChain | None:
    """The chain of the step in which late ranks cost most; ``None`` if its longest wait is below 2 % of the step."""
    ledger = ledger_of(analysis, found, charges)
    names = found.calls.step_names
    if not ledger.names or not len(charges.late):
        return None
    lost = charges.direct.sum(axis=0)
    worst = max(range(len(ledger.names)), key=lambda index: float(lost[names.index(ledger.names[index])]))
    step = names.index(ledger.names[worst])
    way = _Way(analysis, found, charges)
    row, late = way.longest(step)
    if row < 0 or charges.waited[row] < SHARE_OF_STEP * ledger.length[worst]:
        return None
    links = [way.link(row, late)]
    while len(links) < _MOST_LINKS:
        row, following = way.before(late)
        if following < 0:
            break
        late = following
        links.append(way.link(row, late))
    root = int(charges.late.rank[late])
    return WaitChain(
        names[step], round(float(lost[step])), tuple(links), analysis.ranks[root].rank,
        _cause(analysis, peers, way, late, root, names[step]),
    )  # fmt: skip


class _Way:
    """Steps from one late entry (of :class:`~commprof.analysis.decided.LateRows`) to the one that it waited for."""

    def __init__(self, analysis: Analysis, found: Matching, charges: Charges) -> None:
        self.analysis, self.found, self.charges = analysis, found, charges
        self.lateness = charges.lateness
        clocks = analysis.clocks
        assert clocks is not None
        end = clocks.aligned(found.calls.end[found.rows], found.calls.rank[found.rows])
        self.finish = smallest(end, found.first)

    def longest(self, step: int) -> tuple[int, int]:
        """Row of the longest wait in a step that a late rank is charged with, and the late entry; -1 without any."""
        late, found = self.charges.late, self.found
        count = np.diff(late.first)
        mine = (self.charges.step[found.rows] == step) & (count[found.of_row] > 0)
        rows = found.rows[mine]
        if not len(rows):
            return -1, -1
        best = int(rows[self.charges.waited[rows].argmax()])
        return best, int(late.first[found.match[best]])

    def link(self, row: int, entry: int) -> Link:
        """Who waits in ``row`` for the rank of a late entry."""
        calls, late = self.found.calls, self.charges.late
        passing, local = float(self.lateness.passing[entry]), self.lateness.local[entry]
        shares = [*zip(REASONS, local.tolist(), strict=True), (WAITING, passing)]
        return Link(
            rank=int(calls.numbers[calls.rank[row]]),
            wait=int(self.charges.waited[row]),
            operation=OPERATIONS[calls.operation[row]],
            group=int(calls.group[row]),
            match=int(late.match[entry]),
            waited_for=int(calls.numbers[late.rank[entry]]),
            did=tuple(sorted((one for one in shares if one[1] >= _LEAST_SHARE), key=lambda one: -one[1])),
        )

    def before(self, entry: int) -> tuple[int, int]:
        """The call in which the rank of a late entry waited most before, and the late entry of that; -1 for none.

        None if it was held up by what it did itself more than by others.
        """
        lateness, late = self.lateness, self.charges.late
        if lateness.passing[entry] <= lateness.local[entry].max():
            return -1, -1
        low, high = int(lateness.low[entry]), int(lateness.high[entry])
        target = lateness.target[low:high]
        weight = lateness.held_up(entry)
        usable = (target != NO_MATCH) & (weight > 0)
        usable &= np.where(usable, late.first[target + 1] > late.first[target], False)
        usable &= np.where(usable, self.finish[target] < self.finish[late.match[entry]], False)
        matches, inverse = np.unique(target[usable], return_inverse=True)
        if not len(matches):
            return -1, -1
        match = int(matches[np.bincount(inverse, weight[usable]).argmax()])
        following = int(late.first[match])
        if late.rank[following] == late.rank[entry]:
            return -1, -1
        return self._row(match, int(late.rank[entry])), following

    def _row(self, match: int, rank: int) -> int:
        """Row of a rank in a match."""
        rows: Int64Array = self.found.rows[self.found.first[match] : self.found.first[match + 1]]
        return int(rows[np.flatnonzero(self.found.calls.rank[rows] == rank)[0]])


def _cause(analysis: Analysis, peers: Peers, way: _Way, entry: int, root: int, step: str) -> str:
    """Why the last rank of the chain was late; that of the late rank that is named, if it is one."""
    named = _named(analysis.stragglers, analysis.ranks[root].rank)
    if named is not None:
        return named.cause
    local = way.lateness.local[entry]
    if way.lateness.passing[entry] > local.max():
        # It waited, but for nobody in the capture of whom it is known.
        return CAUSE_OF[INHERITED]
    reason = int(local.argmax())
    if reason in CAUSE_OF:
        return CAUSE_OF[reason]
    excess = compute_excess(analysis, peers, root, [step])
    if excess is None:
        return "unknown"
    if excess.slower < excess.more:
        return "more-work"
    # Cores that ranks share differ without any fault of theirs; one that differs by more is named, and stands above.
    return "unknown" if analysis.ranks[root].on_cpu and excess.pace < SLOW_CORE else "slow-device"


def _named(stragglers: list[Straggler], rank: int) -> Straggler | None:
    """The late rank that is named, or the stage, host or replica that a rank belongs to."""
    return next((late for late in stragglers if late.rank == rank or rank in late.members), None)
