"""The sample run with every part of the report filled in by hand, as the contract of the report names it.

The step of the sample is 22 ms: 15.85 ms compute on rank 0 (of it 5.95 ms hides communication), 4.92 ms exposed
communication, 0.22 ms exposed copies, 1.01 ms idle.
"""

from __future__ import annotations

from typing import Any

from tests.report.sample_view import US, many_ranks_view, sample_view

Json = dict[str, Any]

STEPS = ("ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6")
MS = 1_000_000
LENGTH = 22_000
# Of ddp_step: start, end and bytes of the four reductions, microseconds after the start of a step, and when the last
# gradient of each was ready and the CPU launched it.
REDUCTIONS = (
    (7_900, 9_700, 26_214_400, 7_850, 6_100),
    (10_300, 12_500, 26_214_400, 10_250, 8_900),
    (12_900, 15_200, 26_214_400, 12_600, 11_400),
    (15_200, 19_650, 52_428_800, 14_900, 13_800),
)


def finding(name: str, title: str, severity: str, recoverable: int | None, charged: int, **more: Any) -> Json:
    row: Json = {
        "id": name,
        "severity": severity,
        "title": title,
        "charged_ns": charged,
        "recoverable_ns": recoverable,
        "share_of_step": charged / (LENGTH * US),
        "evidence": [],
        "advice": [],
        "threshold": {"value": 0.02, "unit": "share of step", "source": "resolution of step times, this project"},
        "confidence": "estimate",
        "cause": None,
        "ranks": [0, 1],
        "steps": list(STEPS[:2]),
        "group_id": 0,
        "calls": 2,
    }
    return {**row, **more}


FINDINGS = [
    finding(
        "ddp-tail-bucket",
        "The last gradient bucket has nothing left to hide it",
        "high",
        3_900_000,
        3_900_000,
        cause="tail",
        evidence=[
            {"what": "size of the last bucket", "value": 52_428_800, "unit": "bytes"},
            {"what": "exposed after the last backward kernel", "value": 3_900_000, "unit": "ns"},
        ],
        advice=[
            "Make the last bucket smaller: bucket_cap_mb=12 instead of 25. Trade-off: more calls.",
            "Or reduce gradients in bfloat16, half the bytes, with bf16_compress_hook. Trade-off: rounding.",
        ],
    ),
    finding(
        "straggler",
        "Rank 1 is late in most steps: the same kernels take longer there",
        "medium",
        720_000,
        720_000,
        cause="slow-device",
        ranks=[1],
        group_id=None,
        calls=8,
        evidence=[{"what": "kernels of rank 1 beside those of rank 0", "value": 1.02, "unit": "times as long"}],
        advice=["Check clocks and temperature of the GPU of rank 1, and whether another process shares it."],
    ),
    finding(
        "host-bound",
        "The device waits for the CPU between steps",
        "low",
        600_000,
        600_000,
        cause="host-bound",
        group_id=None,
        calls=None,
        advice=["Capture the step in a CUDA graph or compile it, so that fewer launches are needed."],
    ),
    finding(
        "max-connections",
        "CUDA_DEVICE_MAX_CONNECTIONS is not set",
        "info",
        None,
        0,
        group_id=None,
        calls=None,
        advice=["Set it to 1 only with tensor parallel and sequence parallel overlap."],
    ),
]


