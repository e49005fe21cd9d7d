"""Rows of ``groups``: one per process group and operation, over all ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.bandwidth import GroupBandwidth, call_rates
from commprof.analysis.model import Analysis, RankAnalysis
from commprof.analysis.roles import Role
from commprof.analysis.steps import units
from commprof.intervals import Int64Array
from commprof.trace.operations import OPERATIONS

FASTER = (2, 4)
"""How many times faster compute is assumed to get in ``compute_to_comm_at``."""

_SUMS = (
    "calls", "bytes", "unsized", "comm", "exposed", "hidden", "host", "timed", "transfer_timed", "wait", "transfer",
    "exposed_wait", "exposed_known", "compute", "busy",
)  # fmt: skip


@dataclass(slots=True)
class _Sums:
    """Sums over the calls of one group and operation; ``timed`` calls have a known wait."""

    values: dict[str, int]
    host_known: bool = True

    def add(self, other: dict[str, int], host_known: bool) -> None:
        for name, value in other.items():
            self.values[name] += value
        self.host_known &= host_known


def group_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per process group and operation, in order of exposed time."""
    sums: dict[tuple[int, int], _Sums] = {}
    for index, (rank, groups) in enumerate(zip(analysis.ranks, analysis.group_of, strict=True)):
        linked = all(device.whole.exposed_host is not None for device in rank.devices)
        for key, found in _of_rank(analysis, index, rank, groups).items():
            sums.setdefault(key, _Sums(dict.fromkeys(_SUMS, 0))).add(found, linked)
    rows = [_row(analysis, group, OPERATIONS[operation], entry) for (group, operation), entry in sums.items()]
    return sorted(rows, key=lambda row: (-row["exposed_ns"], row["group_id"] is None, row["group_id"] or 0, row["op"]))


