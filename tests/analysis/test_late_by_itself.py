"""A late rank whose partner in tensor parallelism comes as late as itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commprof
from commprof.synth import Fault, Scenario, write_run

JOB = Scenario(
    name="tp-dp", strategy="ddp", tp=2, inner=2, layers=8, hidden=256, sequence=256, batch=2, steps=5, loader_ns=2_000,
    launch_ns=6_000, comm_launch_ns=12_000, contention_permille=150, real=True, sync_each_step=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ((Fault("slow-gpu", 3, 780),), [(3, "slow-device")]),
        ((Fault("slow-gpu", 1, 500),), [(1, "slow-device")]),
        ((), []),
        ((Fault("slow-link", 1, 10),), []),
        ((Fault("slow-link", 1, 50), Fault("slow-gpu", 1, 1_500)), [(1, "slow-device")]),
    ],
    ids=["rank 3", "rank 1", "nobody", "a link", "a link and its rank"],
)
def test_what_a_rank_does_by_itself_accuses_it_where_transfers_are_the_larger_part(
    faults: tuple[Fault, ...], named: list[tuple[int, str]], tmp_path: Path
) -> None:
    # Given a job in which ranks 2 and 3 (or 0 and 1) exchange activations, so that both come late to the gradients.
    run = write_run(replace(JOB, faults=faults), tmp_path / "run", seed=5, causes=False, calls=False)

    # When all ranks are analysed.
    analysis = commprof.analyze(run.folder, jobs=1)

    # Then the rank whose device is slow is named, and a transfer accuses neither of its ends. Where its link is slow
    # against that of ranks 2 and 3, that explains its transfers, however much they are of its charge.
    assert [(row.rank, row.cause) for row in analysis.stragglers] == named
