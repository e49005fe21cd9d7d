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
from commprof.analysis.core_wait import is_crowded, waits_for_core
from commprof.analysis.lateness import Float64Array
from commprof.analysis.model import Analysis, Note
from commprof.analysis.peers import Peers
from commprof.units import format_share


@dataclass(frozen=True, slots=True)
class Allowance:
    """Largest part of a charge that is noise, as a share of the step: of the mean over steps, and of a single step."""

    mean: float
    single: float


# A/A control: 80 runs of two equal ranks on two cores of one machine, no fault, five steps each (the kind "none" of
# reports/records/real-faults.md, other programs kept away in most). What one rank was charged with reached, as a mean
# over the steps and in a single step: host gaps 7.7 % and 11.2 % of the step, input 1.6 % and 5.5 %, transfers 2.1 %
# and 9.5 %, lateness from before the capture 6.5 % and 15.6 %, compute 21.6 % and 33.2 %; nobody ran more operators.
# Equal operators took up to 1.5 times as long as on the other rank although nobody else used the core (neighbours in
# the processor, the host of a virtual machine); on a core shared with another program 1.1 to 2.4 times.
# On cores less than 1.1 times as slow gaps reached 4.8 % (mean), on slower ones 7.7 %: they take longer there as well,
# by their usual part of the step.
ALLOWED = {HOST: Allowance(0.05, 0.15), INPUT: Allowance(0.018, 0.10)}
PART_OF_STEP = {HOST: 0.15, INPUT: 0.05}
"""Usual part of the step between operators, and in the loader; a slower core makes it as many times longer."""
SLOW_CORE = 1.4
"""Equal operators that take this many times as long are a core that others use too, where nobody counted how long its
thread waited for it."""
HALF_A_CORE = 2.0
"""And where that was counted and is little: a neighbour on the same core (hyper-threads) is taken to leave half."""
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
    # Steps that do not count accuse nobody either.
    out = np.zeros_like(own)
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
    excess = compute_excess(analysis, peers, rank, names)
    slow = SLOW_CORE if waits_for_core(analysis, rank) is None else HALF_A_CORE
    if is_crowded(analysis, rank) or (excess is not None and excess.pace >= slow):
        # Everything that runs on this core takes longer: Python between the operators and gloo's threads too.
        return np.ones_like(share)
    if excess is not None and excess.more > 0:
        part[:, COMPUTE] = excess.more / (excess.more + excess.slower)
    longer = 0.0 if excess is None else max(excess.pace - 1, 0.0)
    for reason, allowed in ALLOWED.items():
        most = allowed.mean + PART_OF_STEP[reason] * longer
        usual = len(share) >= _FEWEST_STEPS and share[:, reason].mean() > most
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
