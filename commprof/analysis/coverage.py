"""How much of the device work was understood: what no rule names, no metadata describes, and what leaves no event."""

from __future__ import annotations

from typing import Any

import numpy as np

from commprof.analysis.model import Analysis, Coverage, Note
from commprof.intervals import Int64Array, union
from commprof.trace.classify import Classification
from commprof.trace.gloo import gloo_rows
from commprof.trace.kernel_rules import LIMITS
from commprof.trace.links import NONE
from commprof.trace.model import Calls, RankTrace
from commprof.units import format_ns, format_share

_UNCLASSIFIED_SHARE = 0.05
"""Names that no rule knows are listed above this share of device time: there they could turn a verdict."""
_COUNTS = (
    "comm_without_metadata", "device_events", "linked_device_events", "fused_calls", "unknown_dtype",
    "unknown_collective", "group_unknown", "clamped_launches", "graph_kernels",
)  # fmt: skip


def cover_device(coverage: Coverage, rank: RankTrace, kinds: Classification, launches: Int64Array) -> None:
    """Fill in what the device events of a rank tell."""
    device = rank.device
    duration = device.end - device.start
    coverage.kernel_ns = int(duration[~device.is_copy_row].sum())
    codes, place = np.unique(device.name[kinds.unnamed], return_inverse=True)
    lengths = np.zeros(len(codes), np.int64)
    np.add.at(lengths, place, duration[kinds.unnamed])
    coverage.unnamed_ns = {rank.names[code]: ns for code, ns in zip(codes.tolist(), lengths.tolist(), strict=True)}
    linked = np.flatnonzero(launches != NONE)
    coverage.clamped_launches = int((rank.runtime.start[launches[linked]] > device.start[linked]).sum())
    coverage.possible_comm_calls = int(kinds.possible_comm.sum())
    coverage.possible_comm_ns = int(duration[kinds.possible_comm].sum())
    coverage.limits = frozenset(kinds.limits)
    spans = gloo_rows(rank)
    coverage.gloo_calls = len(spans)
    coverage.gloo_ns = union(rank.annotations.start[spans], rank.annotations.end[spans]).total()


def cover_calls(coverage: Coverage, calls: Calls) -> None:
    """Fill in what the calls of a rank tell."""
    comm = ~calls.fused
    coverage.comm_without_metadata = calls.without_metadata
    coverage.unknown_dtype = calls.unknown_dtype
    coverage.unknown_collective = int((comm & (calls.operation == 0)).sum())
    coverage.group_unknown = int((comm & (calls.group < 0)).sum())
    coverage.fused_calls = int(calls.fused.sum())
    coverage.graph_calls_noted = calls.noted_in_graphs
    coverage.graph_calls_unnamed = calls.unnamed_in_graphs


def coverage_row(analysis: Analysis) -> dict[str, Any]:
    """``coverage`` of the report: sums over all ranks."""
    found = [rank.coverage for rank in analysis.ranks]
    share, large = unclassified_kernels(analysis)
    return {
        "unrecognised_kernel_share": share,
        "unclassified": large,
        **{name: sum(getattr(coverage, name) for coverage in found) for name in _COUNTS},
        "possible_comm": {
            "calls": sum(coverage.possible_comm_calls for coverage in found),
            "duration_ns": sum(coverage.possible_comm_ns for coverage in found),
        },
    }


def unclassified_kernels(analysis: Analysis) -> tuple[float, list[dict[str, Any]]]:
    """Share of kernel time that no rule names, and the names with more than 5 % of it."""
    total = sum(rank.coverage.kernel_ns for rank in analysis.ranks)
    names: dict[str, int] = {}
    for rank in analysis.ranks:
        for name, ns in rank.coverage.unnamed_ns.items():
            names[name] = names.get(name, 0) + ns
    if not total:
        return 0.0, []
    large = sorted(((ns, name) for name, ns in names.items() if ns > _UNCLASSIFIED_SHARE * total), reverse=True)
    return sum(names.values()) / total, [{"name": name, "share": ns / total} for ns, name in large]


def _graph_notes(analysis: Analysis) -> list[Note]:
    """Calls of CUDA graphs: which of them are named by the notes of the hook, and why the others are not."""
    noted = sum(rank.coverage.graph_calls_noted for rank in analysis.ranks)
    unnamed = sum(rank.coverage.graph_calls_unnamed for rank in analysis.ranks)
    taken = any(manifest.cuda_graphs for manifest in analysis.manifests)
    why = "no note of a captured graph agrees with them" if taken else "make Capture before the graphs are captured"
    notes = []
    if noted:
        text = "are named by what the hook noted while the graphs were captured; when they were launched is not known"
        notes.append(Note("graph-calls", f"{noted:,} calls in CUDA graphs {text}."))
    if unnamed:
        notes.append(Note("graph-calls", f"{unnamed:,} calls in CUDA graphs have an operation and a time only: {why}."))
    return notes


def coverage_notes(analysis: Analysis) -> list[Note]:
    """Kernels that no rule knows, and what the libraries that were seen do without an event."""
    _, large = unclassified_kernels(analysis)
    unknown = [
        Note(
            "unclassified-kernels",
            f"{entry['name'][:100]}: no rule knows this kernel ({format_share(entry['share'])} of kernel time); it "
            "counts as compute. If it communicates, name it with --comm-pattern.",
        )
        for entry in large
    ]
    unknown += [
        Note(
            "gloo-beside-device",
            f"rank {rank.rank}: {rank.coverage.gloo_calls:,} gloo calls on the CPU "
            f"({format_ns(rank.coverage.gloo_ns)}) beside the device; they occupy none of it and count nowhere.",
        )
        for rank in analysis.ranks
        if rank.coverage.gloo_calls
    ]
    unknown += _graph_notes(analysis)
    limits = {limit for rank in analysis.ranks for limit in rank.coverage.limits}
    return unknown + [Note("no-event", LIMITS[limit]) for limit in sorted(limits)]
