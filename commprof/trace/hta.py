"""Our columns as HTA's own objects, without parsing again (package ``traceinsight``, module ``hta``; extra ``hta``).

HTA keeps one data frame per rank: every event a row, names and categories as indices into one symbol table over all
ranks, times in microseconds. HTA's parser floors times to whole microseconds; these keep their nanoseconds. Nothing of
commprof rests on HTA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from commprof.errors import InputRefused
from commprof.intervals import Int64Array
from commprof.trace.links import NONE, launch_rows
from commprof.trace.model import RankTrace, Trace

if TYPE_CHECKING:
    import pandas as pd

_STEP = "ProfilerStep#"
_CATEGORIES = ("user_annotation", "cpu_op", "cuda_runtime", "kernel", "gpu_memcpy")


def to_hta(trace: Trace) -> Any:
    """An ``hta.trace_analysis.TraceAnalysis`` over all ranks of ``trace``: every event, also of the last step.

    Raises :class:`~commprof.errors.InputRefused` where HTA is not installed.
    """
    try:
        from hta.common.trace import Trace as HtaTrace
        from hta.common.trace_symbol_table import TraceSymbolTable
        from hta.configs.parser_config import ParserConfig
        from hta.trace_analysis import TraceAnalysis
    except ImportError as error:
        missing = (error.name or "hta").partition(".")[0].replace("hta", "traceinsight")
        raise InputRefused(f"the package {missing} is not installed", hint="pip install 'commprof[hta]'") from None
    symbols = TraceSymbolTable()
    symbols.add_symbols(_CATEGORIES)
    frames = {rank.rank: _frame(rank, symbols) for rank in trace.ranks}
    handed = HtaTrace.__new__(HtaTrace)
    handed.trace_path, handed.trace_files = "", {rank.rank: rank.file.path for rank in trace.ranks}
    handed.parser_config = ParserConfig.get_default_cfg()
    handed.symbol_table = symbols
    handed.meta_data = {rank.rank: dict(rank.metadata) for rank in trace.ranks}
    first = min(rank.base_ns + _first(rank) for rank in trace.ranks)
    for rank in trace.ranks:
        frame = frames[rank.rank]
        for column in ("ts", "end"):
            frame[column] = (frame[column] + (rank.base_ns - first)) / 1000
        frame["dur"] = frame["dur"] / 1000
    handed.traces, handed.min_ts, handed.is_parsed = frames, 0, True
    analysis = TraceAnalysis.__new__(TraceAnalysis)
    analysis.t = handed
    return analysis


def _first(rank: RankTrace) -> int:
    """Start of the earliest event."""
    tables = (rank.device, rank.runtime, rank.operators, rank.annotations)
    return min((int(table.start.min()) for table in tables if len(table)), default=0)


def _frame(rank: RankTrace, symbols: Any) -> pd.DataFrame:
    """The events of one rank in HTA's columns: annotations, operators, runtime calls, device events; times still ns."""
    import pandas as pd

    symbols.add_symbols(rank.names)
    index_of = symbols.get_sym_id_map()
    name_of = np.array([index_of[name] for name in rank.names], np.int64)
    category = {name: index_of[name] for name in _CATEGORIES}
    cpu = (rank.annotations, rank.operators, rank.runtime)
    counts = [len(table) for table in cpu]
    on_cpu, on_device = sum(counts), len(rank.device)
    offset = counts[0] + counts[1]
    linked = launch_rows(rank.device, rank.runtime, rank.file.path)
    partner = np.full(on_cpu + on_device, -1, np.int64)
    there = np.flatnonzero(linked != NONE)
    partner[on_cpu + there] = offset + linked[there]
    # Of several kernels of one launch the last one stays, as in HTA.
    partner[offset + linked[there]] = on_cpu + there
    missing = (linked == NONE) & (rank.device.correlation >= 0)
    partner[on_cpu + np.flatnonzero(missing)] = 0
    start = np.concatenate([*(table.start for table in cpu), rank.device.start])
    end = np.concatenate([*(table.end for table in cpu), rank.device.end])
    name = np.concatenate([*(table.name for table in cpu), rank.device.name])
    none = [np.full(count, -1, np.int64) for count in counts]
    kinds = np.where(rank.device.is_copy_row, category["gpu_memcpy"], category["kernel"])
    repeated = [np.full(n, category[c], np.int64) for n, c in zip(counts, _CATEGORIES, strict=False)]
    return pd.DataFrame(
        {
            "index": np.arange(on_cpu + on_device),
            "cat": np.concatenate([*repeated, kinds]),
            "name": name_of[name] if len(name) else name,
            "pid": np.concatenate([*(table.pid for table in cpu), rank.device.device]),
            "tid": np.concatenate([*(table.tid for table in cpu), rank.device.stream]),
            "ts": start,
            "dur": end - start,
            "stream": np.concatenate([*none, rank.device.stream]),
            "correlation": np.concatenate([*none[:2], rank.runtime.correlation, rank.device.correlation]),
            "index_correlation": partner,
            "iteration": _iterations(rank, start[:on_cpu], partner, on_cpu),
            # What synchronisation events wait for; those are not among our columns.
            "wait_on_stream": np.full(len(partner), -1, np.int64),
            "wait_on_cuda_event_record_corr_id": np.full(len(partner), -1, np.int64),
            "end": end,
        }
    )


def _iterations(rank: RankTrace, start: Int64Array, partner: Int64Array, on_cpu: int) -> Int64Array:
    """The number of the step mark around every CPU event, and of the launch of every device event; -1 for none."""
    out = np.full(len(partner), -1, np.int64)
    found = [
        (int(table.start[row]), int(table.end[row]), int(rank.names[code][len(_STEP) :]))
        for table in (rank.annotations, rank.operators)
        for code in np.unique(table.name).tolist()
        if rank.names[code].startswith(_STEP) and rank.names[code][len(_STEP) :].isdigit()
        for row in np.flatnonzero(table.name == code).tolist()
    ]
    for begin, finish, number in sorted(found):
        out[:on_cpu][(start >= begin) & (start < finish)] = number
    device = np.flatnonzero(partner[on_cpu:] > 0) + on_cpu
    out[device] = out[partner[device]]
    return out