def _of_rank(
    analysis: Analysis, index: int, rank: RankAnalysis, groups: list[int]
) -> dict[tuple[int, int], dict[str, int]]:
    """Sums of one rank by group of the run (-1 unknown) and operation."""
    calls, shares = rank.calls, rank.shares
    to_global = np.array([*groups, -1], np.int64)  # the last one stands for "no group", index -1
    chosen = np.flatnonzero(~calls.fused)
    if not len(chosen):
        return {}
    keys, inverse = np.unique(
        to_global[calls.group[chosen]] * len(OPERATIONS) + calls.operation[chosen], return_inverse=True
    )
    count = len(calls)
    ones = np.ones(count, np.int64)
    nothing = np.zeros(count, np.int64)
    host = nothing.copy()
    np.add.at(host, shares.pieces.call, rank.causes.host)
    columns = {
        "calls": ones,
        "bytes": np.maximum(calls.size_bytes, 0),
        "unsized": (calls.size_bytes < 0).astype(np.int64),
        "comm": calls.duration,
        "exposed": shares.exposed,
        "hidden": calls.duration - shares.touched,
        "host": host,
        **_waiting(analysis, index, calls.duration, shares.exposed),
    }
    columns["busy"], compute = _in_units(rank, calls.duration - columns["wait"])
    out = {name: np.zeros(len(keys), np.int64) for name in _SUMS}
    for name, values in columns.items():
        np.add.at(out[name], inverse, values[chosen])
    out["compute"][out["busy"] > 0] = compute
    return {
        (int(key) // len(OPERATIONS), int(key) % len(OPERATIONS)): {name: int(out[name][row]) for name in _SUMS}
        for row, key in enumerate(keys.tolist())
    }


def _waiting(analysis: Analysis, index: int, duration: Int64Array, exposed: Int64Array) -> dict[str, Int64Array]:
    """Wait, transfer and their exposed parts of the calls whose wait is known; bounds are none of these."""
    nothing = np.zeros(len(duration), np.int64)
    if not analysis.waiting:
        names = ("timed", "transfer_timed", "wait", "transfer", "exposed_wait", "exposed_known")
        return dict.fromkeys(names, nothing)
    waits = analysis.waiting[index]
    known: NDArray[np.bool_] = (waits.wait >= 0) & ~waits.bound
    return {
        "timed": known.astype(np.int64),
        "transfer_timed": (known & (waits.transfer >= 0)).astype(np.int64),
        "wait": np.where(known, waits.wait, 0),
        "transfer": np.where(known, np.maximum(waits.transfer, 0), 0),
        "exposed_wait": np.where(known, np.maximum(waits.exposed_wait, 0), 0),
        "exposed_known": np.where(known, exposed, 0),
    }


def _in_units(rank: RankAnalysis, ns: Int64Array) -> tuple[Int64Array, int]:
    """``ns`` of the calls of the steps that figures are taken over, 0 for others; and the compute of those steps."""
    chosen = units(rank.devices[0], rank.optimizer_marks)
    names = {name for unit in chosen for name in unit.names}
    inside = np.array([*(name in names for name in rank.shares.step_names), False], np.bool_)
    return np.where(inside[rank.shares.step], ns, 0), sum(unit.total("compute") or 0 for unit in chosen)


def _row(analysis: Analysis, group: int, operation: str, sums: _Sums) -> dict[str, Any]:
    facts = analysis.groups[group] if group >= 0 else None
    role = analysis.roles[group] if 0 <= group < len(analysis.roles) else Role("unknown")
    values = sums.values
    timed = values["timed"] > 0
    ratio = values["compute"] / values["busy"] if values["busy"] > 0 else None
    return {
        "group": facts.name if facts else None,
        "description": facts.description if facts else None,
        "ranks": list(facts.ranks) if facts and facts.ranks else None,
        "op": operation,
        "role": role.of(operation),
        "group_id": group if group >= 0 else None,
        "group_size": facts.size if facts else None,
        "members": facts.members if facts else "unknown",
        "role_evidence": list(role.evidence),
        "overlap_ns": values["hidden"],
        "calls": values["calls"],
        "bytes": values["bytes"],
        "comm_ns": values["comm"],
        "exposed_ns": values["exposed"],
        "exposed_host_ns": values["host"] if sums.host_known else None,
        "wait_ns": values["wait"] if timed else None,
        # Of an all-to-all with unequal splits the wait may be known, but never what of the rest is transfer.
        "transfer_ns": values["transfer"] if values["transfer_timed"] else None,
        "exposed_wait_ns": values["exposed_wait"] if timed else None,
        "exposed_transfer_ns": values["exposed_known"] - values["exposed_wait"] if timed else None,
        # Calls whose wait nobody knows: with them the two parts above add up to exposed_ns.
        "exposed_unknown_ns": values["exposed"] - values["exposed_known"] if timed else None,
        "crosses_hosts": role.crosses_hosts,
        "calls_without_size": values["unsized"],
        **bandwidth_columns(analysis.bandwidth.get((group, operation))),
        "compute_to_comm": ratio,
        "compute_to_comm_at": None if ratio is None else {str(times): ratio / times for times in FASTER},
    }


def bandwidth_columns(found: GroupBandwidth | None) -> dict[str, Any]:
    """What is known of the bandwidth of one group and operation; GB/s."""
    top = found.ceiling if found else None
    stated = found if found and not found.bound else None
    return {
        "busbw_gbps_median": stated.median if stated else None,
        "busbw_gbps_best": stated.best if stated else None,
        "clean_calls": stated.clean if stated else 0,
        "contended": stated.contended if stated else False,
        "alpha_ns": stated.fit.alpha_ns if stated else None,
        "beta_gbps": stated.fit.beta_gbps if stated else None,
        "fit_error": stated.fit.error if stated else None,
        "fit": _fit(stated) if stated else None,
        "peak_gbps": top.low if top else None,
        "peak_high_gbps": top.high if top else None,
        "peak_source": top.source if top else None,
        "efficiency": stated.efficiency if stated else None,
    }


def _fit(found: GroupBandwidth) -> dict[str, Any]:
    fitted = found.fit
    return {
        "kind": fitted.kind,
        "points": [
            {"size_bytes": round(moved / found.factor), "transfer_ns": round(ns)}
            for moved, ns in zip(fitted.moved.tolist(), fitted.ns.tolist(), strict=True)
        ],
        "lines": [
            {
                "alpha_ns": round(line.alpha),
                "beta_gbps": line.gbps,
                "until_bytes": None if line is fitted.lines[-1] else round(line.until / found.factor),
            }
            for line in fitted.lines
        ],
    }


def rate_columns(analysis: Analysis, place: int) -> list[dict[str, float | None]]:
    """Bandwidth of every call of the rank at ``place``, GB/s; null where it cannot be stated."""
    waits = analysis.waiting[place] if analysis.waiting else None
    rates = call_rates(analysis.ranks[place], analysis.group_of[place], analysis, waits)
    columns = (rates.algbw.tolist(), rates.busbw.tolist(), rates.at_least.tolist())
    names = ("algbw_gbps", "busbw_gbps", "busbw_at_least_gbps")
    return [
        {name: None if math.isnan(value) else value for name, value in zip(names, values, strict=True)}
        for values in zip(*columns, strict=True)
    ]
