"""Coalesced calls: several ``record_param_comms`` rows whose work one launch carries out when the batch ends.

``batch_isend_irecv`` and PyTorch's coalescing manager open a NCCL group, write one row per call, and launch outside
all of them, so that the kernel has neither metadata nor an operator (PyTorch's ``ProcessGroupNCCL::endCoalescing``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array
from commprof.trace.arguments import CallFacts, from_metadata
from commprof.trace.classify import Classification, call_operators
from commprof.trace.kernel_names import rule_for
from commprof.trace.links import NONE, thread_keys
from commprof.trace.model import COMM, NOT_LAUNCHED, RankTrace

_BY_SEND_RECV = frozenset({"send", "recv", "all_to_all", "gather", "scatter", "all_gather"})


@dataclass(slots=True)
class Coalesced:
    """``facts`` of the device rows that carry out a batch; ``first`` names for each the first kernel of its batch."""

    facts: dict[int, CallFacts] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)


def find_coalesced(
    rank: RankTrace, kinds: Classification, graph: NDArray[np.bool_], issued: Int64Array, thread: Int64Array
) -> Coalesced:
    """The batches of a rank, from rows of calls that launched nothing themselves."""
    device = rank.device
    alone = (kinds.kind == COMM) & ~graph & (kinds.operator == NONE) & (issued != NOT_LAUNCHED) & ~device.is_copy_row
    rows = [row for row in np.flatnonzero(alone).tolist() if row not in device.args and _is_nccl(rank, row)]
    found = Coalesced()
    if not rows:
        return found
    calls = _Rows(rank, kinds)
    launched = {
        key: np.unique(issued[(thread == key) & (issued != NOT_LAUNCHED)]) for key in set(thread[rows].tolist())
    }
    last: dict[int, tuple[int, int]] = {}
    for row in sorted(rows, key=lambda row: (int(thread[row]), int(issued[row]), row)):
        key, instant = int(thread[row]), int(issued[row])
        previous, since = last.get(key, (NONE, np.iinfo(np.int64).min))
        batch = calls.waiting(key, since, instant, launched[key])
        facts = _together(batch, rule_for(rank.names[device.name[row]]))
        if facts is not None:
            found.facts[row], found.first[row] = facts, row
            last[key] = (row, instant)
        elif previous != NONE and device.stream[row] == device.stream[previous] and not calls.any(key, since, instant):
            # A group too large for one kernel continues in the next.
            found.facts[row], found.first[row] = found.facts[previous], found.first[previous]
            last[key] = (previous, instant)
    return found


def _is_nccl(rank: RankTrace, row: int) -> bool:
    rule = rule_for(rank.names[rank.device.name[row]])
    return rule is not None and rule[0].family == "NCCL, RCCL"


class _Rows:
    """The rows of calls by thread, in order of start, and which of them launched something."""

    def __init__(self, rank: RankTrace, kinds: Classification) -> None:
        table = rank.operators
        rows = call_operators(rank)
        self._args = table.args
        self._busy = set(np.unique(kinds.operator).tolist())
        thread = thread_keys(table.pid[rows], table.tid[rows])
        order = np.lexsort((table.start[rows], thread))
        self._rows, self._thread = rows[order], thread[order]
        self._start, self._end = table.start[self._rows], table.end[self._rows]

    def _between(self, thread: int, since: int, until: int) -> range:
        low, high = np.searchsorted(self._thread, [thread, thread + 1])
        first = low + int(np.searchsorted(self._start[low:high], since, side="right"))
        last = low + int(np.searchsorted(self._start[low:high], until, side="right"))
        return range(first, last)

    def any(self, thread: int, since: int, until: int) -> bool:
        """Whether a call was made on the thread in between."""
        return len(self._between(thread, since, until)) > 0

    def waiting(self, thread: int, since: int, until: int, launched: Int64Array) -> list[CallFacts]:
        """The calls that ended right before ``until`` and launched nothing, back to one that did."""
        found: list[CallFacts] = []
        for place in reversed(self._between(thread, since, until)):
            row = int(self._rows[place])
            args = self._args.get(row)
            if row in self._busy or self._end[place] > until or args is None or args.collective is None:
                break
            if not found and _any_between(launched, int(self._end[place]), until):
                break
            facts = from_metadata(args)
            if found and facts.group_name != found[-1].group_name:
                break
            found.append(facts)
        return found[::-1]


def _any_between(launched: Int64Array, after: int, before: int) -> bool:
    """Whether one of the sorted instants lies in ``[after, before)``."""
    return bool(np.searchsorted(launched, before, side="left") > np.searchsorted(launched, after, side="left"))


def _together(batch: list[CallFacts], rule: tuple[object, str] | None) -> CallFacts | None:
    """One call that stands for the batch; ``None`` where the kernel cannot have carried it out."""
    operation = rule[1] if rule else "unknown"
    if operation == "send_recv":
        batch = [facts for facts in batch if facts.operation in _BY_SEND_RECV]
    elif operation != "unknown":
        batch = [facts for facts in batch if facts.operation == operation]
    if not batch:
        return None
    if len(batch) == 1:
        return batch[0]
    operations = {facts.operation for facts in batch}
    together = batch[0].operation if len(operations) == 1 else "unknown"
    if operations <= {"send", "recv"}:
        together = "send_recv"
    dtypes = {facts.dtype for facts in batch}
    return replace(
        batch[0], operation=together, elements_in=None, elements_out=None, peer=None, peer_place=None,
        root_place=None, given=None, got=None, dtype=dtypes.pop() if len(dtypes) == 1 else None, parts=tuple(batch),
    )  # fmt: skip
