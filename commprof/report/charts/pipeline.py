"""The pipeline bubble of every stage beside the ideal, the imbalance of all-to-all calls, and what overlap costs."""

from __future__ import annotations

from collections import defaultdict

from commprof.report.charts.wording import Json, clean, count
from commprof.units import format_bytes, format_ns, format_share

MOST_STAGES = 64
MOST_ROWS = 12
MOST_PEERS = 16
_TELLING = 0.01
"""Share of the whole cost below which a kernel is not worth a row."""
_UNEVEN = 0.02
"""A stage that is longer than the others by less is not worth a word."""


def pipeline(report: Json) -> Json | None:
    """Bubble per stage over steps, and the stage that is longer than the others; ``None`` where neither is known."""
    found = report.get("pipeline")
    longest = longest_stage(report)
    if not found or not (found.get("bubble") or longest):
        return None
    by_stage: dict[int, list[Json]] = defaultdict(list)
    for row in found["bubble"]:
        by_stage[row["stage"]].append(row)
    rows = [_stage(stage, by_stage[stage]) for stage in sorted(by_stage)]
    ideal = found.get("ideal_share")
    return {
        "stages": count(found["stages"], "stage"),
        "microbatches": count(found["microbatches"], "micro-batch", "micro-batches"),
        "boundary": _tensor(found.get("boundary")),
        "ideal": None if ideal is None else f"{ideal:.3f}",
        "ideal_left": None if ideal is None else min(ideal, 1) * 100,
        "imbalance": format_ns(found["stage_imbalance_ns"]) if found.get("stage_imbalance_ns") is not None else None,
        "longest": longest,
        "rows": rows[:MOST_STAGES],
        "total": len(rows),
        "waits": any(row["known"] for row in rows),
    }


def longest_stage(report: Json) -> str | None:
    """The stage that computes longer than the others, which accuses nobody; ``None`` where they are alike.

    Where a stage is one rank, a slow device looks like more layers, unless its kernels were told to be more.
    """
    found = report.get("pipeline") or {}
    stage, excess = found.get("longest_stage"), found.get("longest_stage_excess")
    if stage is None or excess is None or excess < _UNEVEN:
        return None
    last = "the last stage" if stage == found["stages"] - 1 else "the first stage" if stage == 0 else f"stage {stage}"
    ranks = found.get("longest_stage_ranks") or []
    named = next((row for row in report.get("stragglers") or [] if ranks and row.get("members") == ranks), None)
    one_device = len(ranks) == 1 and (named is None or named["cause"] != "more-work" or named.get("or_cause"))
    why = (
        "With one rank to a stage the trace does not tell whether the model is cut so or the device is slow"
        if one_device
        else "That is how the model is cut, no fault of a machine"
    )
    return f"Unequal stages: {last} computes {format_share(excess)} longer than the others do on average. {why}"


def _tensor(sides: list[int] | None) -> str | None:
    """``4 × 1024 × 2048``; of a flat tensor how many elements."""
    if not sides:
        return None
    return f"{sides[0]:,} elements" if len(sides) == 1 else " × ".join(map(str, sides))


def _stage(stage: int, rows: list[Json]) -> Json:
    shares = [row["share"] for row in rows if row["share"] is not None]
    waits = [row["receive_wait_ns"] for row in rows if row["receive_wait_ns"] is not None]
    share = sum(shares) / len(shares) if shares else None
    return {
        "stage": stage,
        "idle": format_ns(round(sum(row["idle_ns"] or 0 for row in rows) / len(rows))),
        "wait": format_ns(round(sum(waits) / len(waits))) if waits else "n/a",
        "known": bool(waits),
        "share": "n/a" if share is None else f"{share:.3f}",
        "width": 0.0 if share is None else min(share, 1) * 100,
        "steps": len(rows),
    }


def imbalance(report: Json) -> Json | None:
    """All-to-all calls whose ranks send unequal amounts, the most unequal first."""
    rows = report.get("imbalance") or []
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: (-(row["ratio"] or 0), row["match"] or 0))
    return {"rows": [_call(row) for row in ordered[:MOST_ROWS]], "total": len(rows), "peers": _peers(ordered[0])}


def _peers(row: Json) -> Json:
    """Who sends how much to whom in one call: ranks down, and their peers across where those are told."""
    matrix, members, missing = row["per_peer"], row["members"], row["per_peer_missing"]
    if matrix is not None and len(members) > MOST_PEERS:
        matrix, missing = None, f"more than {MOST_PEERS} members, see the JSON report"
    ranks = sorted(row["sent_bytes"], key=int)
    shown = dict(zip(map(str, members), matrix, strict=True)) if matrix is not None else {}
    return {
        "step": clean(row["step"], 60),
        "match": "n/a" if row["match"] is None else str(row["match"]),
        "columns": [f"to rank {rank}" for rank in members] if matrix is not None else [],
        "rows": [
            {
                "rank": f"rank {rank}",
                "cells": [format_bytes(size) for size in shown.get(rank, ())],
                "received": format_bytes(row["received_bytes"].get(rank)),
                "sent": format_bytes(row["sent_bytes"][rank]),
            }
            for rank in ranks[:MOST_STAGES]
        ],
        "missing": missing,
    }


def _call(row: Json) -> Json:
    def ends(sizes: Json) -> tuple[str, str]:
        known = [(size, int(rank)) for rank, size in (sizes or {}).items() if size is not None]
        if not known:
            return "n/a", "n/a"
        low, high = min(known), max(known)
        return f"{format_bytes(low[0])} (rank {low[1]})", f"{format_bytes(high[0])} (rank {high[1]})"

    sent, received = ends(row["sent_bytes"]), ends(row["received_bytes"])
    return {
        "step": clean(row["step"], 60),
        "match": "n/a" if row["match"] is None else str(row["match"]),
        "ratio": "n/a" if row["ratio"] is None else f"{row['ratio']:.2f}",
        "least": sent[0],
        "most": sent[1],
        "received": received[1],
        "bars": _bars(row["sent_bytes"]),
    }


def _bars(sizes: Json) -> list[float]:
    """Bytes sent by each rank as shares of the largest, up to 64 ranks."""
    ordered = [sizes[rank] or 0 for rank in sorted(sizes or {}, key=int)][:64]
    most = max(ordered, default=0) or 1
    return [size / most * 100 for size in ordered]


def contention(report: Json) -> Json | None:
    """Kernels that run slower beside communication than alone."""
    rows = report.get("contention") or []
    if not rows:
        return None
    whole = sum(row["cost_ns_per_step"] or 0 for row in rows)
    ordered = sorted(rows, key=lambda row: -(row["cost_ns_per_step"] or 0))
    ordered = [row for row in ordered if (row["cost_ns_per_step"] or 0) > _TELLING * whole] or ordered[:1]
    return {
        "rows": [
            {
                "kernel": clean(row["kernel"], 120),
                "whole_name": clean(row["kernel"], 1_000),
                # The same kernel on another grid is another row.
                "blocks": count(row["blocks"], "block") if row.get("blocks") else None,
                "alone": format_ns(round(row["mean_alone_ns"])),
                "beside": format_ns(round(row["mean_beside_ns"])),
                "calls": f"{row['calls_alone']:,} / {row['calls_beside']:,}",
                "factor": "n/a" if row["factor"] is None else f"{row['factor']:.2f}",
                "cost": format_ns(row["cost_ns_per_step"]),
            }
            for row in ordered[:MOST_ROWS]
        ],
        "total": len(rows),
        "cost": format_ns(whole),
    }
