"""The ground that rules stand on, from one trace and an environment."""

from __future__ import annotations

import tempfile
from pathlib import Path

import commprof
from commprof.diagnosis.ground import Ground, lay_ground
from tests.builders.kineto import Trace


def ground_of(trace: Trace, environment: dict[str, str]) -> Ground:
    """The ground of one rank; a trace without work gets a step with some."""
    if not trace.events:
        trace.step(1, 0, 100)
        trace.gemm(0, 90)
    with tempfile.TemporaryDirectory() as folder:
        analysis = commprof.analyze(trace.write(Path(folder) / "rank0.json"))
    analysis.capture["environment"] = environment
    ground = lay_ground(analysis)
    assert ground is not None
    return ground
