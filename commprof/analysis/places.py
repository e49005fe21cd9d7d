"""Where in the step every call of a rank stands and why its time is exposed: the words, and columns that use them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.attribution import Pieces
from commprof.intervals import Int64Array

NOWHERE = -1
"""Index of a call that has no phase, module, bucket or flag."""

PURPOSES = ("gradients", "parameters", "activations", "buffers", "control", "point-to-point")
PHASES = ("forward", "backward", "optimizer", "input")
FLAGS = ("profiler-start", "first-use", "window-edge")
CAUSES = (
    "host-bound", "late-launch", "queued", "no-prefetch", "rate-limiter", "longer-than-compute", "tail",
    "on-compute-stream", "blocking-wait", "device-synchronisation", "peer-wait", "serialised", "structural",
    "first-use", "profiler-start", "unknown",
)  # fmt: skip
"""Why communication is exposed, in the words of the report."""

UNKNOWN_CAUSE = CAUSES.index("unknown")
HOST_BOUND = CAUSES.index("host-bound")
PEER_WAIT = CAUSES.index("peer-wait")


@dataclass(slots=True, eq=False)
class CallPlaces:
    """One entry per call, shape ``(calls,)``: ``phase`` and ``flag`` are indices into ``PHASES`` and ``FLAGS``,
    ``module`` into ``modules``, ``hidden_by`` into ``hiders`` (names of what hid most of the call), ``bucket`` is the
    number of a DDP bucket, ``purpose`` an index into ``PURPOSES``; all :data:`NOWHERE` where there is none."""

    phase: NDArray[np.int8]
    module: NDArray[np.int32]
    bucket: Int64Array
    flag: NDArray[np.int8]
    hidden_by: NDArray[np.int32]
    purpose: NDArray[np.int8]
    modules: list[str] = field(default_factory=list)
    hiders: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class PieceCauses:
    """Why each piece of exposed time is exposed, aligned with the ``Pieces`` of the rank, shape ``(pieces,)``.

    ``host`` nanoseconds of a piece are host-bound, ``wait`` are waiting for a peer (zero until other ranks tell); the
    rest has ``cause``, an index into :data:`CAUSES`. ``host + wait`` is never more than the piece. Where a thread that
    waited is to blame, ``operator`` is an index into ``operators``: the operator or range that made it wait (-1: none).
    """

    cause: NDArray[np.int8]
    host: Int64Array
    wait: Int64Array
    operator: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    operators: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.operator) != len(self.cause):
            self.operator = np.full(len(self.cause), NOWHERE, np.int32)


def cause_sums(
    causes: PieceCauses, pieces: Pieces, key: Int64Array, size: int, rows: Int64Array | None = None
) -> Int64Array:
    """Exposed nanoseconds by a key of the pieces (such as their call) and by cause, shape ``(size, causes)``.

    ``rows`` are the pieces to count, by default all; their keys lie in ``[0, size)``.
    """
    rows = np.arange(len(pieces)) if rows is None else rows
    host, wait = causes.host[rows], causes.wait[rows]
    sums = np.zeros((size, len(CAUSES)), np.int64)
    key = key[rows]
    np.add.at(sums[:, HOST_BOUND], key, host)
    np.add.at(sums[:, PEER_WAIT], key, wait)
    np.add.at(sums, (key, causes.cause[rows]), pieces.ns[rows] - host - wait)
    return sums


def no_places(calls: int) -> CallPlaces:
    """Places of calls of which nothing is known."""
    return CallPlaces(
        np.full(calls, NOWHERE, np.int8),
        np.full(calls, NOWHERE, np.int32),
        np.full(calls, NOWHERE, np.int64),
        np.full(calls, NOWHERE, np.int8),
        np.full(calls, NOWHERE, np.int32),
        np.full(calls, NOWHERE, np.int8),
    )
