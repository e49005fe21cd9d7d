"""Advice for runs whose ranks compute on CPUs: what to do about a device or an adapter is of no use there."""

from __future__ import annotations

from dataclasses import replace

from commprof.analysis.model import Analysis
from commprof.diagnosis.findings.case import Case

_BUSY = (
    "Look at what else runs on the cores of these ranks (top, taskset, OMP_NUM_THREADS): ranks that share cores with "
    "each other or with other programs slow one another down."
)
_NETWORK = (
    "Look at what shares the network or the cores at those times: on one machine gloo copies through memory with the "
    "same cores that compute (GLOO_SOCKET_IFNAME chooses the interface between machines)."
)
_INSTEAD = {
    ("straggler", "slow-device"): _BUSY,
    ("straggler", "communication"): _NETWORK,
    ("low-bandwidth", None): _NETWORK,
    ("slow-link", None): _NETWORK,
    ("network-intermittent", None): _NETWORK,
    ("blocking-wait", "blocking-wait"): (
        "DDP and FSDP wait for their last gradients: more compute per step (larger micro-batches, memory) or fewer "
        "bytes leave less to wait for. Where the program calls collectives itself, issue them with async_op=True and "
        "wait() only where the result is needed."
    ),
    ("host-bound", None): (
        "Take Python work, garbage collection and logging out of the step; larger micro-batches (memory)."
    ),
}


def computes_on_cpu(analysis: Analysis) -> bool:
    """Whether no rank has a device."""
    return all(rank.on_cpu for rank in analysis.ranks)


def advised_for_cpu(case: Case) -> Case:
    """The same case with advice that fits a machine without devices."""
    if case.or_cause is not None and (text := _INSTEAD.get((case.id, case.or_cause))) is not None:
        # What tells the two causes apart comes first, then what to look at for the other one.
        return replace(case, advice=(case.advice[0], text))
    text = _INSTEAD.get((case.id, case.cause)) or _INSTEAD.get((case.id, None))
    title = case.title.replace("its device runs the same kernels slower", "its cores run the same operators slower")
    return replace(case, title=title, advice=case.advice if text is None else (text,))
