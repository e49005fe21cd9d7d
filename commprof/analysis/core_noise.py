"""What of a charge is more than cores differ by without any fault, for ranks that compute on CPU cores.

A core runs as fast as its neighbours let it: hyper-threads, caches, other programs, and the progress threads of gloo,
which copy on the core that computes. So equal ranks of a sound run make each other wait for a part of the step. Cores
are accused only of what lies outside of that, and by its own evidence: equal operators that take much longer
(``slow-device``), more operators (``more-work``), a gap on the host, a wait for input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from commprof.analysis.behaviour import COMPUTE, HOST, INPUT
from commprof.analysis.blame import compute_excess
from commprof.analysis.core_wait import is_crowded
from commprof.analysis.lateness import Float64Array
from commprof.analysis.model import Analysis, Note
from commprof.analysis.peers import Peers
from commprof.units import format_share


@dataclass(frozen=True, slots=True)
class Allowance:
    """Largest part of a charge that is noise, as a share of the step: of the mean over steps, and of a single step."""

    mean: float
    single: float


# A/A control: 40 runs of two equal ranks on two cores of one machine, no fault, five steps each (the kind "none" of
# reports/records/real-faults.md, once with other programs kept away and once without). What one rank was charged with
# reached, as a mean over the steps and in a single step: host gaps 5.1 % and 11.2 % of the step, input 1.4 % and 5.5 %,
# transfers 2.1 % and 9.5 %, lateness from before the capture 6.5 % and 15.6 %, compute 10.5 % and 20.0 %; equal
# operators took up to 1.16 times as long as on the other rank, and nobody ran more of them. On a core that has to be
# shared with another program they took 1.56 to 2.32 times as long.
ALLOWED = {HOST: Allowance(0.07, 0.15), INPUT: Allowance(0.03, 0.10)}
EVEN_CORE = 1.1
"""Below this many times the other ranks' time for equal operators a core is no slower than theirs."""
_EVEN = Allowance(0.05, 0.15)
"""Of host gaps on such a core. Python between the operators takes longer where these do, so long gaps without a fault
go with a slow core: those above 2.2 % of the step (mean) were all on cores of 1.12 and more, and ranks of such even
cores that were late for more work or input reached 3.5 %."""
SLOW_CORE = 1.4
"""Equal operators that take this many times as long are a core that others use too; the middle of 1.16 and 1.56, as
factors."""
_FEWEST_STEPS = 3
"""The mean over fewer steps is no usual value (``Thresholds.enough_steps``)."""
_WORTH_A_NOTE = 0.02
"""Below this share of the step nothing is worth a sentence: where findings start (``Thresholds.finding``)."""


def beyond_core_noise(
    analysis: Analysis, own: Float64Array, peers: Peers, step_names: Sequence[str], counted: Sequence[str],
    length: Float64Array,
) -> Float64Array:  # fmt: skip
    """The part of the charges ``own[rank, step, reason]`` that a rank may be named for: on devices all of it.

    ``step_names`` are the steps of the charges, ``counted`` those that count, ``length`` of these in ns.
    """
    if not len(counted) or not all(rank.on_cpu for rank in analysis.ranks):
        return own
    kept = [step_names.index(name) for name in counted]
    out = own.copy()
    for rank, mine in enumerate(own[:, kept]):
        if mine.any():
            out[rank, kept] = mine * _beyond(analysis, peers, rank, mine / length[:, None], counted)
    # A rank that is late for something else is not said to be none, for the rest of its charge.
    named = out[:, kept].sum(axis=(1, 2)) > 0
    dropped = (own - out)[:, kept].sum(axis=2)
    dropped[named] = 0.0
    _tell(analysis, dropped, length)
    return out


def _beyond(analysis: Analysis, peers: Peers, rank: int, share: Float64Array, names: Sequence[str]) -> Float64Array:
    """What part of each charge counts; ``share`` are charges as shares of their step, shape ``(steps, reasons)``."""
    part = np.zeros_like(share)
    allowance = dict(ALLOWED)
    excess = compute_excess(analysis, peers, rank, names)
    if is_crowded(analysis, rank) or (excess is not None and excess.pace >= SLOW_CORE):
        # Everything that runs on this core takes longer: Python between the operators and gloo's threads too.
        return np.ones_like(share)
    if excess is not None:
        if excess.pace < EVEN_CORE:
            allowance[HOST] = _EVEN
        if excess.more > 0:
            part[:, COMPUTE] = excess.more / (excess.more + excess.slower)
    for reason, allowed in allowance.items():
        usual = len(share) >= _FEWEST_STEPS and share[:, reason].mean() > allowed.mean
        part[:, reason] = 1.0 if usual else share[:, reason] > allowed.single
    return part


def _tell(analysis: Analysis, dropped: Float64Array, length: Float64Array) -> None:
    """A note on the rank that others waited for most without any fault of its own, ``dropped`` by rank and step."""
    share = dropped.mean(axis=1) / float(length.mean())
    worst = int(share.argmax())
    if share[worst] < _WORTH_A_NOTE:
        return
    analysis.notes.append(
        Note(
            "core-noise",
            f"rank {analysis.ranks[worst].rank} makes the others wait for {format_share(share[worst])} of the step, "
            "which is no more than equal ranks on CPU cores differ by without a fault: it is not counted as late for "
            "that.",
        )
    )
