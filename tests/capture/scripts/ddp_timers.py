"""The demo's job, with DDP's own timers read after every step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from commprof.capture.jobs.ddp import build
from commprof.capture.jobs.job import Job, train

TIMERS = (
    "backward_comm_time",
    "backward_comm_time_start",
    "backward_comm_time_end",
    "backward_compute_comm_overlap_time",
    "backward_compute_time_start",
    "backward_compute_time_end",
)
STEPS = 11


def main(folder: Path, rank: int, ranks: int) -> dict[str, Any]:
    rows: list[dict[str, int]] = []

    def read(index: int, model: DistributedDataParallel) -> None:
        if index == 0:
            model._set_ddp_runtime_logging_sample_rate(1)
        log = model._get_ddp_logging_data()
        if TIMERS[0] in log:
            rows.append({"read_after": index, **{timer: log[timer] for timer in TIMERS}})

    job = Job(folder / "run", Path(os.environ["RENDEZVOUS"]), rank, ranks, steps=STEPS)
    loss = train(job, build, after_step=read)
    return {"rows": rows, "loss": loss}
