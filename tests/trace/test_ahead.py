"""Reading with the help of other processes gives what reading alone gives, whatever the file holds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commprof.analysis.needs import NEEDED
from commprof.analysis.rank import analyze_rank
from commprof.errors import CommprofError
from commprof.trace import source
from commprof.trace.model import RankTrace
from commprof.trace.read import read_rank
from tests.builders.kineto import Trace
from tests.builders.team import InlineTeam


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some hundred bytes, so that a small file has many segments; helpers for any file."""
    monkeypatch.setattr(source, "BLOCK_BYTES", 700)
    monkeypatch.setattr(source, "_READ_BYTES", 300)
    monkeypatch.setattr("commprof.trace.read.workers_for", lambda size, packed: 2)


def long_trace(steps: int = 12) -> Trace:
    trace = Trace(rank=0, world_size=2)
    for number in range(steps):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(t + 100, t + 600, launch=t + 10, under=trace.cpu_op("aten::mm", t + 5, t + 15))
        trace.all_reduce(t + 500, t + 900, launch=t + 20, under=trace.comms_op("allreduce", t + 16, t + 30))
        # A list of objects inside an event looks like a border between events.
        trace.cpu_op("aten::cat", t + 40, t + 50)["args"]["Concrete Inputs"] = [{"a": 1}, {"ph": "X"}, {"b": "},{"}]
    return trace


def facts(read: Callable[[], RankTrace]) -> Any:
    """Everything that the analysis of a file rests on, or how it was refused."""
    try:
        rank = read()
        done = analyze_rank(rank)
    except CommprofError as error:
        return type(error), str(error)
    columns = [done.calls.start, done.calls.duration, done.calls.size_bytes, done.shares.exposed]
    return (
        rank.file.events, rank.file.truncated, dict(rank.file.repaired), dict(+rank.file.skipped),
        done.devices[0].whole, list(done.devices[0].steps), [column.tolist() for column in columns],
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_read_the_same_alone_and_with_help(
    seed: int, small_blocks: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("commprof.trace.read.team_for", InlineTeam)
    choose = random.Random(seed)
    data = bytearray(long_trace().write(tmp_path / "whole.json").read_bytes())
    for _ in range(choose.randrange(4)):
        place = choose.randrange(len(data))
        match choose.randrange(4):
            case 0:
                data[place] = choose.randrange(256)
            case 1:
                del data[place : place + choose.randrange(1, 40)]
            case 2:
                data[place:place] = choose.choice([b'"', b"\\", b"},{", b",", b"]", b"NaN", b"\xff", b"[{"])
            case 3:
                del data[place:]
    path = tmp_path / "rank0.json"
    path.write_bytes(data)

    alone = facts(lambda: read_rank(str(path)))
    helped = facts(lambda: read_rank(str(path), helpers=True))

    assert helped == alone


def test_other_processes_read_a_whole_file(small_blocks: None, tmp_path: Path) -> None:
    path = long_trace(30).write(tmp_path / "rank0.json.gz")

    alone, helped = read_rank(str(path)), read_rank(str(path), helpers=True)

    assert helped.names == alone.names
    for table in ("device", "runtime", "operators", "annotations"):
        one, other = getattr(alone, table), getattr(helped, table)
        for column in ("name", "start", "end", "external_id"):
            assert np.array_equal(getattr(one, column), getattr(other, column)), (table, column)
    assert helped.operators.args.keys() == alone.operators.args.keys()


def test_what_is_let_go_changes_no_figure(tmp_path: Path) -> None:
    trace = long_trace()
    trace.copy(50, 60, launch=45)
    path = trace.write(tmp_path / "rank0.json")

    everything = facts(lambda: read_rank(str(path)))
    needed = facts(lambda: read_rank(str(path), keep=NEEDED))

    assert needed == everything
    assert len(read_rank(str(path), keep=NEEDED).operators) < len(read_rank(str(path)).operators)


def test_a_trace_without_a_device_keeps_all_its_operators(tmp_path: Path) -> None:
    trace = Trace(rank=0, world_size=2)
    trace.step(1, 0, 1000)
    trace.cpu_op("aten::mm", 10, 20)
    path = trace.write(tmp_path / "rank0.json")

    assert len(read_rank(str(path), keep=NEEDED).operators) == len(read_rank(str(path)).operators) > 0
    assert json.loads(path.read_text())["traceEvents"]
