"""Text for a pipe: no blanks at the ends of lines; for a terminal it is left as it is."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.table import Table

from commprof.cli.output import Output
from tests.builders.command import call
from tests.builders.kineto import Trace


def table() -> Table:
    rows = Table(box=None, pad_edge=False)
    rows.add_column("name")
    rows.add_column("meaning")
    rows.add_row("tail", "a longer text")
    rows.add_row("queued", "short")
    return rows


def test_a_piped_table_has_no_blanks_at_the_ends_of_its_lines() -> None:
    file = io.StringIO()

    Output(file=file, width=60).print(table())
    Output(file=file, width=60).print()
    Output(file=file, width=60).print("  indented  ")

    assert file.getvalue() == "name    meaning\ntail    a longer text\nqueued  short\n\n  indented\n"


def test_a_terminal_gets_whole_lines() -> None:
    file = io.StringIO()

    Output(file=file, width=60, force_terminal=True, color_system=None).print(table())

    assert all(line.endswith(" ") for line in file.getvalue().splitlines()[1:] if "short" in line)


@pytest.mark.parametrize("ranks", [1, 2])
def test_no_line_of_a_summary_ends_in_a_blank(ranks: int, tmp_path: Path) -> None:
    for rank in range(ranks):
        trace = Trace(rank=rank, world_size=ranks)
        for step in range(3):
            trace.step(step, 1000 * step, 1000 * step + 1000)
            trace.gemm(1000 * step, 1000 * step + 600)
            trace.all_reduce(1000 * step + 600, 1000 * step + 900)
        trace.write(tmp_path / "runs" / f"rank{rank}.json")

    code, analyzed, _ = call("analyze", tmp_path / "runs", "--no-html")
    _, compared, _ = call("compare", tmp_path / "runs", tmp_path / "runs", "--no-html")
    _, examined, _ = call("doctor", tmp_path / "runs")

    assert code in (0, 3)
    lines = [line for text in (analyzed, compared, examined) for line in text.splitlines()]
    assert len(lines) > 20
    assert [line for line in lines if line != line.rstrip()] == []
