"""What a call moves to and from this rank, for the rows of calls."""

from __future__ import annotations

from typing import Any

from commprof.analysis.model import RankAnalysis
from commprof.trace.model import NO_ID, UNKNOWN_SIZE
from commprof.trace.operations import OPERATIONS
from commprof.trace.splits import UNKNOWN

_ALL_TO_ALL = OPERATIONS.index("all_to_all")


def exchange_columns(rank: RankAnalysis) -> list[dict[str, Any]]:
    """For each call the bytes given and gotten, whether an all-to-all is unequal, and the parts of a batch."""
    calls = rank.calls
    columns = zip(
        calls.operation.tolist(), calls.sent_bytes.tolist(), calls.received_bytes.tolist(), calls.unequal.tolist(),
        calls.graph.tolist(), strict=True,
    )  # fmt: skip
    return [
        {
            "sent_bytes": _known(sent),
            "received_bytes": _known(received),
            "unequal_splits": bool(unequal) if operation == _ALL_TO_ALL and unequal != UNKNOWN else None,
            "splits": _splits(calls.splits.get(index)),
            "partners": _partners(calls.partners.get(index)),
            "in_graph": graph,
        }
        for index, (operation, sent, received, unequal, graph) in enumerate(columns)
    ]


def _splits(
    splits: tuple[tuple[int, ...] | None, tuple[int, ...] | None] | None,
) -> dict[str, list[int] | None] | None:
    """Bytes to and from each member, in the order of the group, where split sizes are stated."""
    if splits is None or splits == (None, None):
        return None
    sent, received = (None if side is None else list(side) for side in splits)
    return {"sent_bytes": sent, "received_bytes": received}


def _partners(partners: tuple[tuple[int, int, int], ...] | None) -> list[dict[str, int | None]] | None:
    """The point-to-point calls of one batch: their peers and the bytes each way."""
    if partners is None:
        return None
    return [
        {"peer": None if peer == NO_ID else peer, "sent_bytes": _known(sent), "received_bytes": _known(received)}
        for peer, sent, received in partners
    ]


def _known(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size
