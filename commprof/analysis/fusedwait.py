"""Waiting inside kernels that compute and communicate in one: compute to the split, waiting to whom they wait for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from commprof.analysis.model import Analysis, RankAnalysis, Split
from commprof.analysis.waiting import UNKNOWN, CallWaits


def set_fused_waits(analysis: Analysis) -> None:
    """Fill in ``fused_wait`` of every split: waiting of fused kernels inside the window, 0 without such kernels.

    It stays ``None`` where the wait of any of them is not known.
    """
    for rank, waits in zip(analysis.ranks, analysis.waiting, strict=True):
        for device in rank.devices:
            device.whole = _with_wait(rank, waits, device.device, device.whole)
            device.steps = [
                replace(step, split=_with_wait(rank, waits, device.device, step.split)) for step in device.steps
            ]


def _with_wait(rank: RankAnalysis, waits: CallWaits, device: int, split: Split) -> Split:
    calls = rank.calls
    inside = calls.fused & (calls.device == device) & (calls.end > split.start) & (calls.start < split.end)
    wait = waits.wait[inside]
    if (wait == UNKNOWN).any():
        return split
    begin = np.maximum(calls.start[inside], split.start)
    end = np.minimum(calls.start[inside] + wait, split.end)
    return replace(split, fused_wait=int(np.maximum(end - begin, 0).sum()))
