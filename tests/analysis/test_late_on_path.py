"""Late ranks that others wait for while the run would not end earlier without them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run
from tests.builders.kineto import GEMM, Trace

Analyze = Callable[..., Run]
OWN, REDUCE, TAIL, LATE = 3_000, 200, 1_000, 1_000
EVERY = 250


def rank_of(rank: int, host: int) -> Trace:
    """Five steps: a kernel of 3 ms, on rank 1 of 4; an all-reduce of 200 us; a kernel of 1 ms, which ends the step.

    The CPUs wait for their devices at the end. Before that, the one of rank 0 goes on launching small things until
    ``host`` us after the begin of the step; then it launches the last kernel, which cannot start before that however
    early the all-reduce ends. The one of rank 1 is ahead.
    """
    trace = Trace(rank=rank, world_size=2)
    reduced = OWN + LATE + REDUCE
    last = max(reduced, host + 5)
    length = last + TAIL
    for step in range(5):
        at = length * step
        trace.step(step, at, at + length)
        own = OWN + (LATE if rank else 0)
        trace.kernel(GEMM, at, at + own, launch=at)
        trace.all_reduce(at + own, at + reduced, launch=at + 1, metadata={"seq": step, "elements": 1_000_000})
        for small in range(EVERY, host - EVERY, EVERY):
            if not rank:
                trace.runtime("cudaEventRecord", at + small, at + small + EVERY - 20)
        begin = at + (reduced if rank else last)
        trace.runtime("cudaStreamSynchronize", at + (10 if rank else host + 10), at + length)
        trace.kernel("tail", begin, begin + TAIL, launch=at + (2 if rank else host))
    return trace


@pytest.mark.parametrize(
    ("host", "named"), [(6_000, False), (500, True)], ids=["its peer is slower on the CPU", "its peer has all launched"]
)
def test_a_rank_is_not_named_for_waits_behind_which_the_cpu_of_its_peer_is_busy(
    host: int, named: bool, run_analyze: Analyze, tmp_path: Path
) -> None:
    # Rank 0 waits 1 ms for rank 1 either way. Its last kernel comes at 6 ms or, if it is launched by then, at 4.2.
    for rank in (0, 1):
        rank_of(rank, host).write(tmp_path / "run" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "run")

    late = [(row["rank"], row["cause"]) for row in run.report["stragglers"]]
    harmless = [(row["rank"], row["cause"]) for row in run.report["late_but_harmless"]]
    assert (late, harmless) == (([(1, "slow-device")], []) if named else ([], [(1, "slow-device")]))
    assert len(run.notes("waits-cost-nothing")) == (0 if named else 1)
