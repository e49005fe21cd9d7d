"""Views written by hand for the tests of the HTML report.

Every figure comes from a list of events in whole microseconds and from counting the microseconds of a window one by
one, so the identities of the split hold by construction and nothing here shares code with the analysis.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

Json = dict[str, Any]

US = 1_000
HOSTILE = "<script>alert(1)</script>"
"""A kernel name that must show as text (C207)."""


@dataclass(frozen=True)
class Event:
    """One kernel: ``start`` and ``end`` in microseconds."""

    kind: str
    stream: int
    start: int
    end: int
    label: str
    op: str | None = None
    size_bytes: int | None = None
    group: str | None = None

    def ticks(self, window: tuple[int, int]) -> set[int]:
        return set(range(max(self.start, window[0]), min(self.end, window[1])))


@dataclass(frozen=True)
class Window:
    name: str
    start: int
    end: int
    open: bool = False


def split(events: list[Event], window: Window) -> Json:
    """The split of one window, counted microsecond by microsecond."""
    span = (window.start, window.end)
    held: dict[str, set[int]] = {"compute": set(), "comm": set(), "copy": set()}
    for event in events:
        held[event.kind] |= event.ticks(span)
    compute, comm, copies = held["compute"], held["comm"], held["copy"]
    exposed, exposed_copies = comm - compute, copies - compute - comm
    idle = window.end - window.start - len(compute) - len(exposed) - len(exposed_copies)
    counts = {
        "duration_ns": window.end - window.start,
        "compute_ns": len(compute),
        "fused_ns": 0,
        "comm_ns": len(comm),
        "overlap_ns": len(comm & compute),
        "overlap_comm_copies_ns": len(comm & copies),
        "overlap_thin_ns": 0,
        "exposed_comm_ns": len(exposed),
        "copy_ns": len(copies),
        "exposed_copy_ns": len(exposed_copies),
        "idle_ns": idle,
    }
    row: Json = {"start_ns": window.start * US, "end_ns": window.end * US}
    row.update({key: value * US for key, value in counts.items()})
    row.update({"fused_wait_ns": None, "exposed_host_ns": None, "exposed_blocking_ns": None, "idle_host_ns": None})
    row["overlap_ratio"] = row["overlap_ns"] / row["comm_ns"] if row["comm_ns"] else None
    row["comm_share"] = row["exposed_comm_ns"] / row["duration_ns"]
    return row


def mean_split(steps: list[Json]) -> Json:
    closed = [step for step in steps if not step["open"]] or steps
    mean: Json = {"steps": len(closed)}
    for key, value in closed[0].items():
        if key.endswith("_ns") and key not in ("start_ns", "end_ns"):
            mean[key] = None if value is None else round(sum(step[key] for step in closed) / len(closed))
    mean["overlap_ratio"] = mean["overlap_ns"] / mean["comm_ns"] if mean["comm_ns"] else None
    mean["comm_share"] = mean["exposed_comm_ns"] / mean["duration_ns"]
    return mean


def rank_row(rank: int, events: list[Event], windows: list[Window], device: int | None = None) -> Json:
    whole = Window("whole", min(e.start for e in events), max(e.end for e in events))
    steps = [
        {"name": window.name, "incomplete": False, "open": window.open, **split(events, window)} for window in windows
    ]
    return {
        "rank": rank,
        "device": rank if device is None else device,
        "windows": "annotation",
        "whole": split(events, whole),
        "steps": steps,
        "steps_without_window": [],
        "mean": mean_split(steps),
    }


def exposed_us(event: Event, events: list[Event], window: tuple[int, int]) -> int:
    """Exposed part of one call; right as long as no two calls of a rank run at the same time."""
    ticks = event.ticks(window)
    for other in events:
        if other.kind == "compute":
            ticks -= other.ticks(window)
    return len(ticks)


def call_rows(rank: int, device: int, events: list[Event], windows: list[Window], group_size: int) -> list[Json]:
    rows = []
    for event in (e for e in events if e.kind == "comm"):
        window = next((w for w in windows if w.start <= event.start < w.end), None)
        exposed = exposed_us(event, events, (event.start, event.end)) * US
        rows.append(
            {
                "rank": rank,
                "device": device,
                "step": window.name if window else None,
                "op": event.op,
                "group": event.group,
                "group_id": 0,
                "group_size": group_size,
                "seq": None,
                "dtype": "float32",
                "size_bytes": event.size_bytes,
                "start_ns": event.start * US,
                "duration_ns": (event.end - event.start) * US,
                "exposed_ns": exposed,
                "hidden_ns": (event.end - event.start) * US - exposed,
                "wait_ns": None,
                "transfer_ns": None,
                "algbw_gbps": None,
                "busbw_gbps": None,
                "stream": event.stream,
                "kind_source": "metadata",
                "kernels": 1,
                "members_missing": 0,
                "phase": None,
                "flag": None,
                "cause": None,
            }
        )
    return rows


def exposure_rows(rank: int, events: list[Event], windows: list[Window]) -> list[Json]:
    rows = []
    for window in windows:
        span = (window.start, window.end)
        for by in ("op", "group", "stream"):
            sums: dict[str | None, list[int]] = {}
            for event in events:
                if event.kind != "comm" or not event.ticks(span):
                    continue
                name = {"op": event.op, "group": event.group, "stream": str(event.stream)}[by]
                row = sums.setdefault(name, [0, 0, 0])
                row[0] += 1
                row[1] += len(event.ticks(span))
                row[2] += exposed_us(event, events, span)
            rows += [
                {
                    "rank": rank,
                    "step": window.name,
                    "by": by,
                    "name": name,
                    "calls": calls,
                    "comm_ns": comm * US,
                    "hidden_ns": (comm - exposed) * US,
                    "exposed_ns": exposed * US,
                }
                for name, (calls, comm, exposed) in sums.items()
            ]
    return rows


def group_rows(events_by_rank: dict[int, list[Event]], ranks: list[int]) -> list[Json]:
    rows = []
    every = [(rank, e, es) for rank, es in events_by_rank.items() for e in es if e.kind == "comm"]
    for op in sorted({e.op or "unknown" for _, e, _ in every}):
        mine = [(e, es) for _, e, es in every if (e.op or "unknown") == op]
        comm = sum(e.end - e.start for e, _ in mine)
        exposed = sum(exposed_us(e, es, (e.start, e.end)) for e, es in mine)
        rows.append(
            {
                "group": mine[0][0].group,
                "description": "default_pg",
                "ranks": ranks,
                "op": op,
                "role": "dp",
                "group_id": 0,
                "group_size": len(ranks),
                "members": "known",
                "role_evidence": [],
                "calls": len(mine),
                "bytes": sum(e.size_bytes or 0 for e, _ in mine),
                "calls_without_size": sum(e.size_bytes is None for e, _ in mine),
                "comm_ns": comm * US,
                "overlap_ns": (comm - exposed) * US,
                "exposed_ns": exposed * US,
                "wait_ns": None,
                "transfer_ns": None,
                "busbw_gbps_median": None,
            }
        )
    return rows


def timeline_entry(rank: int, device: int, events: list[Event], window: Window) -> Json:
    span = (window.start, window.end)
    inside = [e for e in events if e.start < window.end and e.end > window.start]
    lanes: dict[tuple[str, int, int], list[Json]] = {}
    busy_until: dict[tuple[str, int], list[int]] = {}
    for event in sorted(inside, key=lambda e: (e.start, e.end)):
        rows = busy_until.setdefault((event.kind, event.stream), [])
        row = next((i for i, end in enumerate(rows) if end <= event.start), len(rows))
        if row == len(rows):
            rows.append(0)
        rows[row] = event.end
        lanes.setdefault((event.kind, event.stream, row), []).append(
            {
                "start_ns": event.start * US,
                "end_ns": event.end * US,
                "label": event.label,
                "count": 1,
                "duration_ns": (event.end - event.start) * US,
                "op": event.op,
                "group": event.group,
                "size_bytes": event.size_bytes,
                "exposed_ns": exposed_us(event, events, span) * US if event.kind == "comm" else None,
            }
        )
    held = {k: set().union(*(e.ticks(span) for e in inside if e.kind == k)) for k in ("compute", "comm", "copy")}
    exposed = held["comm"] - held["compute"]
    idle = set(range(*span)) - held["compute"] - held["comm"] - held["copy"]
    return {
        "rank": rank,
        "device": device,
        "step": window.name,
        "start_ns": window.start * US,
        "end_ns": window.end * US,
        "lanes": [
            {"kind": kind, "stream": str(stream), "row": row, "segments": segments}
            for (kind, stream, row), segments in sorted(lanes.items())
        ],
        "exposed": stretches(exposed),
        "exposed_copy": stretches(held["copy"] - held["compute"] - held["comm"]),
        "idle": stretches(idle),
    }


def stretches(ticks: set[int]) -> list[list[int]]:
    """Sorted half-open intervals, in nanoseconds, that hold exactly these microseconds."""
    out: list[list[int]] = []
    for tick in sorted(ticks):
        if out and out[-1][1] == tick * US:
            out[-1][1] += US
        else:
            out.append([tick * US, (tick + 1) * US])
    return out


def file_row(rank: int, events: int, **changes: Any) -> Json:
    row: Json = {
        "path": f"rank{rank}.json.gz",
        "rank": rank,
        "rank_source": "distributedInfo",
        "bytes": 749_757 + rank,
        "events": events,
        "device_events": events // 10,
        "truncated": False,
        "host": None,
        "events_ignored": 0,
        "repaired": dict.fromkeys(
            ("invalid_escape", "control_character", "raw_quote", "non_finite", "encoding", "duplicate_key", "clipped"),
            0,
        ),
        "skipped": dict.fromkeys(
            ("bad_event", "no_duration", "negative_duration", "non_finite", "zero_timestamp", "bad_metadata"), 0
        ),
    }
    row.update(changes)
    return row


def report_of(
    events: dict[int, list[Event]], windows: dict[int, list[Window]], world: int, path: str = "runs/ddp"
) -> Json:
    ranks = sorted(events)
    rows = [rank_row(r, events[r], windows[r]) for r in ranks]
    return {
        "schema": "commprof.report/1",
        "commprof_version": "0.1.0",
        "input": {
            "path": path,
            "files": [file_row(r, 40_573) for r in ranks],
            "ignored": [],
            "capture": {
                "profiled_step_ns": None,
                "unprofiled_step_ns": None,
                "export_ns": None,
                "environment": {},
                "cores": {},
                "core_wait": {},
            },
            "hardware": {"name": None, "source": None},
            "world_size": world,
            "ranks": ranks,
            "missing_ranks": [r for r in range(world) if r not in ranks],
            "backend": "nccl",
            "devices": ["NVIDIA A100-SXM4-80GB"],
        },
        "ranks": rows,
        "collectives": [c for r in ranks for c in call_rows(r, r, events[r], windows[r], world)],
        "groups": group_rows(events, list(range(world))),
        "buckets": None,
        "matching": None,
        "waits": [],
        "stragglers": [],
        "wait_chain": None,
        "strategy": None,
        "exposure": [x for r in ranks for x in exposure_rows(r, events[r], windows[r])],
        "idle": [],
        "imbalance": [],
        "pipeline": None,
        "units": [],
        "contention": [],
        "bounds": {"step_ns": 0, "all_hidden_ns": None, "no_waiting_ns": None, "without_top_finding_ns": None},
        "whatif": [],
        "checks": [],
        "findings": [],
        "verdict": {
            "bottleneck": "communication",
            "summary": "Communication is the bottleneck.",
            "exposed_comm_share": 0.0,
            "recoverable_share": None,
        },
        "notes": [{"code": "not-built", "message": "Waiting and stragglers are not analysed by this version."}],
        "coverage": {
            "unrecognised_kernel_share": 0.0,
            "comm_without_metadata": 0,
            "device_events": sum(len(e) for e in events.values()),
            "linked_device_events": 0,
            "unclassified": [],
            "fused_calls": 0,
            "possible_comm": {"calls": 0, "duration_ns": 0},
            "unknown_dtype": 0,
            "unknown_collective": 0,
            "group_unknown": 0,
            "clamped_launches": 0,
            "graph_kernels": 0,
        },
    }


def ddp_step(offset: int, slow: float) -> list[Event]:
    """One data-parallel step: forward, backward with three buckets behind it, a long tail bucket, optimizer."""
    out: list[Event] = []

    def compute(start: float, length: float, name: str) -> None:
        out.append(Event("compute", 7, offset + round(start * slow), offset + round((start + length) * slow), name))

    def reduce(start: int, end: int, size: int) -> None:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        out.append(Event("comm", 20, offset + start, offset + end, name, "all_reduce", size, "0"))

    out.append(Event("copy", 14, offset + 40, offset + 260, "Memcpy HtoD (Pinned -> Device)"))
    for layer in range(8):
        compute(300 + 640 * layer, 390, "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn")
        compute(300 + 640 * layer + 390, 240, "flash_fwd_kernel")
    for layer in range(8):
        compute(5450 + 1180 * layer, 640, "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_nt")
        compute(5450 + 1180 * layer + 640, 530, "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel")
    reduce(7900, 9700, 26_214_400)
    reduce(10_300, 12_500, 26_214_400)
    reduce(12_900, 15_200, 26_214_400)
    reduce(15_200, 19_650, 52_428_800)
    out.append(Event("compute", 7, offset + 19_700, offset + 21_150, "multi_tensor_apply_kernel"))
    out.append(Event("comm", 20, offset + 21_200, offset + 21_320, "ncclDevKernel_Broadcast_RING_LL",
                     "broadcast", 4_096, "0"))  # fmt: skip
    return out


def sample_view() -> Json:
    """Two ranks, three steps (the last one open), four all-reduces and one broadcast a step; the caller's to change."""
    return copy.deepcopy(_counted())


