"""What a reader must know of the clocks: by how much they were aligned, and captures that one host cannot have made."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from commprof.analysis.all_calls import AllCalls
from commprof.analysis.clocks import Clocks
from commprof.analysis.combine import ranks_text
from commprof.analysis.model import Analysis, Note
from commprof.intervals import Int64Array
from commprof.units import format_ns

_WORTH_NS = 100_000
"""Clocks of one host agree within microseconds, NTP within milliseconds: from here on an offset is worth a sentence."""
_BEYOND_DOUBT = 3
_ABSOLUTE_NS = 1_000_000_000_000_000_000
"""Later times are Unix times; earlier ones count from an unknown instant, and their offsets are no clocks' fault."""


def clock_notes(analysis: Analysis, clocks: Clocks, calls: AllCalls) -> None:
    """Notes on offsets that were taken out, and a warning where ranks of one host were recorded at different times."""
    if not len(calls) or (calls.begins < _ABSOLUTE_NS).any():
        return
    ranks = np.array([rank.rank for rank in analysis.ranks])
    for first in np.unique(clocks.component).tolist():
        members = np.flatnonzero((clocks.component == first) & clocks.joined)
        if len(members) > 1:
            _aligned(analysis, ranks[members].tolist(), clocks.offset[members], int(clocks.uncertainty[first]))
    if clocks.joined.any():  # without a call in common the matching has said so
        _apart(analysis, calls, analysis.hosts)


def message_clock_note(analysis: Analysis, joined: Clocks, *, one_host: bool) -> None:
    """On what the critical path rests where no chain of collectives connects all ranks, and how well that is known."""
    how = (
        "taken to share the clock of their host, which is known no better than that"
        if one_host
        else "put on one clock by messages both ways, to within " + format_ns(int(joined.uncertainty.max()))
    )
    analysis.notes.append(
        Note(
            "clocks-by-messages",
            f"No collective connects all ranks: they are {how}. The critical path, and what would come back without a "
            "late rank, rest on it; who waits for whom does not.",
        )
    )


def _aligned(analysis: Analysis, ranks: list[int], offset: Int64Array, known: int) -> None:
    """The largest offset of ranks on a common clock, and whose it is."""
    low, high = int(offset.min()), int(offset.max())
    if high - low < max(_WORTH_NS, _BEYOND_DOUBT * known):
        return
    near = max(known, (high - low) // 100)
    ahead = [rank for rank, ns in zip(ranks, offset.tolist(), strict=True) if high - ns <= near]
    behind = [rank for rank, ns in zip(ranks, offset.tolist(), strict=True) if ns - low <= near]
    analysis.notes.append(
        Note(
            "clocks-aligned",
            f"The clock of {_who(ahead)} is {format_ns(high - low)} ahead of that of {_who(behind)}; the clocks were "
            f"aligned by the ends of collectives, to within {format_ns(known)}.",
        )
    )


def _apart(analysis: Analysis, calls: AllCalls, hosts: Mapping[int, str]) -> None:
    """Ranks of one host share a clock: where one began after another had ended, they were not recorded together."""
    by_host: dict[str, list[int]] = {}
    for index, rank in enumerate(analysis.ranks):
        if rank.rank in hosts and calls.first[index + 1] > calls.first[index]:
            by_host.setdefault(hosts[rank.rank], []).append(index)
    for host, members in sorted(by_host.items()):
        late = max(members, key=lambda index: int(calls.begins[index]))
        early = min(members, key=lambda index: int(calls.ends[index]))
        gap = int(calls.begins[late] - calls.ends[early])
        if gap > 0 and len(members) > 1:
            text = (
                f"rank {analysis.ranks[late].rank} was recorded {format_ns(gap)} after rank "
                f"{analysis.ranks[early].rank} had ended, both on {host}: they may be of two runs, and comparing them "
                "then means nothing"
            )
            analysis.warnings.append(text)
            analysis.notes.append(Note("captures-apart", f"{text[:1].upper()}{text[1:]}."))
            return


def _who(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {ranks_text(ranks)}"
