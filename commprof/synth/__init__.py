"""A cluster in a file: simulated training runs, written as Kineto traces together with the exact truth.

    from commprof.synth import Fault, preset, write_run
    write_run(preset("ddp").with_ranks(4), Path("runs/simulated"), seed=1)

``make_plan`` and ``simulate`` give the timeline without writing files; ``rank_truth`` its split and exposure.

The modules in the order in which data flows through them. A test holds this list to the files.

What is simulated:

    scenario           everything that decides a run
    presets            scenarios by name
    sampling           random ones
    cluster            hosts, GPUs, links
    mesh               process groups
    transformer        kernels of a layer
    schedule           order of passes in a pipeline
    traffic            who sends how much in an all-to-all

How it runs:

    program            instructions of a rank
    build              a scenario to the programs of its stages
    dataparallel       buckets and shards around the passes
    plan               a scenario made ready
    timing             how long communication lasts
    engine             the simulator
    timeline           what happened, in true time

What is written:

    run                the folder
    clock              what the clocks showed
    eras               names and metadata of library generations
    writer             a rank as a Kineto trace
    sweep              exact split and exposure
    waiting            exact waiting and transfer
    expected           what a diagnosis ought to say
    truth              ``truth.json``
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
