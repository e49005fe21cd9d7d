"""Processes that read the same file beside the one that leads: nothing of it is lost, and none of them is left."""

from __future__ import annotations

import gzip
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commprof.errors import WorkerDied
from commprof.trace import team as teams
from commprof.trace.read import read_rank
from commprof.trace.segments import Result
from commprof.trace.team import Team
from commprof.trace.workers import _Context
from tests.builders.kineto import CPU_PROCESS, Trace

COLUMNS = ("name", "start", "end", "external_id")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some steps between long Python frames: 13 MB, packed without making it smaller, so that helpers pay."""
    trace = Trace(rank=0, world_size=2)
    for number in range(12):
        t = 1000 * number
        trace.step(number, t, t + 1000)
        trace.gemm(t + 100, t + 600, launch=t + 10, under=trace.cpu_op("aten::mm", t + 5, t + 15))
        trace.all_reduce(t + 500, t + 900, launch=t + 20, under=trace.comms_op("allreduce", t + 16, t + 30))
        for place in range(260):
            trace.add("python_function", "x" * 4000, t + place, t + place + 1, CPU_PROCESS, 1, {})
    path = tmp_path_factory.mktemp("large") / "rank0.json.gz"
    path.write_bytes(gzip.compress(trace.text().encode(), compresslevel=0))
    return path


def everything(team: Team) -> list[Result]:
    """What the helpers find if nobody else takes part."""
    found = []
    while results := team.results(patient=True):
        found += results
    return found


def test_a_large_file_reads_the_same_with_other_processes(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a file that is large enough for helpers, on a machine with two cores for them,
    monkeypatch.setattr("os.cpu_count", lambda: 3)

    # When it is read alone and with them,
    alone, helped = read_rank(str(large)), read_rank(str(large), helpers=True)

    # Then every column is the same, and the processes are gone.
    assert len(alone.device) == 24
    for table in ("device", "runtime", "operators", "annotations"):
        one, other = getattr(alone, table), getattr(helped, table)
        assert all(np.array_equal(getattr(one, column), getattr(other, column)) for column in COLUMNS), table
    assert (helped.names, helped.file.events) == (alone.names, alone.file.events)
    assert not multiprocessing.active_children()


def test_every_segment_is_claimed_once(large: Path) -> None:
    # Given helpers that share the numbers of a file of three whole blocks and a rest,
    team = Team(str(large), 2, _Context())

    # When the process that leads takes no part,
    found = everything(team)
    team.close()

    # Then each segment has come once, and flawless.
    assert sorted(result.number for result in found) == list(range(len(found)))
    assert len(found) >= 2
    assert all(result.chunk is not None for result in found)


def test_who_leads_decodes_what_has_no_number(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr(teams, "_MOST_NUMBERS", 0)

    helped = read_rank(str(large), helpers=True)

    assert len(helped.device) == 24


def test_a_file_that_is_no_trace_ends_the_others_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rank0.json"
    path.write_text("no trace")
    team = Team(str(path), 1, _Context())

    found = team.results(patient=True)
    team.close()

    assert found == []
    assert capfd.readouterr().err == ""


def test_a_killed_process_is_one_line(large: Path) -> None:
    team = Team(str(large), 1, _Context())
    multiprocessing.active_children()[0].kill()

    with pytest.raises(WorkerDied, match="ended before its part was read"):
        everything(team)

    team.close()


def test_the_command_reads_it_with_a_copy_of_itself(large: Path, tmp_path: Path) -> None:
    # Given the command in a process of its own, where the helpers begin as copies before the analyses are imported,
    reports = [tmp_path / "one.json", tmp_path / "two.json"]
    command = (
        "import os, sys; os.cpu_count = lambda: 2; from commprof.cli.app import main; sys.exit(main(sys.argv[1:]))"
    )

    # When it reads alone and with one,
    for report, more in zip(reports, (["--jobs", "1"], []), strict=True):
        arguments = [sys.executable, "-W", "error", "-c", command, "analyze", str(large), "--no-html", "--json", report]
        ended = subprocess.run([*arguments, *more], capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr

    # Then the reports are the same bytes.
    assert reports[0].read_bytes() == reports[1].read_bytes()
