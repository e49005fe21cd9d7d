"""Waiting and transfer of each call, from true times: who was late, and how long the data took once all were there."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.synth.timeline import Call, Timeline
from commprof.synth.timing import SYNCHRONISING
from commprof.synth.traffic import received, traffic


@dataclass(frozen=True, slots=True)
class CallTruth:
    """Wait per member and transfer in ns (``None``: not defined), the last to enter, spreads of starts and ends."""

    waits: dict[int, int]
    transfer_ns: int | None
    last: int | None
    skew_ns: int
    end_skew_ns: int


def call_truth(timeline: Timeline, call: Call) -> CallTruth:
    """The truth of one call.

    Synchronising calls wait for the last member; all-to-alls with unequal splits only for those that send
    to them, without a transfer; a sink waits for its source, a source for its sink only if it cannot finish before.
    """
    starts, ends = timeline.starts(call), timeline.ends(call)
    latest, first_end = max(starts.values()), min(ends.values())
    skew, end_skew = latest - min(starts.values()), max(ends.values()) - first_end
    if call.op in SYNCHRONISING and call.comm.traffic is None:
        waits = {rank: latest - start for rank, start in starts.items()}
        return CallTruth(waits, first_end - latest, _only_latest(starts), skew, end_skew)
    if call.op in SYNCHRONISING:
        return CallTruth(_waits_of_senders(timeline, call, starts), None, _only_latest(starts), skew, end_skew)
    source = call.source
    sinks = [rank for rank in call.members if rank != source]
    waits = {sink: max(0, starts[source] - starts[sink]) for sink in sinks}
    entered = [starts[sink] for sink in sinks if starts[sink] < ends[source]]
    waits[source] = max(0, max(entered, default=0) - starts[source])
    transfer = first_end - latest if first_end > latest else None
    last = None
    if any(waits[sink] for sink in sinks):
        last = source
    elif waits[source]:
        last = max(sinks, key=lambda sink: starts[sink])
    return CallTruth(waits, transfer, last, skew, end_skew)


def _only_latest(starts: dict[int, int]) -> int | None:
    """The rank that entered last, ``None`` where several did."""
    latest = max(starts.values())
    found = [rank for rank, start in starts.items() if start == latest]
    return found[0] if len(found) == 1 else None


def _waits_of_senders(timeline: Timeline, call: Call, starts: dict[int, int]) -> dict[int, int]:
    plan, comm = timeline.plan, call.comm
    assert comm.traffic is not None
    matrix = traffic(
        plan.seed, call.group.id, comm.traffic, len(call.members), comm.nelems_in, plan.scenario.imbalance_permille
    )
    waits = {}
    for place, rank in enumerate(call.members):
        rows = received(matrix, place, comm.transposed)
        senders = [starts[member] for j, member in enumerate(call.members) if rows[j] > 0]
        waits[rank] = max(0, max(senders) - starts[rank])
    return waits
