"""Published timelines of pipeline-parallel jobs as traces of their workers, and as operations to replay.

``straggler-analysis`` of the public traces (ByteDance-Seed/StragglerAnalysis, Apache-2.0) holds one event per operation
of a worker (data-parallel rank, pipeline stage): forward and backward passes, messages between stages, collectives.
Communication there lasts from the moment its last member has entered. A kernel also lasts while it waits for the
others: from when its worker had finished what it did before. The rest is one to one.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from commprof.analysis.replay import Schedule
from tests.builders.kineto import Trace

STREAMS = {"forward-send": 20, "forward-recv": 21, "backward-send": 22, "backward-recv": 23}
COLLECTIVES = {
    "params-all-gather": "_allgather_base",
    "grads-reduce-scatter": "_reduce_scatter_base",
    "embedding-grads-all-reduce": "allreduce",
}
CLIP = "optimizer-clip-main-grad"
"""An all-reduce of the norm over all workers, then each scales its own gradients."""
WHOLE_JOB = 1 << 30
COMPUTE = ("forward-compute", "backward-compute", "optimizer")
LEFT_OUT = ("gc", "layernorm-grads-all-reduce")
"""Without length, and among tensor-parallel ranks of which the timeline holds one."""


@dataclass(frozen=True, slots=True)
class Job:
    """Sizes of a job, and its events by step in ns, each with its worker."""

    dp: int
    pp: int
    steps: dict[int, list[dict[str, Any]]]

    def rank(self, replica: int, stage: int) -> int:
        return stage * self.dp + replica

    def stage(self, rank: int) -> list[int]:
        """Ranks of one stage: they reduce gradients together."""
        return [self.rank(replica, rank // self.dp) for replica in range(self.dp)]

    def replica(self, rank: int) -> list[int]:
        """Ranks of one copy of the model, by stage."""
        return [self.rank(rank % self.dp, stage) for stage in range(self.pp)]


def read_job(folder: Path, name: str, steps: int) -> Job:
    """The first ``steps`` steps of a job."""
    sizes = json.loads((folder / f"result-{name}.json").read_text(encoding="utf-8"))["job_meta"]
    job = Job(sizes["dp_size"], sizes["pp_size"], defaultdict(list))
    with gzip.open(folder / f"timeline-{name}.json.gz") as stream:
        events = json.load(stream)
    stages = {
        (event["pid"], event["tid"]): int(event["args"]["name"].split(",")[0].split()[-1])
        for event in events
        if event["name"] == "thread_name"
    }
    kept = set(sorted({event["args"]["step"] for event in events if event["ph"] == "X"})[:steps])
    for event in events:
        if event["ph"] == "X" and event["args"]["step"] in kept and event["cat"] not in LEFT_OUT:
            start = round(1000 * event["ts"])
            job.steps[event["args"]["step"]].append(
                {
                    "what": event["cat"],
                    "rank": job.rank(event["pid"], stages[event["pid"], event["tid"]]),
                    "start": start,
                    "end": start + round(1000 * event["dur"]),
                    "number": event["args"]["seq_id"],
                }
            )
    return job


def write_job(job: Job, folder: Path) -> Path:
    """One trace per worker; returns ``folder``."""
    traces = [Trace(rank=rank, world_size=job.dp * job.pp) for rank in range(job.dp * job.pp)]
    for number, step in sorted(job.steps.items()):
        begin, end = min(event["start"] for event in step), max(event["end"] for event in step)
        norm = min(event["end"] for event in step if event["what"] == CLIP)
        for rank, trace in enumerate(traces):
            trace.step(number, micros(begin), micros(end))
            mine = sorted((event for event in step if event["rank"] == rank), key=lambda event: event["start"])
            for event in mine:
                _add(job, trace, event, max(begin, _ready(event, mine)), norm)
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


def _ready(event: dict[str, Any], mine: list[dict[str, Any]]) -> int:
    """When the worker had finished what it did before; the clocks of streams differ by a little."""
    before = [other for other in mine if other["start"] + other["end"] <= 2 * event["start"] and other is not event]
    return max((min(other["end"], event["start"]) for other in before), default=0)


def micros(ns: int) -> str:
    """Nanoseconds as exact microseconds."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _add(job: Job, trace: Trace, event: dict[str, Any], ready: int, norm: int) -> None:
    """One operation as the kernels that it would be, entered at ``ready``."""
    what, rank, end = event["what"], event["rank"], micros(event["end"])
    if what in STREAMS:
        forward = 1 if what.startswith("forward") else -1
        sends = what.endswith("send")
        peer = rank + job.dp * (forward if sends else -forward)
        trace.collective(
            "send" if sends else "recv", micros(ready), end, stream=STREAMS[what],
            metadata={"group": "pp", "description": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": job.replica(rank)},
            args={"Dst Rank" if sends else "Src Rank": peer},
        )  # fmt: skip
    elif what in COLLECTIVES:
        ends = job.replica(rank)[:: job.pp - 1]
        tied = what.startswith("embedding")
        group = {"group": "embd", "description": "EMBEDDING_GROUP", "ranks": ends} if tied else {
            "group": "dp", "description": "DATA_PARALLEL_GROUP", "ranks": job.stage(rank)
        }  # fmt: skip
        trace.collective(COLLECTIVES[what], micros(ready), end, stream=24, metadata=group)
    elif what == CLIP:
        trace.all_reduce(micros(ready), micros(norm), stream=25, metadata={"elements": 1})
        if event["end"] > norm:
            trace.kernel("scale_gradients", micros(norm), end)
    else:
        trace.kernel(what, micros(event["start"]), end)


@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """A job to replay: its schedule, and of each operation its seconds, kind, worker and step."""

    schedule: Schedule
    seconds: NDArray[np.float64]
    kind: NDArray[np.int64]
    communicates: NDArray[np.bool_]
    rank: NDArray[np.int64]
    step: NDArray[np.int64]

    def step_time(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean length of the steps if operations last ``seconds``, shape ``(..., operations)``."""
        ends = self.schedule.ends(seconds)
        return np.mean([ends[..., self.step == step].max(axis=-1) for step in np.unique(self.step)], axis=0)


def operations_of(job: Job) -> Operations:
    """Streams of a worker: computation, collectives, and messages by direction (forward, backward) and end.

    On a stream one operation follows the other. A pass waits for the message that brings its input, a message for the
    pass that makes what it carries; the first pass for the parameters, the first sum of gradients for the last pass.
    """
    rows = [
        (number, event)
        for number, step in sorted(job.steps.items())
        for event in sorted(step, key=lambda event: (event["start"], event["end"]))
    ]
    place = {(number, event["rank"], event["what"], event["number"]): at for at, (number, event) in enumerate(rows)}
    before: list[tuple[int, int]] = []
    streams: dict[tuple[int, int, str], int] = {}
    last_pass: dict[tuple[int, int], int] = {}
    meets: dict[tuple[Any, ...], int] = {}
    met: list[int] = []
    for at, (number, event) in enumerate(rows):
        what, rank = event["what"], event["rank"]
        met.append(meets.setdefault(_meeting(job, number, event), at))
        stream = "passes" if what in COMPUTE[:2] else what if what in STREAMS else "collectives"
        if (number, rank, stream) in streams:
            before.append((streams[number, rank, stream], at))
        elif stream == "passes":
            before.append((place[number, rank, "params-all-gather", 0], at))
        streams[number, rank, stream] = at
        if stream == "passes":
            way = what.split("-")[0]
            last_pass[number, rank] = at
            if (brings := place.get((number, rank, f"{way}-recv", event["number"]))) is not None:
                before.append((brings, at))
            if (carries := place.get((number, rank, f"{way}-send", event["number"]))) is not None:
                before.append((at, carries))
        elif stream == "collectives" and (number, rank) in last_pass:
            before.append((last_pass[number, rank], at))
    kinds = sorted({event["what"] for _, event in rows})
    return Operations(
        Schedule(np.array(met), np.array(before)),
        np.array([(event["end"] - event["start"]) / 1e9 for _, event in rows]),
        np.array([kinds.index(event["what"]) for _, event in rows]),
        np.array([event["what"] not in COMPUTE for _, event in rows]),
        np.array([event["rank"] for _, event in rows]),
        np.array([number for number, _ in rows]),
    )


def _meeting(job: Job, step: int, event: dict[str, Any]) -> tuple[Any, ...]:
    """What two operations have in common that start together."""
    what, rank = event["what"], event["rank"]
    if what in STREAMS:
        way, end = what.split("-")
        sender = rank if end == "send" else rank + (-job.dp if way == "forward" else job.dp)
        return step, way, sender, event["number"]
    if what == CLIP:
        return step, what
    if what in COLLECTIVES:
        return step, what, tuple(job.replica(rank) if what.startswith("embedding") else job.stage(rank))
    return step, what, rank, event["number"]
