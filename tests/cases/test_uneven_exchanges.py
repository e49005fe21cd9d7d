"""Cases of all-to-alls whose members send unequal amounts: C166, C167, C169 of the catalogue."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run, analyze
from tests.builders.kineto import Trace
from tests.cases.test_matching import column

MB = 1_000_000


class Cells(HTMLParser):
    """The text of the cells of one table of a page, by row."""

    def __init__(self, page: Path, table: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._table, self._inside, self._cell = table, False, False
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self._inside = dict(attrs).get("id") == self._table
        if self._inside and tag == "tr":
            self.rows.append([])
        if self._inside and tag in ("td", "th"):
            self._cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._cell = self._cell and tag not in ("td", "th")
        self._inside = self._inside and tag != "table"

    def handle_data(self, data: str) -> None:
        if self._inside and self._cell:
            self.rows[-1][-1] += data.strip()


def exchange(trace: Trace, place: int, sizes: list[list[int]], start: int, end: int, **metadata: Any) -> None:
    """An all-to-all-v of bytes: ``sizes[i][j]`` go from the ``i``-th member to the ``j``-th."""
    given, got = sizes[place], [row[place] for row in sizes]
    shown = {"in_split": text(given), "out_split": text(got)}
    metadata = {"elements": sum(given), "out_elements": sum(got), "dtype": "Byte", **shown, **metadata}
    trace.collective("all_to_allv", start, end, metadata=metadata)


def text(splits: list[int]) -> str:
    """Split sizes as PyTorch writes them: cut after thirty."""
    return str(splits) if len(splits) <= 30 else f"[{', '.join(map(str, splits[:30]))}, ...]"


def unequal(folder: Path, sizes: list[list[int]], *options: str | Path, lengths: tuple[int, ...] = ()) -> Run:
    """One all-to-all-v of these bytes in the group of all ranks after ten all-reduces, without a common start."""
    for rank in range(len(sizes)):
        trace = Trace(rank=rank, world_size=len(sizes))
        trace.step(1, 0, 10_000)
        for i in range(10):
            trace.all_reduce(100 * i, 100 * i + 50)
        exchange(trace, rank, sizes, 2_000, 2_000 + (lengths[rank] if lengths else 1000))
        trace.write(folder / "run" / f"rank{rank}.json")
    return analyze(folder / "run", folder / "report.json", *options)


def test_c166_unequal_splits_are_an_imbalance_and_the_shortest_is_no_transfer(tmp_path: Path) -> None:
    """C166: four ranks send 10, 10, 10 and 40 MB; 40 over a mean of 17.5 is 2.29. They are done at different times."""
    sent = [10 * MB, 10 * MB, 10 * MB, 40 * MB]
    sizes = [[whole // 4] * 4 for whole in sent]
    page = tmp_path / "report.html"
    found = unequal(tmp_path, sizes, "-o", page, lengths=(900, 1000, 1000, 2000))

    (row,) = found.report["imbalance"]
    assert round(row["ratio"], 2) == 2.29
    assert row["sent_bytes"] == {"0": 10 * MB, "1": 10 * MB, "2": 10 * MB, "3": 40 * MB}
    assert row["received_bytes"] == {str(rank): 70 * MB // 4 for rank in range(4)}
    assert set(column(found, "transfer_ns", "all_to_all")) == {0, 1, 2, 3}
    assert [*column(found, "transfer_ns", "all_to_all").values()] == [[None]] * 4
    assert [*column(found, "wait_ns", "all_to_all").values()] == [[None]] * 4
    table = Cells(page, "per-peer").rows
    assert [cells[0] for cells in table[1:]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert [cells[-1] for cells in table[1:]] == ["10.0 MB", "10.0 MB", "10.0 MB", "40.0 MB"]


def test_c167_split_sizes_that_are_cut_leave_the_totals_and_say_so(tmp_path: Path) -> None:
    """C167: 64 ranks, whose split sizes are cut after thirty."""
    sizes = [[1000 + 10 * rank + peer for peer in range(64)] for rank in range(64)]
    page = tmp_path / "report.html"
    found = unequal(tmp_path, sizes, "-o", page)

    assert found.code == 0
    (row,) = found.report["imbalance"]
    assert row["sent_bytes"]["63"] == sum(sizes[63])
    assert row["per_peer"] is None
    assert row["per_peer_missing"] == "split sizes truncated"
    assert "n/a (split sizes truncated)" in page.read_text("utf-8")


def test_c167_one_rank_with_cut_splits_is_enough(tmp_path: Path) -> None:
    """Four ranks; what rank 2 shows is cut."""
    for rank in range(4):
        trace = Trace(rank=rank, world_size=4)
        trace.step(1, 0, 1000)
        cut = {"in_split": "[1, 2, ...]", "out_split": "[1, 2, ...]"} if rank == 2 else {}
        exchange(trace, rank, [[1, 2, 3, 4]] * 4, 100, 200, **cut)
        trace.write(tmp_path / "run" / f"rank{rank}.json")
    found = analyze(tmp_path / "run", tmp_path / "report.json")

    (row,) = found.report["imbalance"]
    assert (row["per_peer"], row["per_peer_missing"]) == (None, "split sizes truncated")


@pytest.mark.parametrize("members", [[2, 3], [1, 3]])
def test_c169_members_of_an_exchange_are_global_ranks(members: list[int], tmp_path: Path) -> None:
    """C169: an all-to-all-v in the group {2, 3} of four ranks (and in {1, 3})."""
    for rank in range(4):
        trace = Trace(rank=rank, world_size=4)
        trace.step(1, 0, 1000)
        trace.all_reduce(0, 50)
        if rank in members:
            sizes = [[4 * MB, 1 * MB], [7 * MB, 2 * MB]]
            group = {"group": "5", "description": "ep", "ranks": members}
            exchange(trace, members.index(rank), sizes, 100, 200, **group)
        trace.write(tmp_path / "run" / f"rank{rank}.json")
    page = tmp_path / "report.html"
    found = analyze(tmp_path / "run", tmp_path / "report.json", "-o", page)

    (row,) = found.report["imbalance"]
    assert row["members"] == members
    assert set(row["sent_bytes"]) == {str(rank) for rank in members}
    assert row["per_peer"] == [[4 * MB, 1 * MB], [7 * MB, 2 * MB]]
    names = [f"rank {rank}" for rank in members]
    table = Cells(page, "per-peer").rows
    assert table[0][1:3] == [f"to {name}" for name in names]
    assert [cells[:3] for cells in table[1:]] == [
        [names[0], "4.00 MB", "1.00 MB"],
        [names[1], "7.00 MB", "2.00 MB"],
    ]


def test_totals_alone_tell_the_imbalance_but_no_peers(tmp_path: Path) -> None:
    """As C166 without split sizes: what is sent differs, so the splits do."""
    for rank, sent in enumerate((10, 10, 10, 40)):
        trace = Trace(rank=rank, world_size=4)
        trace.step(1, 0, 10_000)
        metadata = {"elements": sent * MB, "out_elements": 70 * MB // 4, "dtype": "Byte"}
        trace.collective("all_to_allv", 100, 500 + 100 * rank, metadata=metadata)
        trace.write(tmp_path / "run" / f"rank{rank}.json")
    found = analyze(tmp_path / "run", tmp_path / "report.json")

    (row,) = found.report["imbalance"]
    assert (round(row["ratio"], 2), row["per_peer"]) == (2.29, None)
    assert row["per_peer_missing"] == "split sizes not stated"
    assert [*column(found, "transfer_ns").values()] == [[None]] * 4
