"""What the verdict says of late ranks, and under which names."""

from __future__ import annotations

from pathlib import Path

import pytest

import commprof
from commprof.analysis.stragglers import Straggler
from commprof.diagnosis.sentences import summary_of
from commprof.diagnosis.totals import Totals
from commprof.diagnosis.waiting import Lost
from tests.builders.kineto import Trace

TOTALS = Totals(
    count=8, duration=1_000, compute=76, exposed_comm=419, blocking=350, host=69, exposed_copy=0, idle=505, comm=433,
    overlap=14, fused=0,
)  # fmt: skip


def late(rank: int) -> Straggler:
    return Straggler(rank, None, None, "persistent", 10, 0.1, 4, 4, "host", (), (), (rank,), ())


@pytest.mark.parametrize(
    ("ranks", "who"),
    [
        ((7,), "rank 7 (its CPU launches late)"),
        ((7, 4), "ranks 7 and 4"),
        ((7, 4, 1), "ranks 7, 4 and 1"),
        ((7, 4, 1, 2), "rank 7 and 3 more"),
    ],
)
def test_up_to_three_late_ranks_are_named(ranks: tuple[int, ...], who: str, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(0, 10)
    analysis = commprof.analyze(trace.write(tmp_path / "rank0.json"))
    analysis.stragglers[:] = [late(rank) for rank in ranks]

    text = summary_of(analysis, TOTALS, Lost(waiting=285, late=272, late_waiting=272), "straggler", True)

    assert text == f"Late ranks are the bottleneck: waiting for {who} costs 27.2 % of the window."


@pytest.mark.parametrize(
    ("waited", "parts"),
    [
        (272, "waiting for a peer, and transfers that came later for it"),
        (0, "transfers that came later for it"),
    ],
)
def test_what_is_more_than_waiting_is_not_called_waiting(waited: int, parts: str, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(0, 10)
    analysis = commprof.analyze(trace.write(tmp_path / "rank0.json"))
    analysis.stragglers[:] = [late(7), late(4)]

    text = summary_of(analysis, TOTALS, Lost(waiting=285, late=352, late_waiting=waited), "straggler", True)

    assert text == f"Late ranks are the bottleneck: lateness of ranks 7 and 4 costs 35.2 % of the window ({parts})."
