"""What Holistic Trace Analysis says of the same traces: an appendix, labelled as HTA's. No verdict rests on it."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from commprof.trace.hta import to_hta
from commprof.trace.model import Trace

_MOST_ROWS = 400
_SYNCHRONISATION = b'"cuda_sync"'


def hta_appendix(trace: Trace) -> dict[str, Any]:
    """Overlap, temporal breakdown, idle time and kernels by HTA, and the critical path of the first rank where its file
    holds synchronisation events. A table that HTA cannot make is ``None``, with its reason under ``failed``.

    Raises :class:`~commprof.errors.InputRefused` where HTA is not installed.
    """
    failed: dict[str, str] = {}
    with _quiet():
        theirs = to_hta(trace)
        tables: dict[str, Callable[[], Any]] = {
            "overlap": lambda: theirs.get_comm_comp_overlap(visualize=False),
            "temporal": lambda: theirs.get_temporal_breakdown(visualize=False),
            "idle": lambda: theirs.get_idle_time_breakdown(ranks=[rank.rank for rank in trace.ranks], visualize=False)[
                0
            ],
            "kernels": lambda: theirs.get_gpu_kernel_breakdown(visualize=False)[0],
            "critical_path": lambda: _critical_path(trace),
        }
        made = {name: _made(name, make, failed) for name, make in tables.items()}
    return {"source": "HTA", "version": _version(), **made, "failed": failed}


def _made(name: str, make: Callable[[], Any], failed: dict[str, str]) -> list[dict[str, Any]] | None:
    try:
        table = make()
    except Exception as error:  # whatever HTA raises on a trace that it cannot handle
        failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return None
    return None if table is None else [_plain(row) for row in table.head(_MOST_ROWS).to_dict("records")]


def _plain(row: dict[Any, Any]) -> dict[str, Any]:
    """A row as JSON: no NaN, no NumPy types."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        value = value.item() if hasattr(value, "item") else value
        out[str(key)] = None if isinstance(value, float) and not math.isfinite(value) else value
    return out


def _critical_path(trace: Trace) -> Any:
    """HTA's critical path of a middle step of the first rank, read by HTA itself: it needs events that only its own
    parser keeps. ``None`` where the file has no synchronisation events, without which HTA's path is wrong."""
    import pandas as pd
    from hta.trace_analysis import TraceAnalysis

    from commprof.trace.source import open_source

    path = trace.ranks[0].file.path
    if not _holds(open_source(path).blocks(), _SYNCHRONISATION):
        return None
    theirs = TraceAnalysis(trace_files={trace.ranks[0].rank: path}, include_last_profiler_step=True)
    graph, succeeded = theirs.critical_path_analysis(trace.ranks[0].rank, "ProfilerStep", 1)
    if not succeeded:
        raise RuntimeError("no critical path was found")
    with contextlib.redirect_stdout(io.StringIO()):
        summary = graph.summary()
    return pd.DataFrame({"bound_by": summary.index, "percent": summary.to_numpy()})


def _holds(blocks: Iterable[bytes], wanted: bytes) -> bool:
    """Whether the bytes of a file hold some text."""
    before = b""
    for block in blocks:
        if wanted in before + block:
            return True
        before = block[-len(wanted) :]
    return False


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """HTA warns and logs a lot; none of it is about the run."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def _version() -> str | None:
    try:
        return version("traceinsight")
    except PackageNotFoundError:
        return None
