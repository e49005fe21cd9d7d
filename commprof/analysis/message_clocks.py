"""One clock for ranks that no collective connects, from messages both ways: for the critical path, which needs one.

A message ends on its sink no sooner than on its source, but for some microseconds: by the smallest difference of the
ends, the clock of the sink is ahead of that of the source by at most so much. Messages the other way bound it from
below. The middle is the offset, half of what lies between the bounds its uncertainty (the method of NTP, RFC 5905).
Ends are those on the clocks that collectives have aligned; nothing else rests on the result, since a source may end
early (``spec``: section 6).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commprof.analysis.clocks import LEAST_UNCERTAINTY_NS, Clocks
from commprof.analysis.matching import Matching
from commprof.intervals import Int64Array

FEWEST = 4
"""So many messages each way bound the offset."""
_LOWEST = 0.1
"""The quantile of end differences that stands for the smallest: single ends are odd."""
_SPREAD_OVER_UNCERTAINTY = 2
"""The two sides of a message must start so many times further apart: then it is known who came later."""


def joined_by_messages(found: Matching, clocks: Clocks, *, one_host: bool) -> Clocks | None:
    """The clocks with all components as one; ``None`` where messages do not connect them, or too loosely. On
    ``one_host`` all ranks have the clock of its CPU in common, whatever connects them."""
    if one_host:
        return replace(clocks, joined=np.ones_like(clocks.joined))
    source, sink = _ends(found)
    calls, component = found.calls, clocks.component
    start, end = clocks.aligned(calls.start, calls.rank), clocks.aligned(calls.end, calls.rank)
    a, b = component[calls.rank[source]], component[calls.rank[sink]]
    across = a != b
    source, sink, a, b = source[across], sink[across], a[across], b[across]
    later = end[sink] - end[source]
    bounds = {}
    for one, other in np.unique(np.stack([a, b]), axis=1).T.tolist():
        mine = later[(a == one) & (b == other)]
        if len(mine) >= FEWEST:
            bounds[one, other] = float(np.quantile(mine, _LOWEST))
    ahead, uncertainty = _spread(bounds, np.unique(component).tolist())
    if ahead is None:
        return None
    shift = np.array([ahead[one] for one in component.tolist()], np.int64)
    apart = np.abs((start[sink] - shift[calls.rank[sink]]) - (start[source] - shift[calls.rank[source]]))
    if not len(apart) or _SPREAD_OVER_UNCERTAINTY * uncertainty > float(np.median(apart)):
        return None
    return replace(
        clocks, offset=clocks.offset + shift, component=np.zeros_like(component),
        uncertainty=np.maximum(clocks.uncertainty, uncertainty), joined=np.ones_like(clocks.joined),
    )  # fmt: skip


def _ends(found: Matching) -> tuple[Int64Array, Int64Array]:
    """Rows of source and sink of every message between two ranks."""
    two = np.flatnonzero((found.source >= 0) & (found.absent == 0) & (np.diff(found.first) == 2))
    one, other = found.rows[found.first[two]], found.rows[found.first[two] + 1]
    is_source = found.calls.numbers[found.calls.rank[one]] == found.source[two]
    return np.where(is_source, one, other), np.where(is_source, other, one)


def _spread(bounds: dict[tuple[int, int], float], components: list[int]) -> tuple[dict[int, int] | None, int]:
    """Ns that the clock of each component is ahead of that of the first one, along the pairs that know it best; and
    the largest uncertainty on the way to any."""
    ahead, doubt = {components[0]: 0}, {components[0]: 0}
    while len(ahead) < len(components):
        pairs = [
            (abs(up + bounds[there, here]) / 2 + doubt[here], here, there, (up - bounds[there, here]) / 2)
            for (here, there), up in bounds.items()
            if here in ahead and there not in ahead and (there, here) in bounds
        ]
        if not pairs:
            return None, 0
        unknown, here, there, by = min(pairs)
        ahead[there], doubt[there] = ahead[here] + round(by), round(unknown)
    return ahead, max(LEAST_UNCERTAINTY_NS, *doubt.values())
