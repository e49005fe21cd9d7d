"""A stage that is slow in every replica is mentioned, and no rank is accused: waiting for it is bubble by its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commprof.analysis.run import analyze
from commprof.analysis.stage_pace import slow_stages
from tests.builders.command import Run
from tests.builders.kineto import Trace

Analyze = Callable[..., Run]
STEPS = 6


def pipeline(folder: Path, kernel: tuple[int, int] = (1000, 1000), gap: tuple[int, int] = (0, 0)) -> Path:
    """Two stages (ranks 0 and 1, ranks 2 and 3) of two replicas, one micro-batch forward and back.

    A kernel of one name takes ``kernel`` us on each stage, launched ``gap`` us after the device is free for it.
    """
    traces = [Trace(rank=rank, world_size=4) for rank in range(4)]
    for replica in (0, 1):
        begin = 100
        for step in range(STEPS):
            first, second = replica, replica + 2
            send = begin + gap[0] + kernel[0]
            back = send + 20 + gap[1] + kernel[1]
            end = back + 20
            starts = {first: begin + gap[0], second: send + 20 + gap[1]}
            for rank, stage, calls in (
                (first, 0, (("send", send, send + 20), ("recv", send + 20, end))),
                (second, 1, (("recv", begin, send + 20), ("send", back, end))),
            ):
                early = begin - 50
                launch = starts[rank] - 5 if gap[stage] else early
                traces[rank].kernel("layer", starts[rank], starts[rank] + kernel[stage], launch=launch)
                for call, start, stop in calls:
                    traces[rank].collective(
                        call, start, stop, stream=21, launch=early + 10,
                        metadata={"group": f"pp{replica}", "description": "PIPELINE_MODEL_PARALLEL_GROUP",
                                  "ranks": [first, second]},
                        args={"Dst Rank" if call == "send" else "Src Rank": second if stage == 0 else first},
                    )  # fmt: skip
                traces[rank].step(step + 1, begin - 60, end - 60)
            begin = end
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    return folder


def test_equal_stages_are_not_told_apart(tmp_path: Path) -> None:
    analysis = analyze(str(pipeline(tmp_path / "run")))

    assert analysis.pipeline is not None
    assert slow_stages(analysis) == []


def test_equal_kernels_that_take_longer_on_a_stage_are_mentioned(run_analyze: Analyze, tmp_path: Path) -> None:
    folder = pipeline(tmp_path / "run", kernel=(1000, 1300))

    (slow,) = slow_stages(analyze(str(folder)))
    run = run_analyze(folder)

    assert (slow.stage, slow.ranks, slow.host) == (1, (2, 3), 0)
    assert slow.factor == pytest.approx(1.3)
    longer = next(row for row in run.report["findings"] if row["id"] == "straggler")
    assert [row["value"] for row in longer["evidence"] if "equal kernels on stage 1" in row["what"]] == [1.3]
    assert all(row["rank"] is None for row in run.report["stragglers"])


def test_a_stage_whose_hosts_launch_late_in_all_replicas_is_mentioned(run_analyze: Analyze, tmp_path: Path) -> None:
    """Stage 0 is free 1 ms before its kernel is launched in each step, stage 1 never."""
    folder = pipeline(tmp_path / "run", gap=(1000, 0))

    (slow,) = slow_stages(analyze(str(folder)))
    run = run_analyze(folder)

    assert (slow.stage, slow.ranks, slow.factor) == (0, (0, 1), 1.0)
    assert slow.host == pytest.approx(1_000_000, rel=0.03)
    told = [row["what"] for finding in run.report["findings"] for row in finding["evidence"]]
    assert any("stage 0 idles until its hosts launch" in what for what in told)
    assert all(row["rank"] is None for row in run.report["stragglers"])
