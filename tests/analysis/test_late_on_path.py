"""Late ranks that others wait for while the run would not end earlier without them, as far as that can be told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import commprof
from commprof.analysis.behaviour import HOST
from commprof.analysis.critical_path import CriticalPath
from commprof.analysis.late_on_path import shares_on_path
from tests.builders.command import Run
from tests.builders.kineto import GEMM, Trace

Analyze = Callable[..., Run]
OWN, REDUCE, TAIL, LATE = 3_000, 200, 1_000, 1_000
EVERY = 250


def rank_of(rank: int, host: int, reduce: int = REDUCE, returned: int = 0) -> Trace:
    """Five steps: a kernel of 3 ms, on rank 1 of 4; an all-reduce of 200 us; a kernel of 1 ms, which ends the step.

    The CPUs wait for their devices at the end. Before that, the one of rank 0 goes on launching small things until
    ``host`` us after the begin of the step; then it launches the last kernel, which cannot start before that however
    early the all-reduce ends. The one of rank 1 is ahead. The waits end ``returned`` us before the steps.
    """
    trace = Trace(rank=rank, world_size=2)
    reduced = OWN + LATE + reduce
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
        trace.runtime("cudaStreamSynchronize", at + (10 if rank else host + 10), at + length - returned)
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


@pytest.mark.parametrize(("reduce", "named"), [(200, True), (1_000, True), (4_000, False)])
def test_while_the_others_wait_they_send(reduce: int, named: bool, run_analyze: Analyze, tmp_path: Path) -> None:
    """Rank 0 waits 1 ms for rank 1. Of a whole transfer of 5 ms a fifth, all of this 1 ms, may be over by then: the 4
    ms that are left would be 5 without the lateness. Of 1.25 ms it is 0.25 ms at most, and the other 0.75 come back."""
    for rank in (0, 1):
        rank_of(rank, 500, reduce).write(tmp_path / "run" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "run")

    rows = run.report["stragglers" if named else "late_but_harmless"]
    assert [(row["rank"], row["cause"]) for row in rows] == [(1, "slow-device")]
    assert rows[0]["charged_ns_per_step"] == pytest.approx(1_000_000, rel=0.01)


@pytest.mark.parametrize("returned", [-4, 0, 4])
def test_a_wait_may_seem_to_end_before_the_work_that_it_waited_for(returned: int, tmp_path: Path) -> None:
    """Times of the device are converted to the clock of the CPU, some us too late or too early: by the 4 us that it is
    too late the last kernel, which the CPU waits for, ends after the wait. The path leads into it all the same, and
    through the all-reduce before it."""
    for rank in (0, 1):
        rank_of(rank, 500, returned=returned).write(tmp_path / "run" / f"rank{rank}.json")

    path = commprof.analyze(tmp_path / "run", jobs=1).critical_path

    assert path is not None
    assert int(path.transfers.sum()) == path.steps * REDUCE * 1000
    assert np.round(path.own / path.steps / 1e6, 1).sum() == (OWN + LATE + TAIL) / 1000


@pytest.mark.parametrize(
    ("gap", "share"),
    [(12_000.0, 0.1), (10_000.0, 0.4)],
    ids=["each launch takes a fifth longer", "a pause between two launches"],
)
def test_what_all_launches_are_slower_by_is_on_the_path_in_proportion(gap: float, share: float) -> None:
    """Ranks 0 and 1 of 4 share a host. The CPU of each is busy for 1,200 us of a step of 1,000 (two threads), by 200
    longer than those of the others, and on the path for 300 us.

    If each of its launches takes 12 us and not 10, a sixth of these comes back: 50 us of each rank. If no launch but
    one takes longer, that one may lie there whole: 200 us of each.
    """
    nothing = np.zeros(4, np.int64)
    path = CriticalPath(
        steps=1, length=1_000_000, own=nothing, launching=nothing, inputs=nothing, pauses=nothing,
        cpu=np.array([300_000, 300_000, 0, 0]), match=np.empty(0, np.int64), transfers=np.empty(0, np.int64),
        role=nothing, compute=nothing, fetched=nothing, paused=nothing, gap=np.array([gap, gap, 10_000.0, 10_000.0]),
    )  # fmt: skip
    excess = np.zeros((4, 1, 6))
    excess[:2, 0, HOST] = 200_000
    charges = SimpleNamespace(late=None, lateness=SimpleNamespace(excess=excess, unseen=np.zeros((4, 1, 2))))
    behaviour = SimpleNamespace(host_busy=np.array([[0], [1_200_000]]))
    trail = SimpleNamespace(waits=[0])
    ranks = [SimpleNamespace(rank=rank, trail=trail, behaviour=behaviour) for rank in range(4)]
    late = SimpleNamespace(cause="host", kind="persistent", members=(0, 1))

    back = shares_on_path(
        cast(Any, SimpleNamespace(ranks=ranks, matching=None, times=None)), cast(Any, late), cast(Any, charges), path
    )

    assert back == pytest.approx((share, share))
