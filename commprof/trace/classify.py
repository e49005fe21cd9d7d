"""What each device event is: compute, communication or copy, by pattern, metadata, launching operator and name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.errors import UsageError
from commprof.intervals import Int64Array
from commprof.trace.kernel_names import rule_for
from commprof.trace.kernel_rules import USER_BUFFERS
from commprof.trace.links import NONE, index_spans, launching_operators, rows_with_id, thread_keys
from commprof.trace.model import COMM, COMPUTE, COPY, NO_ID, RankTrace
from commprof.trace.operations import is_call

PARAM_COMMS = "record_param_comms"

_STREAMS = 1 << 31
_PEER_COPY = re.compile(r"memcpy\s*p(?:to|2)p", re.IGNORECASE)
_SYMMETRIC_RANGE = re.compile(
    r"symm_mem::|fused_(?:all_gather_)?(?:scaled_)?matmul|fused_matmul_reduce_scatter|fused_scaled_matmul_reduce_scatter"
    r"|userbuffers"
)


@dataclass(slots=True, eq=False)
class Classification:
    """Kinds of the device events of one rank; every array has the length of its device table.

    ``unnamed`` are kernels that no rule named, ``fused`` compute with communication inside, ``sync`` communication
    that does nothing but wait. ``operator`` is the ``record_param_comms`` row that launched an event, or ``NONE``;
    ``ranges`` name the operation of symmetric memory around a peer copy: 0 and a row of the operators, or 1 and one of
    the annotations. ``limits`` are keys of :data:`~commprof.trace.kernel_rules.LIMITS`: what leaves no event in the
    libraries that were seen.
    """

    kind: NDArray[np.int8]
    fused: NDArray[np.bool_]
    sync: NDArray[np.bool_]
    unnamed: NDArray[np.bool_]
    by_pattern: NDArray[np.bool_]
    possible_comm: NDArray[np.bool_]
    operator: Int64Array
    patterns_used: set[str] = field(default_factory=set)
    limits: set[str] = field(default_factory=set)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)


def compile_patterns(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """The user's ``--comm-pattern`` values; raises :class:`UsageError` for one that is no regular expression."""
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise UsageError(f"--comm-pattern {pattern!r}: {error}", hint="give a Python regular expression") from None
    return compiled


def classify(rank: RankTrace, launches: Int64Array, patterns: Sequence[re.Pattern[str]] = ()) -> Classification:
    """Decide the kind of every device event (``spec``: section 1, work on a rank)."""
    device = rank.device
    result = _by_name(rank)
    result.operator = launching_operators(call_operators(rank), rank.operators, device, rank.runtime, launches)
    copies = [code for code, name in enumerate(rank.names) if "memcpy" in name.lower()]
    by_engine = device.is_copy_row & np.isin(device.name, copies) & (result.operator != NONE)
    _set_comm(result, by_engine | (~device.is_copy_row & (result.operator != NONE)))
    if by_engine.any():
        result.limits.add("stream-waits")
    _peer_copies(rank, launches, result)
    _set_comm(result, np.array([row for row, args in device.args.items() if args.collective is not None], np.int64))
    alone = np.array([row for row in _comm_rows(result) if _group_of_one(rank, result, row)], np.int64)
    result.kind[alone] = np.where(device.is_copy_row[alone], COPY, COMPUTE)
    result.sync[alone] = False
    _by_pattern(rank, patterns, result)
    return result


def _set_comm(result: Classification, rows: NDArray[Any]) -> None:
    result.kind[rows] = COMM
    result.fused[rows] = False
    result.unnamed[rows] = False


def _comm_rows(result: Classification) -> list[int]:
    rows: list[int] = np.flatnonzero(result.kind == COMM).tolist()
    return rows


def _by_name(rank: RankTrace) -> Classification:
    device = rank.device
    names = np.unique(device.name)
    size = len(rank.names)
    kind = np.full(size, COMPUTE, np.int8)
    flags = np.zeros((3, size), np.bool_)
    fused, sync, unnamed = flags
    limits = set()
    for code in names.tolist():
        found = rule_for(rank.names[code])
        if found is not None and found[0].limit is not None:
            limits.add(found[0].limit)
        if found is None:
            unnamed[code] = True
            continue
        meaning = found[0].kind
        kind[code] = {"comm": COMM, "sync": COMM, "copy": COPY}.get(meaning, COMPUTE)
        fused[code] = meaning == "fused"
        sync[code] = meaning == "sync"
    kinds = np.where(device.is_copy_row, np.int8(COPY), kind[device.name]).astype(np.int8)
    kernel = ~device.is_copy_row
    nothing = np.zeros(len(device), np.bool_)
    return Classification(
        kinds, fused[device.name] & kernel, sync[device.name] & kernel, unnamed[device.name] & kernel,
        nothing.copy(), nothing.copy(), np.full(len(device), NONE, np.int64), limits=limits,
    )  # fmt: skip


