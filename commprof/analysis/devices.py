"""From the columns of a rank to the device work that analyses measure, one :class:`Work` per device."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.work import Work
from commprof.intervals import Int64Array, union
from commprof.trace.calls import graph_rows
from commprof.trace.classify import Classification
from commprof.trace.cpu_compute import cpu_compute
from commprof.trace.gloo import gloo_rows
from commprof.trace.links import NONE, thread_keys
from commprof.trace.model import COMM, COMPUTE, COPY, NOT_LAUNCHED, RankTrace

_FOR_COMM_RANGE = re.compile(
    r"^torch::distributed::reducer::(?:mul_out|copy_)|reducer::copy_bucket_to_grad"
    r"|^fsdp::(?:all_gather_copy_in|split_with_sizes_copy|chunk_cat)|^FSDP::all_gather_copy_out"
)
_FOR_COMM_KERNEL = re.compile(r"split_with_sizes_copy|chunk_cat", re.IGNORECASE)
_THIN_SHARE = 10
"""A kernel with fewer blocks than one part in this many of the SMs leaves the device to others: overlap with it hides
little."""


def device_work(rank: RankTrace, kinds: Classification, launches: Int64Array) -> list[Work]:
    """The work of every device of a rank, by device number."""
    device = rank.device
    launch = np.full(len(device), NOT_LAUNCHED, np.int64)
    thread = np.zeros(len(device), np.int64)
    linked = launches != NONE
    calls = launches[linked]
    launch[linked] = rank.runtime.start[calls]
    thread[linked] = thread_keys(rank.runtime.pid[calls], rank.runtime.tid[calls])
    graph = graph_rows(rank, launches)
    for_comm = _for_comm(rank, launch, thread)
    out = []
    for number in np.unique(device.device).tolist():
        mine = device.device == number
        compute, comm, copy = (np.flatnonzero(mine & (kinds.kind == kind)) for kind in (COMPUTE, COMM, COPY))
        out.append(
            Work(
                number,
                device.start[compute],
                device.end[compute],
                device.stream[compute],
                device.name[compute].astype(np.int64),
                launch[compute],
                thread[compute],
                device.blocks[compute],
                graph[compute],
                kinds.fused[compute],
                for_comm[compute],
                _thin(rank, number, compute),
                device.start[comm],
                device.end[comm],
                device.start[copy],
                device.end[copy],
                device.stream[copy],
                device.name[copy].astype(np.int64),
                thread[copy],
                np.concatenate([launch[comm], launch[copy]]),
            )
        )
    return out


def cpu_work(rank: RankTrace) -> Work | None:
    """The work of a trace without a device: gloo's spans and the training threads; ``None`` if it has neither."""
    rows = gloo_rows(rank)
    compute = cpu_compute(rank)
    if not len(rows):
        return None
    pieces = len(compute)
    nothing = np.empty(0, np.int64)
    no = np.zeros(pieces, np.bool_)
    return Work(
        0,
        compute.starts,
        compute.ends,
        np.zeros(pieces, np.int64),
        np.full(pieces, -1, np.int64),
        np.full(pieces, NOT_LAUNCHED, np.int64),
        np.zeros(pieces, np.int64),
        np.full(pieces, -1, np.int64),
        no,
        no.copy(),
        no.copy(),
        None,
        rank.annotations.start[rows],
        rank.annotations.end[rows],
        nothing,
        nothing,
        nothing,
        nothing,
        nothing,
        np.full(len(rows), NOT_LAUNCHED, np.int64),
    )


def _thin(rank: RankTrace, number: int, rows: Int64Array) -> NDArray[np.bool_] | None:
    """Kernels whose grid is smaller than a tenth of the device's multiprocessors."""
    count = rank.sm_counts[number] if 0 <= number < len(rank.sm_counts) else None
    if count is None:
        return None
    blocks = rank.device.blocks[rows]
    return (blocks >= 0) & (blocks * _THIN_SHARE < count)


def _for_comm(rank: RankTrace, launch: Int64Array, thread: Int64Array) -> NDArray[np.bool_]:
    """Kernels that exist for communication: bucket copies, gradient scaling into them, FSDP's packing."""
    device = rank.device
    codes = [code for code in np.unique(device.name).tolist() if _FOR_COMM_KERNEL.search(rank.names[code])]
    out = np.isin(device.name, codes)
    ranges = {code for code, name in enumerate(rank.names) if _FOR_COMM_RANGE.search(name)}
    for table in (rank.operators, rank.annotations):
        rows = np.flatnonzero(np.isin(table.name, list(ranges)))
        own = thread_keys(table.pid[rows], table.tid[rows])
        for key in np.unique(own).tolist():
            spans = union(table.start[rows[own == key]], table.end[rows[own == key]])
            candidates = np.flatnonzero((thread == key) & (launch != NOT_LAUNCHED))
            out[candidates] |= spans.contains(launch[candidates])
    return out
