"""``truth.json``: what every analysis and diagnosis of a simulated run ought to find.

At the top: ``scenario`` and ``seed`` (enough to run it again), ``strategy`` with its ``parts``, the
``alternatives`` that a trace cannot tell apart and ``bytes_per_step`` by role; ``groups`` with their roles;
``faults`` with the ``findings`` they should lead to and the ``straggler``; ``step_ns`` and ``step_ns_without``
each cause (mean over ranks and closed steps).

Per rank: ``whole`` and ``steps`` with the split, and ``calls`` as columns, one entry per call in order of start.
``match`` numbers the call over ranks. Times are those of the trace, relative to ``origin_ns``, the earliest
device start of all ranks; ``wait_ns``, ``transfer_ns`` and skews are true time, whatever the clocks showed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, TextIO

from commprof.synth.clock import Clock, clocks, observe
from commprof.synth.engine import simulate
from commprof.synth.expected import findings, straggler
from commprof.synth.plan import Plan, make_plan
from commprof.synth.program import DTYPE_BYTES, Comm
from commprof.synth.scenario import Scenario
from commprof.synth.sweep import RankTruth, Window, rank_truth
from commprof.synth.timeline import Call, Timeline
from commprof.synth.timing import factor
from commprof.synth.traffic import sent, traffic
from commprof.synth.waiting import call_truth

FORMAT = "commprof.truth/1"


def split_row(window: Window, origin: int) -> dict[str, Any]:
    """A window as the report shows it: times relative to ``origin``, then the split."""
    row: dict[str, Any] = {"name": window.name, "start_ns": window.start - origin, "end_ns": window.end - origin}
    row.update(duration_ns=window.end - window.start, open=window.open, **window.split)
    row["exposed_blocking_ns"] = row["exposed_comm_ns"] - row["exposed_host_ns"]
    return row


def call_columns(truth: RankTruth, timeline: Timeline, rank: int, origin: int) -> dict[str, Any]:
    """The collectives of one rank in order of start, as columns."""
    plan = timeline.plan
    instructions = plan.program(rank).instructions
    call_of = timeline.ranks[rank].call_of
    rows = sorted((w for w in truth.work if w.kind == "comm"), key=lambda w: (w.start, w.stream, w.index))
    columns: dict[str, list[Any]] = {
        key: []
        for key in (
            "match", "op", "group", "step", "stream", "size_bytes", "bucket", "phase", "start_ns", "duration_ns",
            "exposed_ns", "exposed_by_step", "sole_ns", "touched_ns", "wait_ns", "transfer_ns",
            "skew_ns", "end_skew_ns", "last_rank", "launched_ns", "ready_ns", "exposed_wait_ns",
        )
    }  # fmt: skip
    for w in rows:
        ins = instructions[w.index]
        assert ins.comm is not None
        call = timeline.calls[call_of[w.index]]
        known = call_truth(timeline, call)
        exposure = truth.exposure[w.index]
        last = truth.launched_before(w) if ins.comm.bucket is not None else None
        ready = last.end - origin if last is not None else None
        step = f"ProfilerStep#{plan.scenario.first_step + ins.step}" if ins.step >= 0 else None
        values = (
            call.number, ins.comm.op, call.group.id, step, w.stream, _size(plan, rank, call, ins.comm),
            ins.comm.bucket,
            ins.comm.phase, w.start - origin, w.end - w.start, exposure.exposed, exposure.by_window, exposure.sole,
            exposure.touched,
            known.waits[rank], known.transfer_ns, known.skew_ns, known.end_skew_ns, known.last,
            w.launch - origin, ready, exposure.until(w.start + known.waits[rank]),
        )  # fmt: skip
        for column, value in zip(columns.values(), values, strict=True):
            column.append(value)
    return dict(columns)


def _size(plan: Plan, rank: int, call: Call, comm: Comm) -> int:
    """Bytes of a call as the bandwidth formulas count them: with unequal splits, what this rank sends."""
    if comm.traffic is None:
        return comm.size_bytes
    matrix = traffic(
        plan.seed, call.group.id, comm.traffic, len(call.members), comm.nelems_in, plan.scenario.imbalance_permille
    )
    return sum(sent(matrix, call.members.index(rank), comm.transposed)) * DTYPE_BYTES[comm.dtype]


def bytes_per_step(plan: Plan) -> dict[str, float]:
    """Bytes sent per rank and step by role of the group: size times bus factor, mean over the ranks, last step."""
    total: dict[str, Fraction] = {}
    for stage, program in enumerate(plan.programs):
        rank = plan.mesh.rank(stage, 0, 0, 0)
        for _, ins in program.launches():
            if ins.comm is not None and ins.step == plan.scenario.steps - 1:
                group = plan.group(rank, ins)
                assert group is not None
                sent = Fraction(*factor(ins.comm.op, len(group.ranks))) * ins.comm.size_bytes
                total[group.role] = total.get(group.role, Fraction(0)) + sent / len(plan.programs)
    return {role: float(sent) for role, sent in total.items()}


def _alternatives(scenario: Scenario) -> dict[str, list[str]]:
    """Parts that a trace cannot tell from another: ZeRO-1 and ZeRO-2 differ only when gradients are accumulated."""
    alike = scenario.strategy in ("zero1", "zero2") and scenario.microbatches == 1
    return {scenario.strategy: ["zero1", "zero2"]} if alike else {}


def step_ns(timeline: Timeline) -> int | None:
    """Mean step time over ranks and closed steps, on true time; ``None`` with a single step."""
    lengths = []
    for rank, times in enumerate(timeline.ranks):
        truth = rank_truth(timeline.plan, rank, observe(times, Clock()))
        lengths += [w.end - w.start for w in truth.steps if not w.open]
    return sum(lengths) // len(lengths) if lengths else None


def without_causes(scenario: Scenario, seed: int) -> dict[str, int | None]:
    """Step time of the same run with one cause taken away: each fault, launch costs, noise, contention."""
    variants: dict[str, Scenario] = {f.kind: scenario.without(f.kind) for f in scenario.faults}
    variants["host"] = replace(scenario, launch_ns=1, comm_launch_ns=1, launch_latency_ns=0)
    if scenario.contention_permille:
        variants["contention"] = replace(scenario, contention_permille=0)
    if scenario.noise_permille:
        variants["noise"] = replace(scenario, noise_permille=0)
    return {name: step_ns(simulate(make_plan(variant, seed))) for name, variant in variants.items()}


def header(scenario: Scenario, plan: Plan, seed: int, *, causes: bool, timeline: Timeline) -> dict[str, Any]:
    """Everything of the truth that is not a table of one rank."""
    axes = [{ins.comm.axis for ins in p.instructions if ins.comm is not None} for p in plan.programs]
    groups = [
        {
            "name": str(g.id), "description": g.description, "role": g.role, "ranks": list(g.ranks),
            "crosses_hosts": len({plan.placement.host(r) for r in g.ranks}) > 1,
            "used": any(plan.mesh.group(g.ranks[0], axis) is g for axis in axes[plan.mesh.stage(g.ranks[0])]),
        }
        for g in plan.mesh.groups
    ]  # fmt: skip
    return {
        "format": FORMAT,
        "seed": seed,
        "model": "real" if scenario.real else "ideal",
        "world_size": plan.mesh.world,
        "scenario": scenario.to_json(),
        "strategy": {
            "name": "+".join(scenario.parts()),
            "parts": scenario.parts(),
            "alternatives": _alternatives(scenario),
            "bytes_per_step": bytes_per_step(plan),
        },
        "groups": groups,
        "faults": [
            {**asdict(f), "findings": findings(f, plan), "straggler": straggler(f, plan)} for f in scenario.faults
        ],
        "step_ns": step_ns(timeline) if causes else None,
        "step_ns_without": without_causes(scenario, seed) if causes else None,
    }


class TruthWriter:
    """Writes ``truth.json`` rank by rank, so that no more than one rank's tables are held.

    ``rank_row`` can run in another process: it returns the JSON text of one rank.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.clocks = clocks(timeline.plan)
        starts = [
            self.clocks[rank].device(min(t for t in times.dev_start if t >= 0))
            for rank, times in enumerate(timeline.ranks)
        ]
        self.origin = min(starts)

    def rank_truth(self, rank: int) -> RankTruth:
        """Split and exposure of ``rank`` on its own clock."""
        return rank_truth(self.timeline.plan, rank, observe(self.timeline.ranks[rank], self.clocks[rank]))

    def rank_row(self, rank: int, *, calls: bool = True) -> str:
        """JSON text of the truth of one rank; without ``calls`` these are ``null``."""
        plan, truth, clock = self.timeline.plan, self.rank_truth(rank), self.clocks[rank]
        return json.dumps(
            {
                "rank": rank,
                "host": plan.placement.host(rank),
                "device": plan.placement.device(rank),
                "clock_offset_ns": clock.offset_ns,
                "clock_drift_ppb": clock.drift_ppb,
                "device_clock_error_ns": clock.device_error_ns,
                "whole": split_row(truth.whole, self.origin),
                "steps": [split_row(w, self.origin) for w in truth.steps],
                "steps_without_window": [{"name": n, "reason": r} for n, r in truth.without_window],
                "calls": call_columns(truth, self.timeline, rank, self.origin) if calls else None,
            }
        )

    def write(self, out: TextIO, head: dict[str, Any], rows: Iterator[str]) -> None:
        """Write the header and the given rows of ranks as one JSON document."""
        out.write(json.dumps({**head, "origin_ns": self.origin})[:-1] + ',\n"ranks": [\n')
        for n, row in enumerate(rows):
            out.write((",\n" if n else "") + row)
        out.write("\n]}\n")