def call_operators(rank: RankTrace) -> Int64Array:
    """Rows of the ``record_param_comms`` operators that are calls."""
    code = next((index for index, name in enumerate(rank.names) if name == PARAM_COMMS), None)
    if code is None:
        return np.empty(0, np.int64)
    rows = np.flatnonzero(rank.operators.name == code)
    args = rank.operators.args
    return np.array(
        [row for row in rows.tolist() if row not in args or is_call(str(args[row].collective or ""))], np.int64
    )


def _peer_copies(rank: RankTrace, launches: Int64Array, result: Classification) -> None:
    """Peer copies in a range of symmetric memory are communication; without any operator they may be."""
    device = rank.device
    peer_names = [code for code in np.unique(device.name).tolist() if _PEER_COPY.search(rank.names[code])]
    rows = np.flatnonzero(device.is_copy_row & np.isin(device.name, peer_names) & (result.kind == COPY))
    if not len(rows):
        return
    ids = device.external_id[rows]
    nameless = (ids == NO_ID) | ~np.isin(ids, rank.operators.external_id)
    placed, thread, instant = _where_issued(rank, rows, launches)
    symmetric = [code for code, name in enumerate(rank.names) if _SYMMETRIC_RANGE.search(name)]
    for number, table in enumerate((rank.operators, rank.annotations)):
        ranges = index_spans(table, np.flatnonzero(np.isin(table.name, symmetric)))
        outermost = ranges.outermost(thread, instant)
        for row, span in zip(rows[placed].tolist(), outermost.tolist(), strict=True):
            if span != NONE:
                result.ranges.setdefault(row, (number, span))
    if nameless[placed].any():
        everything = index_spans(rank.operators, np.arange(len(rank.operators)))
        nameless[placed] &= everything.innermost(thread, instant) == NONE
    inside = np.isin(rows, list(result.ranges)) | _beside_user_buffers(rank, rows)
    result.kind[rows[inside]] = COMM
    result.possible_comm[rows[nameless & ~inside]] = True
    if inside.any():
        result.limits.add("stream-waits")


def _where_issued(rank: RankTrace, rows: Int64Array, launches: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Which rows have a place on the CPU, and its thread and instant: of the launch, else of the operator."""
    launch, ids = launches[rows], rank.device.external_id[rows]
    # Older files repeat the correlation id there.
    ids = np.where(ids == rank.device.correlation[rows], NO_ID, ids)
    owner = rows_with_id(rank.operators, np.arange(len(rank.operators)), ids)
    thread, instant = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for table, found in ((rank.operators, owner), (rank.runtime, launch)):
        known = found != NONE
        there = found[known]
        thread[known], instant[known] = thread_keys(table.pid[there], table.tid[there]), table.start[there]
    placed = np.flatnonzero((launch != NONE) | (owner != NONE))
    return placed, thread[placed], instant[placed]


def _beside_user_buffers(rank: RankTrace, rows: Int64Array) -> NDArray[np.bool_]:
    """Copies on a stream on which kernels signal for user buffers: the data that they signal moves by copy engine."""
    device = rank.device
    codes = []
    for code in np.unique(device.name).tolist():
        rule = rule_for(rank.names[code])
        if rule is not None and rule[0].family == USER_BUFFERS:
            codes.append(code)
    signals = np.isin(device.name, codes)
    streams = np.unique(device.device[signals] * _STREAMS + device.stream[signals])
    return np.isin(device.device[rows] * _STREAMS + device.stream[rows], streams)


def _group_of_one(rank: RankTrace, result: Classification, row: int) -> bool:
    args = rank.device.args.get(row)
    if args is None and result.operator[row] != NONE:
        args = rank.operators.args.get(int(result.operator[row]))
    return args is not None and args.group_size == 1


def _by_pattern(rank: RankTrace, patterns: Sequence[re.Pattern[str]], result: Classification) -> None:
    device = rank.device
    for pattern in patterns:
        codes = [code for code in np.unique(device.name).tolist() if pattern.search(rank.names[code])]
        rows = np.flatnonzero(np.isin(device.name, codes))
        if len(rows):
            result.patterns_used.add(pattern.pattern)
            result.by_pattern[rows] |= result.kind[rows] != COMM
            _set_comm(result, rows)
            result.possible_comm[rows] = False