def full_view() -> Json:
    """Two ranks, three steps, and something in every key."""
    view = sample_view()
    report = view["report"]
    report["overall"] = {
        "ranks": 2,
        "steps": 4,
        **{k: v for k, v in report["ranks"][0]["mean"].items() if k != "steps"},
    }
    report.update(
        findings=[dict(row) for row in FINDINGS],
        accounting=accounting(),
        bounds={
            "step_ns": 22 * MS,
            "all_hidden_ns": 17_080_000,
            "no_waiting_ns": 21_280_000,
            "without_top_finding_ns": 18_100_000,
        },
        buckets=[row for rank in (0, 1) for step in range(3) for row in buckets(rank, step)],
        units=[row for step in range(2) for row in units(step)],
        pipeline=pipeline(),
        matching={
            "matched": 30,
            "unmatched": 2,
            "clock_offsets_ns": {"0": 0, "1": -4_200},
            "clock_uncertainty_ns": 1_000,
            "message_clock_offsets_ns": None,
            "message_clock_uncertainty_ns": None,
            "unmatched_by_reason": {
                "window-edge": 2,
                "rank-missing": 0,
                "extra-call": 0,
                "group-unknown": 0,
                "ambiguous": 0,
            },
            "group_assumed": False,
            "last_by": "clock",
        },
        waits=[
            {
                "rank": rank,
                "step": step,
                "wait_ns": (700, 40)[rank] * US + i * 10 * US,
                "charged_ns": (30, 720)[rank] * US,
                "last": (1, 4)[rank],
                "matched": 5,
            }
            for rank in (0, 1)
            for i, step in enumerate(STEPS)
        ],
        stragglers=[
            {
                "rank": 1,
                "host": "node-b",
                "role": "data parallel 1",
                "kind": "persistent",
                "last_share": 0.8,
                "last": 12,
                "matched": 15,
                "charged_ns_per_step": 720_000,
                "cause": "slow-device",
                "evidence": [
                    "ampere_bf16_s16816gemm: 1.02 times the median of its peers",
                    "no difference in the host's gaps",
                ],
                "chain": [0, 1],
            },
        ],
        strategy=strategy(),
        idle=[
            {"rank": rank, "step": step, "cause": cause, "idle_ns": ns, "count": n, "op": op}
            for rank in (0, 1)
            for step in STEPS[:2]
            for cause, ns, n, op in (
                ("launch", 600_000, 14, None),
                ("input", 260_000, 1, "enumerate(DataLoader)"),
                ("unknown", 150_000, 3, None),
            )
        ],
        imbalance=[
            {
                "match": 7,
                "group_id": 0,
                "step": STEPS[0],
                "sent_bytes": {"0": 4_000_000, "1": 12_000_000},
                "received_bytes": {"0": 12_000_000, "1": 4_000_000},
                "members": [0, 1],
                "per_peer": [[2_000_000, 2_000_000], [10_000_000, 2_000_000]],
                "per_peer_missing": None,
                "ratio": 1.5,
            },
        ],
        contention=[
            {
                "kernel": "ampere_bf16_s16816gemm_bf16_256x128",
                "calls_alone": 5,
                "mean_alone_ns": 640_000,
                "calls_beside": 8,
                "mean_beside_ns": 704_000,
                "factor": 1.1,
                "cost_ns_per_step": 256_000,
            },
        ],
    )
    view["headline"]["ranks"] = "ranks 0–1 of 2"
    report["input"]["hardware"] = {"name": "A100-SXM4", "source": "table"}
    report["exposure"] += [row for rank in (0, 1) for step in STEPS for row in breakdowns(rank, step)]
    for row in report["groups"]:
        row.update(
            role_evidence=["all ranks", "all-reduce of gradients behind backward"],
            exposed_host_ns=0,
            wait_ns=1_400_000,
            transfer_ns=60 * MS,
            busbw_gbps_median=21.4,
            busbw_gbps_best=23.0,
            crosses_hosts=True,
            alpha_ns=14_000,
            beta_gbps=24.1,
            fit_error=0.03,
            peak_gbps=25.0,
            peak_source="one 200 Gbit/s adapter per GPU",
            efficiency=0.86,
            clean_calls=9,
            contended=False,
            compute_to_comm=1.36,
        )
    for i, call in enumerate(report["collectives"]):
        call.update(match=i % 15, wait_ns=(700_000, 40_000)[call["rank"]] // 5, busbw_at_least_gbps=14.0, cause="tail")
    return view


def accounting() -> Json:
    """Two steps on rank 0: 3.9 + 0.72 of 4.92 ms exposed and 0.6 of 1.01 ms idle are explained."""
    parts = (
        ("compute", "compute", None, 15_850),
        ("ddp-tail-bucket", "exposed", 0, 3_900),
        ("straggler", "exposed", 1, 720),
        ("host-bound", "idle", 2, 600),
        ("unexplained-exposed", "exposed", None, 300),
        ("unexplained-idle", "idle", None, 410),
        ("exposed-copy", "copy", None, 220),
    )
    return {
        "steps": 2,
        "duration_ns": 2 * LENGTH * US,
        "ranks": [0],
        "overlap_ns": 2 * 5_950 * US,
        "parts": [
            {
                "name": name,
                "finding": at,
                "ns": 2 * us * US,
                "share": us / LENGTH,
                **{f"{each}_ns": 2 * us * US if each == kind else 0 for each in ("exposed", "idle", "copy")},
            }
            for name, kind, at, us in parts
        ],
    }


def buckets(rank: int, step: int) -> list[Json]:
    begin = 1_000 + step * LENGTH
    rows = []
    for index, (start, end, size, ready, launched) in enumerate(REDUCTIONS):
        previous = REDUCTIONS[index - 1][1] if index else 0
        base = max(ready, launched)
        queued = max(0, previous - base)
        tail = index == len(REDUCTIONS) - 1
        rows.append(
            {
                "rank": rank,
                "step": STEPS[step],
                "index": index,
                "size_bytes": size,
                "parameters": [f"layers.{7 - 2 * index}.weight", f"layers.{7 - 2 * index}.bias"],
                "ready_ns": (begin + ready) * US,
                "launched_ns": (begin + launched) * US,
                "start_ns": (begin + start) * US,
                "end_ns": (begin + end) * US,
                "exposed_ns": 4_450_000 if tail else 100_000,
                "queued_ns": queued * US,
                "lag_ns": (launched - ready) * US,
                "start_delay_ns": (start - max(base, previous)) * US,
                "tail": tail,
                "tail_ns": 4_450_000 if tail else 0,
                "layout": "rebuilt",
            }
        )
    return rows


def units(step: int) -> list[Json]:
    begin = 1_000 + step * LENGTH
    rows = []
    for layer in range(8):
        needed = 300 + 640 * layer
        start = needed - 500 if layer else needed - 40
        rows.append(
            {
                "rank": 0,
                "step": STEPS[step],
                "module": f"layers.{layer}",
                "op": "all_gather",
                "direction": "forward",
                "issued_ns": (begin + start - 100) * US,
                "start_ns": (begin + start) * US,
                "end_ns": (begin + start + 300) * US,
                "needed_ns": (begin + needed) * US,
                "slack_ns": (needed - start - 300) * US,
                "exposed_ns": max(start + 300 - needed, 0) * US,
                "cause": "no-prefetch" if layer == 0 else None,
            }
        )
    return rows


def pipeline() -> Json:
    return {
        "stages": 4,
        "microbatches": 8,
        "boundary": [4, 2048, 4096],
        "ideal_share": 3 / 11,
        "bubble": [
            {
                "stage": stage,
                "step": step,
                "idle_ns": (4 + stage) * MS,
                "receive_wait_ns": 2 * MS,
                "share": 0.29 + 0.01 * stage,
            }
            for stage in range(4)
            for step in STEPS[:2]
        ],
    }


def strategy() -> Json:
    return {
        "name": "ddp",
        "evidence": ["every rank all-reduces tensors of the size of its gradients", "4 buckets per step"],
        "expected_bytes_per_step": 131_072_000,
        "measured_bytes_per_step": 131_076_096,
        "parts": [
            {
                "kind": "dp",
                "degree": 2,
                "group_ids": [0],
                "formula": "2(N-1)/N P bg",
                "expected_bytes": 131_072_000,
                "measured_bytes": 131_076_096,
                "differences": [{"what": "buffer broadcasts", "bytes": 4_096}],
            },
        ],
    }


def breakdowns(rank: int, step: str) -> list[Json]:
    """Exposed time of one step by cause, phase and bucket: 4.92 ms each time."""
    exposed = {
        "cause": (("tail", 3_900_000), ("peer-wait", 720_000), ("unknown", 300_000)),
        "phase": (("backward", 4_800_000), ("optimizer", 120_000)),
        "bucket": (("3", 4_450_000), ("2", 350_000), (None, 120_000)),
        "module": (("layers.0", 4_450_000), (None, 470_000)),
    }
    return [
        {
            "rank": rank,
            "step": step,
            "by": by,
            "name": name,
            "calls": 1,
            "comm_ns": ns,
            "hidden_ns": 0,
            "exposed_ns": ns,
        }
        for by, rows in exposed.items()
        for name, ns in rows
    ]


def many_waits_view(world: int, steps: int = 4, calls: int = 100) -> Json:
    """``world`` ranks, ``calls`` matched collectives a step, one late rank."""
    view = many_ranks_view(world)
    report = view["report"]
    late = world // 3
    report["waits"] = [
        {
            "rank": rank,
            "step": f"ProfilerStep#{4 + step}",
            "wait_ns": (5 if rank == late else 900 + rank % 7) * US * 10,
            "charged_ns": 9_000_000 if rank == late else 0,
            "last": calls if rank == late else 0,
            "matched": calls,
        }
        for rank in range(world)
        for step in range(steps)
    ]
    call = report["collectives"][0]
    report["collectives"] = [
        dict(
            call,
            rank=rank,
            match=i,
            step=f"ProfilerStep#{4 + i // calls}",
            start_ns=i * 10_000 + rank,
            exposed_ns=i,
            wait_ns=(50 if rank == late else 9_000 + (i * 37 + rank) % 900),
        )
        for rank in range(world)
        for i in range(calls * steps)
    ]
    report["matching"] = {
        "matched": calls * steps,
        "unmatched": 0,
        "clock_uncertainty_ns": 1_500,
        "message_clock_offsets_ns": None,
        "message_clock_uncertainty_ns": None,
        "last_by": "clock",
        "group_assumed": False,
        "clock_offsets_ns": {str(rank): rank * 13 for rank in range(world)},
        "unmatched_by_reason": {},
    }
    report["stragglers"] = [
        {
            "rank": late,
            "host": None,
            "role": None,
            "kind": "persistent",
            "last_share": 1.0,
            "last": calls * steps,
            "matched": calls * steps,
            "charged_ns_per_step": 9_000_000,
            "cause": "slow-device",
            "evidence": [],
            "chain": [late],
        },
    ]
    return view
