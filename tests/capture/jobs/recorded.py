"""A job under ``Capture`` with all its calls recorded beside the trace: ``python -m tests.capture.jobs.recorded``.

Takes the module of the job and then the job's own arguments; leaves ``calls-RANK.json`` beside the capture folder.
"""

from __future__ import annotations

import json
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

from commprof.capture.jobs import job as jobs
from tests.capture.jobs.recorder import Recorder

_train = jobs.train


def train_recorded(job: jobs.Job, build: jobs.Build, after_step: jobs.AfterStep | None = None) -> float | None:
    """``commprof.capture.jobs.job.train``, its calls written to a file."""
    recorder = Recorder()
    facts: dict[str, Any] = {}

    def watched(job: jobs.Job, device: Any) -> jobs.Training:
        training = build(job, device)
        facts["parameters"] = {
            name: (list(p.shape), p.requires_grad) for name, p in training.model.named_parameters(remove_duplicate=True)
        }
        return jobs.Training(training.model, partial(_step, training.step))

    def _step(step: Any) -> Any:
        with recorder:
            loss = step()
        recorder.step += 1
        return loss

    result = _train(job, watched, after_step)
    target = Path(f"{job.out}.calls-{job.rank}.json")
    target.write_text(json.dumps(recorder.json() | facts | {"loss": result}))
    return result


if __name__ == "__main__":
    jobs.train = train_recorded
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
