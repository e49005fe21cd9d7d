"""Compute of a trace without a device: the operators of the threads that train."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from commprof.intervals import Int64Array, IntervalSet, empty, union
from commprof.trace.gloo import codes_of
from commprof.trace.links import thread_keys
from commprof.trace.model import CpuSpans, RankTrace

_WRAPPER = re.compile(
    r"^(?:autograd::engine::evaluate_function|torch::autograd::|torch\.distributed\.|ProfilerStep)|Backward\d+$"
)
_WORKING_THREAD = ("ProfilerStep", "autograd::engine::")
_DISPATCH = ("c10d::", "_c10d_functional::")


def cpu_compute(rank: RankTrace) -> IntervalSet:
    """Instants at which the training threads of a CPU trace compute.

    The union of their operators without wrappers, which hold blocking hooks, less the calls that launch or await
    communication.
    """
    table = rank.operators
    if not len(table):
        return empty()
    counted, dispatch = _working_operators(rank)
    return union(table.start[counted], table.end[counted]) - union(table.start[dispatch], table.end[dispatch])


def cpu_dispatch(rank: RankTrace) -> IntervalSet:
    """Instants at which a training thread of a CPU trace is in a call that launches or awaits communication."""
    table = rank.operators
    if not len(table):
        return empty()
    _, dispatch = _working_operators(rank)
    return union(table.start[dispatch], table.end[dispatch])


def cpu_operators(rank: RankTrace) -> Int64Array:
    """Rows of the operators that compute on a CPU trace and lie in no other such operator of their thread."""
    table = rank.operators
    if not len(table):
        return np.empty(0, np.int64)
    rows = np.flatnonzero(_working_operators(rank)[0])
    thread = thread_keys(table.pid[rows], table.tid[rows])
    order = np.lexsort((-table.end[rows], table.start[rows], thread))
    rows, thread = rows[order], thread[order]
    outer = np.ones(len(rows), np.bool_)
    for key in np.unique(thread).tolist():
        low, high = np.searchsorted(thread, [key, key + 1])
        reach = np.maximum.accumulate(table.end[rows[low:high]])
        outer[low + 1 : high] = table.start[rows[low + 1 : high]] >= reach[:-1]
    return rows[outer]


def _working_operators(rank: RankTrace) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which operators of the training threads compute, and which launch or await communication."""
    table = rank.operators
    thread = thread_keys(table.pid, table.tid)
    working = np.isin(thread, _working_threads(rank, thread))
    wrapper = np.isin(table.name, [code for code, name in enumerate(rank.names) if _WRAPPER.search(name)])
    dispatch = np.isin(table.name, codes_of(rank, _DISPATCH))
    return working & ~wrapper & ~dispatch, working & dispatch


def _working_threads(rank: RankTrace, thread: Int64Array) -> Int64Array:
    """Threads with step marks or the autograd engine; without any, the one with the most time in operators."""
    marks = codes_of(rank, _WORKING_THREAD)
    found = []
    tables: tuple[CpuSpans, ...] = (rank.operators, rank.annotations)
    for table in tables:
        rows = np.isin(table.name, marks)
        found.append(thread_keys(table.pid[rows], table.tid[rows]))
    threads = np.unique(np.concatenate(found))
    if len(threads):
        return threads
    keys, inverse = np.unique(thread, return_inverse=True)
    busy = np.zeros(len(keys), np.int64)
    np.add.at(busy, inverse, rank.operators.end - rank.operators.start)
    return keys[[int(busy.argmax())]]