@cache
def _counted() -> Json:
    """That view; counting its microseconds one by one takes a quarter of a second."""
    length = 22_000
    events, windows = {}, {}
    for rank, slow in ((0, 1.0), (1, 1.02)):
        events[rank] = [e for step in range(3) for e in ddp_step(1_000 + step * length, slow)]
        windows[rank] = [
            Window(f"ProfilerStep#{4 + step}", 1_000 + step * length, 1_000 + (step + 1) * length, open=step == 2)
            for step in range(3)
        ]
    report = report_of(events, windows, 2)
    report["bounds"]["step_ns"] = 22_000_000
    return {
        "report": report,
        "timeline": [timeline_entry(r, r, events[r], windows[r][1]) for r in events],
        "headline": {
            "question": "Is communication my bottleneck?",
            "answer": "Yes: the GPUs wait for communication during 21.7 % of step time.",
            "gain": "Hiding all of it would shorten a step by at most 4.78 ms (21.7 % of step time).",
            "where": "In all_reduce of group default_pg: 4.66 ms a step, nearly all of it after the backward pass.",
        },
        "created": "2026-03-01T12:00:00+00:00",
    }


def window_view() -> Json:
    """A trace without step marks: one window, so that no figure may be called per step (C209)."""
    events = [
        Event("compute", 7, 0, 600, "ampere_sgemm_128x64_tn"),
        Event("comm", 20, 500, 900, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_reduce", 4_000_000, "0"),
    ]
    window = Window("window", 0, 1_000)
    report = report_of({0: events}, {0: [window]}, 2, "t0.json")
    report["notes"].append({"code": "no-step-marks", "message": "The trace has no step marks: one window is shown."})
    return {
        "report": report,
        "timeline": [timeline_entry(0, 0, events, window)],
        "headline": {
            "question": "Is communication my bottleneck?",
            "answer": "Yes: communication is exposed during 30.0 % of the window.",
            "gain": None,
            "where": None,
        },
        "created": "2026-03-01T12:00:00+00:00",
    }


def overlapping_view() -> Json:
    """Two kernels of one stream that overlap, 0-100 and 95-200 (C225)."""
    events = [Event("compute", 7, 0, 100, "first_kernel"), Event("compute", 7, 95, 200, "second_kernel")]
    view = window_view()
    view["timeline"] = [timeline_entry(0, 0, events, Window("window", 0, 200))]
    return view


def hostile_view() -> Json:
    """Every string that comes from a trace tries to leave its place (C207)."""
    view = sample_view()
    report = view["report"]
    evil = HOSTILE + "\x01\"'</script><img src=x onerror=alert(1)>\u2028{{ 7*7 }}&amp;"
    for entry in view["timeline"]:
        for lane in entry["lanes"]:
            lane["stream"] = evil
            for segment in lane["segments"]:
                segment.update(label=evil, op=evil, group=evil)
        entry["step"] = evil
    for call in report["collectives"]:
        call.update(op=evil, group=evil, dtype=evil, step=evil)
    for row in report["exposure"]:
        row.update(name=evil, step=evil + row["step"])
    for row in report["groups"]:
        row.update(group=evil, description=evil, op=evil, role=evil)
    for rank in report["ranks"]:
        for step in rank["steps"]:
            step["name"] = evil + step["name"]
    report["input"]["path"] = evil
    report["input"]["devices"] = [evil]
    report["input"]["backend"] = evil
    report["input"]["files"][0]["path"] = evil
    report["input"]["ignored"] = [{"path": evil, "reason": evil}]
    report["notes"].append({"code": evil, "message": evil})
    report["coverage"]["unclassified"] = [{"name": evil, "share": 0.06}]
    view["headline"].update(answer=evil, gain=evil, where=evil)
    return view


def findings_view() -> Json:
    """The sample with two findings, as a later analysis reports them (C210)."""
    view = sample_view()
    shared: Json = {
        "confidence": "measured",
        "cause": "tail",
        "ranks": [0, 1],
        "steps": ["ProfilerStep#4", "ProfilerStep#5"],
        "group_id": 0,
        "calls": 2,
        "threshold": {"value": 0.02, "unit": "share of step", "source": "default"},
    }
    view["report"]["findings"] = [
        {
            "id": "ddp-tail-bucket",
            "severity": "high",
            "title": "The last gradient bucket is reduced after the backward pass has ended",
            "charged_ns": 3_000_000,
            "recoverable_ns": 3_000_000,
            "share_of_step": 0.13636,
            "evidence": [
                {"what": "size of the last bucket", "value": 52_428_800, "unit": "bytes"},
                {"what": "exposed after the last backward kernel", "value": 4_450_000, "unit": "ns"},
            ],
            "advice": [
                "Make the last bucket smaller: lower bucket_cap_mb or put late gradients in a bucket of their own."
            ],
            **shared,
        },
        {
            "id": "fsdp-late-launch",
            "severity": "low",
            "title": "Collectives are launched late",
            "charged_ns": 1_000_000,
            "recoverable_ns": None,
            "share_of_step": 0.04545,
            "evidence": [{"what": "median lag", "value": 0.21, "unit": "share of step"}],
            "advice": [],
            **shared,
        },
    ]
    return view


def cpu_view() -> Json:
    """A gloo run: no device, communication holds queueing and waiting."""
    view = sample_view()
    view["report"]["input"].update(backend="gloo", devices=[])
    return view


def many_ranks_view(world: int) -> Json:
    """``world`` ranks of one short step each, with different exposed time, and a timeline of the first four."""
    events, windows = {}, {}
    for rank in range(world):
        late = 400 + (rank * 37) % 300
        events[rank] = [
            Event("compute", 7, 0, late, "gemm"),
            Event("comm", 20, late - 50, 900, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "all_reduce", 1 << 20, "0"),
        ]
        windows[rank] = [Window("ProfilerStep#4", 0, 1_000)]
    return {
        "report": report_of(events, windows, world),
        "timeline": [timeline_entry(r, r, events[r], windows[r][0]) for r in range(min(world, 4))],
        "headline": {"question": "Is communication my bottleneck?", "answer": "Yes.", "gain": None, "where": None},
        "created": "2026-03-01T12:00:00+00:00",
    }
