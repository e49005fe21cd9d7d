"""Ranks that wait for late ones: who is late, and why."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commprof.analysis.combine import ranks_text
from commprof.diagnosis.findings.case import Case, Claim, steps_of
from commprof.diagnosis.ground import Ground
from commprof.diagnosis.model import Evidence

_WHY = {
    "slow-device": ("its device runs the same kernels slower", (
        "Look at clocks, power and temperature of this device (nvidia-smi -q -d PERFORMANCE, dcgmi), at other users of "
        "it, and replace or leave it out if it stays slow.",
    )),
    "more-work": ("it has more to compute than its peers", (
        "Even out the work: sequences packed to equal length, balanced experts, equal pipeline stages. The machine is "
        "not "
        "at fault.",
    )),
    "host": ("its CPU launches late", (
        "Look at the CPU of this rank: other processes, cores per rank, NUMA binding, garbage collection "
        "(gc.disable() and gc.collect() at the same step on all ranks), logging and checkpointing on one rank only.",
    )),
    "input": ("it waits for its input", (
        "More DataLoader workers and prefetch on this rank (host memory); look at its storage and at uneven shards.",
    )),
    "copy": ("it copies more or slower", (
        "Look at copies between host and device on this rank: pinned memory, PCIe width and generation.",
    )),
    "communication": ("its own transfers take longer", (
        "Look at the links and adapters of this rank (nvidia-smi nvlink -s, ibstat, ethtool counters).",
    )),
    "inherited": ("it was late already where the capture begins", (
        "Record more steps, and all ranks, to see what makes it late.",
    )),
    "unknown": ("why is not determined", (
        "Record with CPU activity on all ranks: what the late rank did before its calls decides.",
    )),
}  # fmt: skip


def straggler(ground: Ground) -> Iterator[Case]:
    """Exposed waiting for ranks, hosts or stages that are named as late; the largest charge first."""
    rows = sorted(ground.known("stragglers"), key=lambda row: -row.charged_ns_per_step)
    for row in rows:
        late = _ranks(ground, row)
        waits = (ground.exposed.last_rank >= 0) if late is None else np.isin(ground.exposed.last_rank, late)
        if not (waits & (ground.exposed.wait > 0)).any():
            continue
        why, advice = _WHY.get(row.cause, _WHY["unknown"])
        yield Case(
            "straggler",
            _title(row, late, why),
            Claim(wait=np.where(waits, ground.exposed.wait, 0)),
            advice,
            (
                Evidence("charged to it per step, mean over the ranks", row.charged_ns_per_step, "ns"),
                Evidence("last to arrive", row.last_share, "share of matched calls"),
                Evidence("kind", row.kind, ""),
                *(Evidence("seen", text, "") for text in list(row.evidence)[:4]),
            ),
            cause=row.cause, ranks=tuple(late or ()), steps=steps_of(ground, waits),
            group_id=ground.one_group(waits), calls=ground.calls_in(waits),
        )  # fmt: skip


def _ranks(ground: Ground, row: object) -> list[int] | None:
    """Ranks that the row names; ``None`` for a pause that goes round."""
    rank, host = getattr(row, "rank", None), getattr(row, "host", None)
    members = list(getattr(row, "ranks", ()) or ())
    if rank is not None:
        return [rank]
    if members:
        return members
    if host is not None:
        hosts = {r.rank: r.file.host for r in ground.analysis.ranks}
        return [number for number, name in hosts.items() if name == host]
    return None


def _title(row: object, late: list[int] | None, why: str) -> str:
    if late is None:
        return (
            "Ranks take turns at being late: a pause on the CPU that goes round (garbage collection or CPU contention?)"
        )
    host = getattr(row, "host", None)
    who = (
        f"Host {host}"
        if getattr(row, "rank", None) is None and host
        else f"Rank{'s' if len(late) > 1 else ''} {ranks_text(late)}"
    )
    return f"{who} {'make' if len(late) > 1 and not host else 'makes'} the others wait: {why}"
