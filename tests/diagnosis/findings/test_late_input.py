"""A rank that is late because of its input, on a run whose reference rank changes from step to step."""

from __future__ import annotations

from collections.abc import Callable

from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
STEP = 10_000


def rank_of(rank: int) -> Trace:
    """Four steps; rank 1 fetches its batch for 2 ms, rank 0 waits for it that long. Each has 50 µs of idle time of its
    own now and then, so that the one that lost the most is rank 1 in every other step."""
    trace = Trace(rank=rank)
    for step in range(4):
        at = STEP * step
        trace.step(step, at, at + STEP)
        late = 2_000 if rank else 0
        trace.annotation(LOADER, at + 1, at + 1 + late)
        trace.gemm(at, at + 10, launch=at)
        idle = 50 if rank == step % 2 else 0
        trace.gemm(at + 10 + late + idle, at + 5_000 + late, launch=at + 5 + late + idle)
        trace.all_reduce(
            at + 5_000 + late, at + 7_200, launch=at + 60 + late, metadata={"seq": step, "elements": 1_000}
        )
        trace.gemm(at + 7_200, at + STEP, launch=at + 62 + late)
    return trace


def test_input_of_one_rank_is_charged_to_that_rank_whoever_loses_the_most(judge: Callable[..., Judged]) -> None:
    judged = judge(rank_of(0), rank_of(1))

    # 2 ms of a step of 10 in every step, be it seen as waiting on rank 0 or as input on rank 1.
    late = judged.by_id["straggler"]
    assert (late["ranks"], late["cause"], late["severity"]) == ([1], "input", "high")
    assert abs(late["charged_ns"] - 2_000_000) <= 20_000
    assert "input-bound" not in judged.named
