"""Rows of the report's tables, from columns to dicts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from commprof.analysis.model import Analysis, DeviceAnalysis, RankAnalysis, Split
from commprof.analysis.steps import Unit, mean, period_of, units
from commprof.report.exchange_rows import exchange_columns
from commprof.report.group_rows import rate_columns
from commprof.report.waiting_rows import wait_columns
from commprof.report.where_rows import placed
from commprof.trace.model import NO_ID, NOT_LAUNCHED, SOURCES, UNKNOWN_SIZE
from commprof.trace.operations import OPERATIONS

_LENGTHS = (
    "duration", "compute", "fused", "fused_wait", "comm", "overlap", "overlap_comm_copies", "overlap_thin",
    "exposed_comm", "copy", "exposed_copy", "idle",
)  # fmt: skip
_HOST = ("exposed_host", "exposed_blocking", "idle_host")


def rank_row(rank: RankAnalysis, device: DeviceAnalysis, origin: int) -> dict[str, Any]:
    """One device of one rank: its split whole, by step, and on average."""
    shift = rank.base_ns - origin
    chosen = units(device, rank.optimizer_marks)
    return {
        "rank": rank.rank,
        "device": device.device,
        "windows": device.windows,
        "compute_stream": device.compute_stream,
        "device_sms": rank.sm_counts.get(device.device),
        "micro_steps": period_of(device, rank.optimizer_marks),
        "whole": split_row(device.whole, shift),
        "steps": [
            {"name": step.name, "incomplete": step.incomplete, "open": step.open, **split_row(step.split, shift)}
            for step in device.steps
        ],
        "steps_without_window": [{"name": name, "reason": reason} for name, reason in device.without_window],
        "mean": {"steps": len(chosen), **_mean_row(chosen)} if chosen else None,
    }


def split_row(split: Split, shift: int) -> dict[str, Any]:
    """One split with its start and end on the report's clock."""
    return {
        "start_ns": split.start + shift,
        "end_ns": split.end + shift,
        **{f"{name}_ns": getattr(split, name) for name in _LENGTHS},
        "overlap_ratio": split.overlap_ratio,
        "comm_share": split.comm_share,
        **{f"{name}_ns": getattr(split, name) for name in _HOST},
    }


def _mean_row(chosen: list[Unit]) -> dict[str, Any]:
    totals = {
        name: sum(unit.total(name) or 0 for unit in chosen) for name in ("overlap", "comm", "exposed_comm", "duration")
    }
    return {
        **{f"{name}_ns": mean(chosen, name) for name in _LENGTHS},
        "overlap_ratio": totals["overlap"] / totals["comm"] if totals["comm"] else None,
        "comm_share": totals["exposed_comm"] / totals["duration"] if totals["duration"] else None,
        **{f"{name}_ns": mean(chosen, name) for name in _HOST},
    }


def overall_row(analysis: Analysis) -> dict[str, Any] | None:
    """The split averaged over all ranks, devices and steps together; ``None`` where there is no step."""
    chosen = [
        unit for rank in analysis.ranks for device in rank.devices for unit in units(device, rank.optimizer_marks)
    ]
    if not chosen:
        return None
    return {"ranks": len(analysis.ranks), "steps": len(chosen), **_mean_row(chosen)}


def call_rows(analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    """One row per call and rank, in order of start (ties: rank, then stream)."""
    rows: list[dict[str, Any]] = []
    for place in range(len(analysis.ranks)):
        rows += _calls_of(place, analysis, origin)
    rows.sort(key=lambda row: (row["start_ns"], row["rank"], row["device"], row["stream"]))
    return rows


def _calls_of(place: int, analysis: Analysis, origin: int) -> list[dict[str, Any]]:
    rank, groups = analysis.ranks[place], analysis.group_of[place]
    calls, shares = rank.calls, rank.shares
    shift = rank.base_ns - origin
    by_step: dict[int, dict[str, int]] = defaultdict(dict)
    for call, step, ns in zip(
        shares.part_call.tolist(), shares.part_step.tolist(), shares.part_ns.tolist(), strict=True
    ):
        by_step[call][shares.step_names[step]] = ns
    main = {device.device: device.compute_stream for device in rank.devices}
    moved = exchange_columns(rank)
    where, waits, rates = placed(rank), wait_columns(analysis, place), rate_columns(analysis, place)
    columns = zip(
        calls.operation.tolist(), calls.group.tolist(), calls.group_size.tolist(), calls.sequence.tolist(),
        calls.dtype.tolist(), calls.size_bytes.tolist(), calls.start.tolist(), calls.duration.tolist(),
        shares.exposed.tolist(), shares.sole.tolist(), shares.touched.tolist(), calls.stream.tolist(),
        calls.source.tolist(), shares.step.tolist(), calls.peer.tolist(), calls.root.tolist(),
        (calls.last - calls.first).tolist(), calls.channels.tolist(), calls.copy_engine.tolist(),
        calls.fused.tolist(), calls.device.tolist(), calls.launched.tolist(),
        strict=True,
    )  # fmt: skip
    rows = []
    for index, (
        operation, local, size, sequence, dtype, message, start, duration, exposed, sole, touched, stream, source, step,
        peer, root, kernels, channels, copy_engine, fused, device, launched,
    ) in enumerate(columns):  # fmt: skip
        group = groups[local] if local >= 0 else None
        name = OPERATIONS[operation]
        members = (size if size > 0 else None) or (None if group is None else analysis.groups[group].size)
        rows.append(
            {
                "rank": rank.rank,
                "step": shares.step_names[step] if step >= 0 else None,
                "op": name,
                "group": None if group is None else analysis.groups[group].name,
                "group_size": members,
                "seq": None if sequence == NO_ID else sequence,
                "dtype": calls.dtypes[dtype] if dtype >= 0 else None,
                "size_bytes": None if message == UNKNOWN_SIZE else message,
                "start_ns": start + shift,
                "duration_ns": duration,
                "exposed_ns": exposed,
                **rates[index],
                "stream": stream,
                "kind_source": SOURCES[source],
                **where[index],
                "group_id": group,
                "peer": None if peer == NO_ID else peer,
                "root": None if root == NO_ID else root,
                **moved[index],
                "kernels": kernels,
                "channels": channels if channels >= 0 and not copy_engine else None,
                "copy_engine": copy_engine,
                "fused": fused,
                "device": device,
                "launched_ns": None if launched == NOT_LAUNCHED else launched + shift,
                "exposed_by_step": by_step.get(index, {}),
                "sole_ns": sole,
                "touched_ns": touched,
                "hidden_ns": duration - touched,
                "on_compute_stream": stream == main.get(device) and not rank.on_cpu,
                **waits[index],
            }
        )
    return rows
