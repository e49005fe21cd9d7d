"""Clocks of ranks that only messages join: bounds from both directions, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import commprof
from commprof.analysis.clocks import Clocks
from commprof.analysis.message_clocks import joined_by_messages
from commprof.report.waiting_rows import matching_row
from commprof.synth import Scenario, write_run
from commprof.synth.cluster import Cluster
from commprof.units import format_ns
from tests.builders.command import analyze
from tests.builders.kineto import Trace

AHEAD = 5_000
"""So many us the clock of rank 1 is ahead."""


def messages(folder: Path, *, back: bool = True, apart: int = 300) -> Path:
    """Ten messages of 200 us from rank 0 to rank 1, which comes ``apart`` us before, and ends 10 us after the sender;
    as many ``back``, which end 30 us after theirs."""
    folder.mkdir()
    for rank in (0, 1):
        trace, clock = Trace(rank=rank), AHEAD * rank
        for step in range(10):
            trace.step(step + 1, clock + 4_000 * step, clock + 4_000 * (step + 1))
        for number in range(20):
            source = number % 2
            if source and not back:
                continue
            at = 2_000 * number + clock
            late = (30 if source else 10) if rank != source else 0
            trace.gemm(at + 50, at + 500, launch=at + 10)
            trace.collective(
                "send" if rank == source else "recv",
                at + 1_000 - (0 if rank == source else apart), at + 1_200 + late, launch=at + 20,
                metadata={
                    "ranks": [0, 1], "group": "5", "Src Rank": source, "Dst Rank": 1 - source, "elements": 1_000_000,
                },
            )  # fmt: skip
        trace.write(folder / f"rank{rank}.json")
    return folder


def joined(folder: Path, *, back: bool, apart: int = 300) -> Clocks | None:
    analysis = commprof.analyze(messages(folder, back=back, apart=apart), jobs=1)
    assert analysis.matching is not None
    assert analysis.clocks is not None
    return joined_by_messages(analysis.matching, analysis.clocks, one_host=False)


def test_messages_both_ways_bound_the_offset(tmp_path: Path) -> None:
    found = joined(tmp_path / "run", back=True)

    # At most 5010 us ahead by the messages there, at least 4970 by those back.
    assert found is not None
    assert found.offset.tolist() == [0, 4_990_000]
    assert found.uncertainty.tolist() == [20_000, 20_000]
    assert found.component.tolist() == [0, 0]


def test_the_report_states_offset_and_uncertainty_by_messages(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    run = analyze(messages(tmp_path / "run"), tmp_path / "out.json", "-o", page)

    matching = run.report["matching"]
    assert matching["clock_uncertainty_ns"] is None
    assert matching["message_clock_offsets_ns"] == {"0": 0, "1": 4_990_000}
    assert matching["message_clock_uncertainty_ns"] == 20_000
    (note,) = run.notes("clocks-by-messages")
    assert "to within 20.0 µs" in note
    assert "to within 20.0 µs" in " ".join(run.stdout.split())
    text = " ".join(page.read_text(encoding="utf-8").split())
    assert "known to 20.0 µs by messages both ways, on which the critical path alone rests" in text
    assert "the largest is 4.99 ms" in text
    assert "rank 1: 4.99 ms" in text


def test_clocks_of_which_nothing_is_known_have_no_table(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    run = analyze(messages(tmp_path / "run", back=False), tmp_path / "out.json", "-o", page)

    matching = run.report["matching"]
    assert set(matching["clock_offsets_ns"].values()) == {None}
    assert (matching["message_clock_offsets_ns"], matching["message_clock_uncertainty_ns"]) == (None, None)
    assert "<h4>Clocks</h4>" not in page.read_text(encoding="utf-8")


def test_messages_one_way_bound_nothing(tmp_path: Path) -> None:
    assert joined(tmp_path / "run", back=False) is None


def test_sides_that_start_closer_than_clocks_are_known_have_no_order(tmp_path: Path) -> None:
    assert joined(tmp_path / "run", back=True, apart=5) is None


@pytest.mark.parametrize("offset", [0, 3_000_000])
def test_a_pipeline_over_hosts_has_a_critical_path_whatever_its_clocks_show(offset: int, tmp_path: Path) -> None:
    scenario = Scenario(
        strategy="none", pp=2, inner=1, microbatches=4, schedule="gpipe", layers=4, hidden=512, sequence=256,
        cluster=Cluster(gpus_per_host=1, nics_per_host=1),
    )  # fmt: skip

    paths = []
    for number, shown in enumerate((0, offset)):
        written = write_run(replace(scenario, clock_offset_ns=shown), tmp_path / str(number), seed=1, calls=False)
        analysis = commprof.analyze(written.folder, jobs=1)
        paths.append(analysis.critical_path)
        told = [note.message for note in analysis.notes if note.code == "clocks-by-messages"]
        row = matching_row(analysis)
        assert analysis.message_clocks is not None
        assert row is not None
        # What the report states is the larger of the two sides: half of what lies between the bounds, see above.
        worst = int(analysis.message_clocks.uncertainty.max())
        assert row["message_clock_uncertainty_ns"] == worst
        assert [f"by messages both ways, to within {format_ns(worst)}" in text for text in told] == [True]

    assert paths[0] is not None
    assert paths[1] is not None
    assert paths[1].length == pytest.approx(paths[0].length, rel=0.01)
    assert paths[1].own.sum() == pytest.approx(paths[0].own.sum(), rel=0.02)
