"""What is said of clocks: by how much they were aligned, and ranks of one host that were not recorded together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.builders.command import Run, analyze
from tests.builders.kineto import BASE_NS, Trace

HOUR_NS = 3_600_000_000_000


def two_ranks(folder: Path, ahead_ns: int, hosts: tuple[str, str], out: Path) -> Run:
    """Ranks 0 and 1 with twelve all-reduces that end together; the clock of rank 1 is ahead."""
    for rank in (0, 1):
        trace = Trace(rank=rank, base_ns=BASE_NS + rank * ahead_ns)
        for step in range(3):
            trace.step(step, 2000 * step, 2000 * (step + 1))
            for call in range(4):
                start = 2000 * step + 500 * call
                trace.gemm(start, start + 300)
                trace.all_reduce(start + 300, start + 400, metadata={"seq": 4 * step + call})
        trace.top["host_name"] = hosts[rank]
        trace.write(folder / f"rank{rank}.json")
    return analyze(folder, out)


def test_an_hour_between_hosts_is_aligned_and_told(tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run", HOUR_NS, ("node0", "node1"), tmp_path / "out.json")

    (note,) = run.notes("clocks-aligned")
    assert "The clock of rank 1 is 3,600 s ahead of that of rank 0" in note
    assert "to within 1.00 µs" in note
    assert run.report["matching"]["clock_offsets_ns"] == {"0": 0, "1": HOUR_NS}
    assert not run.notes("captures-apart")
    assert run.stderr == ""


def test_c106_five_milliseconds_are_told_too(tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run", 5_000_000, ("node0", "node1"), tmp_path / "out.json")

    (note,) = run.notes("clocks-aligned")
    assert "rank 1 is 5.00 ms ahead" in note


@pytest.mark.parametrize("ahead_ns", [0, 20_000])
def test_clocks_that_agree_are_no_subject(ahead_ns: int, tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run", ahead_ns, ("node0", "node1"), tmp_path / "out.json")

    assert not run.notes("clocks-aligned")


def test_one_host_has_one_clock(tmp_path: Path) -> None:
    """An hour apart on one host are two runs, whatever the calls look like; doctor fails them for it."""
    run = two_ranks(tmp_path / "run", HOUR_NS, ("node0", "node0"), tmp_path / "out.json")

    (note,) = run.notes("captures-apart")
    assert "Rank 1 was recorded 3,600 s after rank 0 had ended, both on node0: they may be of two runs" in note
    assert "may be of two runs" in run.stderr
    assert run.code == 0
