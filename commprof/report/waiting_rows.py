"""Rows of the report about waiting: columns of calls, what was matched, the rank x step table, who is late and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from commprof.analysis.all_calls import NO_STEP
from commprof.analysis.late_on_path import WHY_NOT
from commprof.analysis.matching import Matching
from commprof.analysis.model import Analysis
from commprof.analysis.stragglers import Straggler
from commprof.analysis.waiting import LAST_BY, UNKNOWN
from commprof.trace.model import NO_ID
from commprof.trace.operations import OPERATIONS

_TIMES = {
    "wait": "wait_ns", "transfer": "transfer_ns", "exposed_wait": "exposed_wait_ns", "own": "own_ns",
    "skew": "skew_ns", "end_skew": "end_skew_ns",
}  # fmt: skip


def wait_columns(analysis: Analysis, index: int) -> list[dict[str, Any]]:
    """What the rows of the calls of ``ranks[index]`` say about waiting, in order of the calls."""
    waits, exposed = analysis.waiting[index], analysis.ranks[index].shares.exposed
    columns: dict[str, list[Any]] = {name: _nullable(getattr(waits, key)) for key, name in _TIMES.items()}
    columns["exposed_transfer_ns"] = _nullable(
        np.where(waits.exposed_wait == UNKNOWN, UNKNOWN, exposed - waits.exposed_wait)
    )
    columns["match"] = _nullable(waits.match)
    columns["members_missing"] = _nullable(waits.members_missing)
    columns["bound"] = waits.bound.tolist()
    columns["last_rank"] = _nullable(waits.last_rank)
    columns["last_by"] = [LAST_BY[code] for code in waits.last_by.tolist()]
    names = list(columns)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _nullable(values: Any) -> list[Any]:
    return [None if value == UNKNOWN else value for value in values.tolist()]


def matching_row(analysis: Analysis) -> dict[str, Any] | None:
    """What was matched over the ranks, by which clocks, and what was not and why."""
    found, clocks, times = analysis.matching, analysis.clocks, analysis.times
    if found is None or clocks is None or times is None:
        return None
    by_messages = analysis.message_clocks
    last_by = [code for code in np.unique(times.last_by).tolist() if LAST_BY[code]]
    return {
        "matched": len(found),
        "unmatched": sum(found.unmatched_by_reason.values()),
        "clock_offsets_ns": {
            str(rank.rank): int(clocks.offset[index]) if clocks.joined[index] else None
            for index, rank in enumerate(analysis.ranks)
        },
        "clock_drifts_ppb": {
            str(rank.rank): round(float(clocks.drift[index]) * 1e9) if clocks.joined[index] else None
            for index, rank in enumerate(analysis.ranks)
        },
        "clock_uncertainty_ns": clocks.worst,
        "message_clock_offsets_ns": None
        if by_messages is None
        else {str(rank.rank): int(by_messages.offset[index]) for index, rank in enumerate(analysis.ranks)},
        "message_clock_uncertainty_ns": None if by_messages is None else int(by_messages.uncertainty.max()),
        "unmatched_by_reason": found.unmatched_by_reason,
        "unmatched_calls": _unmatched(found),
        "group_assumed": analysis.group_assumed,
        # With both in use the weaker one holds for the run.
        "last_by": LAST_BY[max(last_by)] if last_by else None,
    }


def _unmatched(found: Matching) -> list[dict[str, Any]]:
    return [
        {
            "reason": lost.reason,
            "group_id": lost.group if lost.group >= 0 else None,
            "op": OPERATIONS[lost.operation],
            "seq": None if lost.sequence == NO_ID else lost.sequence,
            "present": list(lost.present),
            "absent": list(lost.absent),
        }
        for lost in found.unmatched
    ]


def wait_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The rank x step table: how long a rank waited, how often it was the last, what it cost the others."""
    found, times = analysis.matching, analysis.times
    if found is None or times is None or not len(found):
        return []
    calls, rows = found.calls, found.rows
    steps = len(calls.step_names) + 1
    key = calls.rank[rows] * steps + np.where(calls.step[rows] == NO_STEP, steps - 1, calls.step[rows])
    size = len(analysis.ranks) * steps
    known = times.wait != UNKNOWN
    wait, matched, last = (np.zeros(size, np.int64) for _ in range(3))
    np.add.at(wait, key[known], times.wait[known])
    np.add.at(matched, key[known], 1)
    late = times.last[found.of_row] == calls.rank[rows]
    np.add.at(last, key[late], 1)
    names = [*calls.step_names, None]
    charged = None if analysis.charges is None else analysis.charges.own.sum(axis=2)
    return [
        {
            "rank": int(calls.numbers[at // steps]),
            "step": names[at % steps],
            "wait_ns": int(wait[at]),
            "charged_ns": round(float(charged[at // steps, at % steps])) if charged is not None else None,
            "last": int(last[at]),
            "matched": int(matched[at]),
        }
        for at in np.flatnonzero(matched).tolist()
    ]


def harmless_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Late ranks without whom the run would not end earlier, and why they are not named."""
    return [{**row, "why_not_named": WHY_NOT} for row in straggler_rows(analysis, analysis.harmless)]


def straggler_rows(analysis: Analysis, rows: Sequence[Straggler] | None = None) -> list[dict[str, Any]]:
    """Who makes others wait, the most expensive first."""
    return [
        {
            "rank": late.rank,
            "host": late.host,
            "role": late.role,
            "kind": late.kind,
            "last_share": late.last / late.matched if late.matched else None,
            "last": late.last,
            "matched": late.matched,
            "charged_ns_per_step": late.charged_per_step,
            "share_of_step": late.share,
            "cause": late.cause,
            "or_cause": late.or_cause,
            "evidence": [{"what": what, "value": value, "unit": unit} for what, value, unit in late.evidence],
            "chain": list(late.chain),
            "members": list(late.members),
            "steps": list(late.steps),
        }
        for late in (analysis.stragglers if rows is None else rows)
    ]


def wait_chain_row(analysis: Analysis) -> dict[str, Any] | None:
    """From the longest wait of the worst step back to the rank where it began."""
    chain = analysis.wait_chain
    if chain is None:
        return None
    return {
        "step": chain.step,
        "lost_ns": chain.lost,
        "links": [
            {
                "rank": link.rank,
                "wait_ns": link.wait,
                "op": link.operation,
                "group_id": link.group if link.group >= 0 else None,
                "match": link.match,
                "waited_for": link.waited_for,
                "did": [{"what": what, "share": share} for what, share in link.did],
            }
            for link in chain.links
        ],
        "root_rank": chain.root,
        "cause": chain.cause,
    }


def what_if_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The run replayed without slow ranks, where that can be told."""
    found = analysis.what_if
    if found is None:
        return []
    return [
        {
            "change": found.change,
            "step_ns": found.step,
            "gain_ns": found.gain,
            "slowdown": found.slowdown,
            "replay_error": found.error,
        }
    ]


def imbalance_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """One row per all-to-all with unequal splits."""
    return [
        {
            "match": found.match,
            "group_id": found.group if found.group >= 0 else None,
            "step": found.step,
            "sent_bytes": {str(rank): value for rank, value in found.sent.items()},
            "received_bytes": {str(rank): value for rank, value in found.received.items()},
            "members": None if found.members is None else list(found.members),
            "per_peer": found.per_peer,
            "per_peer_missing": found.per_peer_missing,
            "ratio": found.ratio,
            "ratio_received": found.ratio_received,
        }
        for found in analysis.imbalance
    ]
