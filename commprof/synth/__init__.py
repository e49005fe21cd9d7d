"""A cluster in a file: simulated training runs, written as Kineto traces together with the exact truth.

    from commprof.synth import Fault, preset, write_run
    write_run(preset("ddp").with_ranks(4), Path("runs/simulated"), seed=1)

``make_plan`` and ``simulate`` give the timeline without writing files; ``rank_truth`` its split and exposure.
"""

from __future__ import annotations

from commprof.synth.cluster import Cluster, Link
from commprof.synth.engine import simulate
from commprof.synth.plan import make_plan
from commprof.synth.presets import PRESETS, preset
from commprof.synth.run import Written, write_run
from commprof.synth.scenario import FAULTS, STRATEGIES, Fault, Scenario, parse_fault, read_scenario
from commprof.synth.truth import TruthWriter, step_ns

__all__ = [
    "FAULTS",
    "PRESETS",
    "STRATEGIES",
    "Cluster",
    "Fault",
    "Link",
    "Scenario",
    "TruthWriter",
    "Written",
    "make_plan",
    "parse_fault",
    "preset",
    "read_scenario",
    "simulate",
    "step_ns",
    "write_run",
]
