"""Ranks whose capture is not like the others: most of its kernels are missing, or the process had too few cores."""

from __future__ import annotations

import numpy as np

from commprof.analysis.model import Analysis, Note

_FEWEST_RANKS = 3
_INCOMPLETE = 4
"""A rank with less than one in this many of the kernels that the others have (in the median) lost the rest: stages of a
pipeline differ by less."""
_FEWEST_KERNELS = 100
FEWEST_CORES = 2


def incomplete_ranks(analysis: Analysis) -> set[int]:
    """Indices of ranks whose capture lacks most of its kernels; a note says so, and nothing compares them."""
    counts = np.array([rank.coverage.device_events for rank in analysis.ranks])
    if len(counts) < _FEWEST_RANKS:
        return set()
    out = set()
    for index, count in enumerate(counts.tolist()):
        usual = float(np.median(np.delete(counts, index)))
        if usual >= _FEWEST_KERNELS and _INCOMPLETE * count < usual:
            out.add(index)
            analysis.notes.append(
                Note(
                    "capture-incomplete",
                    f"rank {analysis.ranks[index].rank}: its capture is incomplete ({count:,} kernels, {usual:,.0f} on "
                    "the others); it is left out of waiting and of who is late.",
                )
            )
    return out


def few_cores(analysis: Analysis) -> None:
    """A note on the ranks that may run on fewer than two cores, if their captures say so."""
    known = {manifest.rank: manifest.cores for manifest in analysis.manifests if manifest.cores is not None}
    few = sorted(rank for rank, cores in known.items() if cores < FEWEST_CORES)
    if not few:
        return
    others = [cores for cores in known.values() if cores >= FEWEST_CORES]
    beside = ""
    if others:
        range_ = f"{min(others)} to {max(others)}" if max(others) > min(others) else f"{others[0]}"
        beside = f" (the others {range_})"
    who = f"rank {few[0]} has" if len(few) == 1 else f"ranks {', '.join(map(str, few))} have"
    analysis.notes.append(
        Note("few-cores", f"{who} 1 core to run on{beside}: training, communication and the profiler share it.")
    )
