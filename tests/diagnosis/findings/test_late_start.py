"""Ranks that begin their recording late make others wait in its first calls: an artefact, by hand."""

from __future__ import annotations

from collections.abc import Callable

from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]
STEP, COMPUTE, TRANSFER = 3_000, 1_000, 200


def ranks(begins: int = 0, longer: int = 0, always: int = 0) -> list[Trace]:
    """Two ranks, five steps: compute, an all-reduce of 200 us, compute with its result.

    Rank 1 begins ``begins`` us after the other one, or computes ``longer`` us more in its first step, or ``always`` us
    more in every step.
    """
    traces = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for number in range(5):
            behind = always + (0 if number else begins + longer)
            at = STEP * number + always * number + (begins + longer if number else 0)
            first = at + (0 if number or not rank else begins)
            entered = first + COMPUTE + (always if rank else 0) + (longer if rank and not number else 0)
            done = at + behind + COMPUTE + TRANSFER
            trace.step(number, first, at + behind + STEP)
            trace.gemm(first, entered, launch=first + 1)
            trace.all_reduce(entered, done, launch=first + 2, metadata={"elements": 1_000_000})
            trace.gemm(done, at + behind + STEP, launch=first + 3)
        traces.append(trace)
    return traces


def test_waiting_for_a_rank_that_began_late_is_an_artefact(judge: Judge) -> None:
    judged = judge(*ranks(begins=500))

    # Rank 0 waits 500 us in the first of the four steps that have an end.
    finding = judged.by_id["profiler-start"]
    assert (finding["severity"], finding["cause"], finding["ranks"]) == ("info", "inherited", [1])
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (125_000, None)
    assert "straggler" not in judged.named


def test_waiting_for_what_a_rank_did_in_the_recording_is_none(judge: Judge) -> None:
    assert "profiler-start" not in judge(*ranks(longer=500)).by_id


def test_ranks_that_begin_together_wait_for_nobody(judge: Judge) -> None:
    # A hundredth of the first step is worth no finding.
    assert "profiler-start" not in judge(*ranks(begins=30)).by_id


def test_a_rank_that_is_late_in_every_step_was_so_for_its_usual_reason_in_the_first(judge: Judge) -> None:
    judged = judge(*ranks(begins=500, always=500))

    assert judged.by_id["straggler"]["ranks"] == [1]
    assert "profiler-start" not in judged.by_id
