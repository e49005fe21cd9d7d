"""Sequence numbers of the window's collectives, from PyTorch's Flight Recorder.

A gloo trace names no group and no sequence number; the recorder, on by default, keeps both together with
the time of the call. Reading it copies a ring of at most a few thousand entries under its lock, once,
after the window.
"""

from __future__ import annotations

from typing import Any

import msgspec
import torch

from commprof.manifest import FlightEntry

_DUMPS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")


def flight_entries(start_ns: int, stop_ns: int, notes: list[str]) -> tuple[FlightEntry, ...]:
    """Entries created in ``[start_ns, stop_ns)`` (Unix), in order; empty where this build keeps none.

    A note says if the recorder, which keeps the last few thousand calls, has lost the window's first ones.
    """
    native = getattr(torch._C, "_distributed_c10d", None)
    dump = next((getattr(native, name) for name in _DUMPS if hasattr(native, name)), None)
    if dump is None:
        return ()
    entries = msgspec.json.decode(dump()).get("entries", [])
    first = min(entries, key=lambda entry: entry["time_created_ns"], default=None)
    if first is not None and first.get("record_id", 0) > 0 and first["time_created_ns"] >= start_ns:
        notes.append(
            f"the Flight Recorder kept only the last {len(entries)} calls of the window (TORCH_FR_BUFFER_SIZE)"
        )
    return tuple(_entry(e) for e in entries if start_ns <= e["time_created_ns"] < stop_ns)


def _entry(entry: dict[str, Any]) -> FlightEntry:
    p2p = bool(entry.get("is_p2p"))
    return FlightEntry(
        group=str(entry["process_group"][0]),
        seq=entry["p2p_seq_id"] if p2p else entry["collective_seq_id"],
        name=entry["profiling_name"],
        created_ns=entry["time_created_ns"],
        is_p2p=p2p,
        op_id=entry.get("op_id"),
        thread=entry.get("thread_id"),
        input_sizes=_sizes(entry.get("input_sizes")),
        input_dtypes=tuple(entry.get("input_dtypes") or ()),
        output_sizes=_sizes(entry.get("output_sizes")),
        output_dtypes=tuple(entry.get("output_dtypes") or ()),
    )


def _sizes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(size) for size in sizes or ())
