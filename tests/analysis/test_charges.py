"""What a late rank is charged with in pipelines: by hand, and against the simulator's own step without the fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commprof.analysis.carried import along_pipelines
from commprof.analysis.run import analyze
from commprof.synth import write_run
from commprof.synth.presets import preset
from commprof.synth.scenario import Fault
from tests.benchmarks.synth_stragglers import _step_ns
from tests.builders.command import Run
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]
STEPS = 6


def pipeline(folder: Path, late_us: int) -> Path:
    """Two stages (ranks 0 and 1, ranks 2 and 3) of two replicas (0 and 2, 1 and 3); one micro-batch forward.

    A stage computes 1 ms for the message and 1 ms after it, then sums gradients; rank 1 computes ``late_us`` longer
    after its message. Stage 1 is later by a millisecond, and its own sums wait for nobody.
    """
    traces = [Trace(rank=rank, world_size=4) for rank in range(4)]
    begin, at = 0, [100, 100, 100, 100]
    for step in range(STEPS):
        for replica in (0, 1):
            source, sink = replica, replica + 2
            traces[source].kernel("layer", at[source], at[source] + 1000, launch=begin + 1)
            ready, entered = at[source] + 1000, at[sink]
            end = max(ready, entered) + 20
            for rank, call, start, peer in ((source, "send", ready, sink), (sink, "recv", entered, source)):
                traces[rank].collective(
                    call, start, end, stream=21, launch=begin + 2,
                    metadata={"group": f"pp{replica}", "description": "PIPELINE_MODEL_PARALLEL_GROUP",
                              "ranks": [source, sink]},
                    args={"Dst Rank" if call == "send" else "Src Rank": peer},
                )  # fmt: skip
            traces[sink].kernel("layer", end, end + 1000, launch=begin + 3)
            at[source], at[sink] = end, end + 1000
            for rank in (source, sink):
                length = 1000 + (late_us if rank == 1 else 0)
                traces[rank].kernel("gradients", at[rank], at[rank] + length, launch=begin + 4)
                at[rank] += length
        for stage in (0, 2):
            end = max(at[stage : stage + 2]) + 100
            for rank in (stage, stage + 1):
                traces[rank].all_reduce(
                    at[rank], end, launch=begin + 5,
                    metadata={"group": f"dp{stage}", "description": "DATA_PARALLEL_GROUP",
                              "ranks": [stage, stage + 1], "seq": step},
                )  # fmt: skip
                at[rank] = end
        after = min(at) - 40
        for trace in traces:
            trace.step(step + 1, begin, after)
        begin = after
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


def test_a_pipeline_carries_on_what_its_first_stage_waited(run_analyze: Analyze, tmp_path: Path) -> None:
    """Rank 0 waits 2 ms for rank 1, and in the next step rank 2 waits as much longer for its message from rank 0.

    Both over the three others of rank 1. Rank 3 waits for rank 1 itself, which the same message of the other replica
    does as well: that is bubble. The last step has none after it.
    """
    run = run_analyze(pipeline(tmp_path / "run", 2000))

    charged = {row["step"]: row["charged_ns"] for row in run.report["waits"] if row["rank"] == 1}
    assert [round(charged[f"ProfilerStep#{step}"] / 1e6, 2) for step in range(2, STEPS + 1)] == [1.33] * 4 + [0.67]
    assert {row["charged_ns"] for row in run.report["waits"] if row["rank"] in (0, 2, 3)} == {0}


def test_a_pipeline_in_which_nobody_is_late_carries_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(pipeline(tmp_path / "run", 0))

    assert {row["charged_ns"] for row in run.report["waits"]} == {0}
    assert run.report["stragglers"] == []


def sending(folder: Path, late_us: int) -> Path:
    """Stage 0 (ranks 0 and 1) sends to stage 1 (ranks 2 and 3), which computes as long before it receives; rank 3
    computes ``late_us`` longer, and rank 1 stands in its send meanwhile. No collective gives them a common clock."""
    traces = [Trace(rank=rank, world_size=4) for rank in range(4)]
    for replica in (0, 1):
        at = 100
        for step in range(STEPS):
            source, sink = replica, replica + 2
            ready = {source: at + 1000, sink: at + 1000 + (late_us if replica else 0)}
            end = max(ready.values()) + 20
            for rank, call, peer in ((source, "send", sink), (sink, "recv", source)):
                traces[rank].kernel("layer", at, ready[rank], launch=at - 50)
                traces[rank].collective(
                    call, ready[rank], end, stream=21, launch=at - 40,
                    metadata={"group": f"pp{replica}", "description": "PIPELINE_MODEL_PARALLEL_GROUP",
                              "ranks": [source, sink]},
                    args={"Dst Rank" if call == "send" else "Src Rank": peer},
                )  # fmt: skip
                traces[rank].step(step + 1, at - 60, end - 60)
            at = end
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


def test_a_source_that_waits_for_its_sink_charges_it_beyond_the_other_replica(
    run_analyze: Analyze, tmp_path: Path
) -> None:
    """Rank 1 stands 3 ms longer in each send than rank 3 in its receive, and rank 0 in its own: 1 ms per other rank.

    The wait of a source without a common clock stays unknown.
    """
    run = run_analyze(sending(tmp_path / "run", 3000))

    charged = {(row["rank"], row["step"]): row["charged_ns"] for row in run.report["waits"]}
    assert [charged[3, f"ProfilerStep#{step}"] for step in range(2, STEPS + 1)] == [1_000_000] * (STEPS - 1)
    assert {ns for (rank, _), ns in charged.items() if rank != 3} == {0}
    (late,) = run.report["stragglers"]
    assert (late["rank"], late["cause"]) == (3, "slow-device")
    sends = [row for row in run.report["collectives"] if row["op"] == "send"]
    assert len(sends) == 2 * STEPS
    assert {row["wait_ns"] for row in sends} == {None}


def test_sources_that_wait_in_all_replicas_charge_nobody(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(sending(tmp_path / "run", 0))

    assert {row["charged_ns"] for row in run.report["waits"]} == {0}
    assert run.report["stragglers"] == []


def test_what_a_pipeline_carries_on_goes_from_stage_to_stage() -> None:
    """Rank 2 waits for the message of rank 1 from before rank 1 waits for that of rank 0: its source comes first."""
    later, first = (1, 2, 0, 5.0), (0, 1, 0, 3.0)
    ring = [(4, 5, 1, 1.0), (5, 4, 1, 1.0)]

    ordered = along_pipelines([later, first, *ring])

    assert ordered[:2] == [first, later]
    assert sorted(ordered[2:]) == ring


JOB = replace(
    preset("large"), tp=2, pp=2, inner=4, layers=4, batch=2, microbatches=4, steps=4, noise_permille=5, real=False
)  # fmt: skip


@pytest.mark.parametrize("slow", [5, 12])
def test_a_slow_device_owns_the_time_that_its_job_loses(slow: int, tmp_path: Path) -> None:
    """Tensor, pipeline and data parallel, one device 10 % slower, in either stage: named alone and charged with most of
    what the simulator loses to it (with more replicas with all of it); nobody else of its replica keeps 5 % of that.

    A replay without slow ranks finds two thirds of it or more: it does not know that calls beside compute slow it.
    """
    scenario = replace(JOB, faults=(Fault("slow-gpu", slow, 100),))
    lost = _step_ns(scenario, 1) - _step_ns(JOB, 1)

    written = write_run(scenario, tmp_path / "run", seed=1, causes=False)
    analysis = analyze(str(written.folder))

    (late,) = analysis.stragglers
    assert (late.rank, late.cause, late.kind) == (slow, "slow-device", "persistent")
    assert 0.9 * lost <= late.charged_per_step <= 1.1 * lost
    assert analysis.charges is not None
    own = analysis.charges.own.sum(axis=2)[:, 1:4].mean(axis=1)
    assert np.delete(own, slow).max() < 0.05 * lost
    # It is as slow in every step: none is charged with what happened in another.
    assert analysis.charges.own[slow].sum(axis=1)[1:4] == pytest.approx(lost, rel=0.3)
    assert analysis.what_if is not None
    assert 0.65 * lost <= analysis.what_if.gain <= 1.1 * lost
    assert analysis.what_if.error < 0.03
