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


def pipeline(
    folder: Path, kernel: tuple[int, int] = (1000, 1000), gap: tuple[int, int] = (0, 0), *, replicas: int = 2,
    layers: tuple[int, int] = (1, 1),
) -> Path:  # fmt: skip
    """Two stages (with two replicas ranks 0 and 1, ranks 2 and 3), one micro-batch forward and back.

    A kernel of one name takes ``kernel`` us on each stage, once for each of its ``layers``, launched ``gap`` us after
    the device is free for it.
    """
    traces = [Trace(rank=rank, world_size=2 * replicas) for rank in range(2 * replicas)]
    for replica in range(replicas):
        begin = 100
        for step in range(STEPS):
            first, second = replica, replica + replicas
            send = begin + gap[0] + kernel[0] * layers[0]
            back = send + 20 + gap[1] + kernel[1] * layers[1]
            end = back + 20
            starts = {first: begin + gap[0], second: send + 20 + gap[1]}
            for rank, stage, calls in (
                (first, 0, (("send", send, send + 20), ("recv", send + 20, end))),
                (second, 1, (("recv", begin, send + 20), ("send", back, end))),
            ):
                early = begin - 50
                launch = starts[rank] - 5 if gap[stage] else early
                for layer in range(layers[stage]):
                    at = starts[rank] + layer * kernel[stage]
                    traces[rank].kernel("layer", at, at + kernel[stage], launch=launch)
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
    # Two devices are not slow together: the replicas of the stage agree that it has more to do.
    assert (longer["cause"], longer["or_cause"]) == ("more-work", None)
    assert "The machine is not at fault" in said(run.stdout)


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


def test_without_a_replica_a_slow_device_looks_like_more_work(run_analyze: Analyze, tmp_path: Path) -> None:
    """The same kernel takes 300 us longer on the only rank of stage 1: nothing in the trace says why."""
    page = tmp_path / "report.html"
    run = run_analyze(pipeline(tmp_path / "run", kernel=(1000, 1300), replicas=1), "-o", page)

    (late,) = run.report["stragglers"]
    found = next(row for row in run.report["findings"] if row["id"] == "straggler")
    for row in (late, found):
        assert (row["cause"], row["or_cause"]) == ("more-work", "slow-device")
    evidence = {row["what"]: row["value"] for row in late["evidence"]}
    assert evidence["more compute than the median stage"] == pytest.approx(0.3)
    assert evidence["the same kernels take longer, per step"] == 300_000
    assert evidence["more or larger kernels, per step"] == 0
    assert any("Swap the devices" in line for line in found["advice"])
    assert any("nvidia-smi" in line for line in found["advice"])
    for text in (said(run.stdout), said(page.read_text(encoding="utf-8"))):
        assert "Rank 1 makes the others wait: it computes longer, for more work or a slow device" in text
        assert "does not tell whether the model is cut so or the device is slow" in text
        assert "Swap the devices of this stage and another one" in text
        assert "not at fault" not in text
        assert "no fault of a machine" not in text
    # The page has the causes of the glossary in words too; this one stands with the row and the finding.
    assert page.read_text(encoding="utf-8").count("larger tensors and a slow device look alike here") == 2


def test_kernels_that_a_stage_runs_more_often_are_work(run_analyze: Analyze, tmp_path: Path) -> None:
    """Stage 1 runs the kernel of 1000 us twice, stage 0 once: its device is as fast."""
    run = run_analyze(pipeline(tmp_path / "run", layers=(1, 2), replicas=1))

    (late,) = run.report["stragglers"]
    assert (late["members"], late["cause"], late["or_cause"]) == ([1], "more-work", None)
    assert run.report["pipeline"]["longest_stage_ranks"] == [1]
    assert "no fault of a machine" in said(run.stdout)
    assert "slow device" not in said(run.stdout)
    # Its only finding, that the host is late between the passes, would give nothing back: it is no largest cause.
    assert "largest single cause" not in said(run.stdout)


def said(text: str) -> str:
    """A text without its line breaks."""
    return " ".join(text.split())
