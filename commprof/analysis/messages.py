"""How long messages between two ranks transfer, where no common clock tells it (``spec``: section 6).

Of the two sides of a message the one that comes later has not waited: it lasts as long as the transfer. A source that
has room in a buffer may be done sooner, so that this is at most the transfer.
"""

from __future__ import annotations

import numpy as np

from commprof.analysis.beside import beside
from commprof.analysis.model import Analysis
from commprof.analysis.places import FLAGS
from commprof.analysis.segments import any_of, smallest
from commprof.intervals import Int64Array

FEWEST = 8
"""So many messages of a size and group tell how long one takes."""
_QUARTILE = 0.25
"""Of messages of a size the fast ones tell what the link gives: others may share it, or be slow now and then."""
_ODD = (FLAGS.index("profiler-start"), FLAGS.index("first-use"))


def message_times(analysis: Analysis) -> dict[int, tuple[Int64Array, Int64Array]]:
    """By group the sizes of its messages, rising, and how long one of each takes, ns; messages that are alone on their
    ranks, of both sides recorded."""
    found = analysis.matching
    if found is None or not len(found):
        return {}
    shortest = smallest(found.calls.duration[found.rows], found.first)
    size = found.calls.size[found.rows[found.first[:-1]]]
    odd = np.isin(np.concatenate([rank.places.flag for rank in analysis.ranks]), _ODD)
    usable = (found.source >= 0) & (found.absent == 0) & (size > 0) & (shortest > 0)
    usable &= ~any_of(odd[found.rows], found.first) & (beside(found, shortest) == 0)
    out: dict[int, tuple[Int64Array, Int64Array]] = {}
    for group in np.unique(found.group[usable]).tolist():
        mine = usable & (found.group == group)
        sizes, count = np.unique(size[mine], return_counts=True)
        sizes = sizes[count >= FEWEST]
        if len(sizes):
            times = [np.quantile(shortest[mine & (size == one)], _QUARTILE) for one in sizes.tolist()]
            out[group] = (sizes.astype(np.int64), np.rint(times).astype(np.int64))
    return out
