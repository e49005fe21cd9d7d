"""Calls that are long for a reason outside training: the profiler started, or a communicator was set up.

While one rank starts its profiler the others wait for it in their first call; a communicator connects during its
first call. Both show as calls at the head of their kind (process group, operation, size) that last at least
:data:`TIMES` its median. At most :data:`MOST` of at least :data:`FEWEST` calls are told apart: fewer calls have no
reliable median, and more long ones are how the run is. (Limits: TraceLens#1049, Hyperloom#1292.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.places import FLAGS, NOWHERE
from commprof.trace.model import Calls

TIMES, MOST, FEWEST = 10, 4, 8
PROFILER_START, FIRST_USE = FLAGS.index("profiler-start"), FLAGS.index("first-use")
_LARGE = 2
"""Calls that are not told apart are worth a warning if together they last more than one part in this many of the
capture."""


def flag_starts(calls: Calls) -> tuple[NDArray[np.int8], list[str]]:
    """Flag of every call, shape ``(calls,)``, and a warning for each long start that could not be separated.

    One rank cannot tell the two reasons apart: ``profiler-start`` stands for both until other ranks say more.
    """
    flag = np.full(len(calls), NOWHERE, np.int8)
    warnings: list[str] = []
    if not len(calls):
        return flag, warnings
    kinds = np.stack([calls.device, calls.group.astype(np.int64), calls.operation.astype(np.int64), calls.size_bytes])
    order = np.lexsort((calls.start, *kinds))
    fresh = np.concatenate([[True], (kinds[:, order][:, 1:] != kinds[:, order][:, :-1]).any(axis=0)])
    first = np.flatnonzero(fresh)
    span = int(calls.end.max() - calls.start.min())
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        duration = calls.duration[order[low:high]]
        median = int(np.median(duration))
        if duration[0] < TIMES * median or duration[0] <= median:
            continue
        leading = int(np.argmin(np.append(duration >= TIMES * median, False)))
        if 2 * int(duration[leading:].max(initial=0)) > int(duration[:leading].min()):
            continue
        if high - low >= FEWEST and leading <= MOST:
            flag[order[low : low + leading]] = PROFILER_START
        elif _LARGE * int(duration[:leading].sum()) > span:
            warnings.append(
                f"a call of {int(duration[0]) / 1e6:,.0f} ms at the start of its kind could not be told from training "
                f"({leading} of {high - low} calls are long; limits: at most {MOST}, of at least {FEWEST})"
            )
    return flag, warnings
