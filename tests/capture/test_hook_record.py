"""Buckets of a real gloo run against the record that a DDP communication hook made in the same run.

Order and parameters must agree exactly; how near the times are is measured by ``tests.benchmarks.gloo_buckets``.
"""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from commprof.cli.app import main
from tests.capture.real import run_ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]

RANKS = 2


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Per rank and in order of the run: a bucket of the report and the hook's row for it."""
    folder = tmp_path_factory.mktemp("hook")
    records = run_ranks("ddp_hook", folder, RANKS)
    assert main(["analyze", str(folder / "run"), "--json", str(folder / "report.json"), "--no-html"]) == 0
    report = json.loads((folder / "report.json").read_text())
    found = []
    for rank, rows in enumerate(records):
        mine = [bucket for bucket in report["buckets"] if bucket["rank"] == rank]
        steps = {int(bucket["step"].rpartition("#")[2]) for bucket in mine}
        recorded = [row for row in rows if row["step"] in steps]
        assert len(mine) == len(recorded) > 4 * 4
        found.append(list(zip(sorted(mine, key=lambda b: (b["series"], b["index"])), recorded, strict=True)))
    return found


def test_buckets_are_those_of_the_hook(pairs: Any) -> None:
    for rank in pairs:
        for bucket, row in rank:
            assert (bucket["index"], bucket["size_bytes"]) == (row["index"], row["size_bytes"])
            assert bucket["parameters"] == row["parameters"]
            assert bucket["layout"] == "rebuilt"


def test_times_come_in_the_order_of_the_hook(pairs: Any) -> None:
    # The origin of the report's times is unknown to the hook, so only order is asked: of the buckets by each stamp, and
    # of the stamps of one bucket.
    for rank in pairs:
        for mine, theirs in (("ready_ns", "ready"), ("launched_ns", "launched")):
            ours = sorted(range(len(rank)), key=lambda i: rank[i][0][mine])
            hook = sorted(range(len(rank)), key=lambda i: rank[i][1][theirs])
            assert ours == hook
        for bucket, _ in rank:
            assert bucket["ready_ns"] <= bucket["launched_ns"] <= bucket["start_ns"] < bucket["end_ns"]
