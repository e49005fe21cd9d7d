"""Where reports are written: nothing that is not a report is ever replaced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.builders.command import call
from tests.builders.kineto import t0


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return t0().write(tmp_path / "in" / "rank0.json")


def test_a_link_is_followed(trace: Path, tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)

    code, _, _ = call("analyze", trace, "--no-html", "--json", link)

    assert code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["schema"] == "commprof.report/1"


def test_a_pipe_is_written_to_and_stays_a_pipe(trace: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()

    code, _, _ = call("analyze", trace, "--no-html", "--json", pipe)
    reader.join(timeout=20)

    assert code == 0
    assert pipe.is_fifo()
    assert json.loads(received[0])["schema"] == "commprof.report/1"


@pytest.mark.parametrize("option", ["--json", "--markdown", "-o"])
def test_an_input_is_never_replaced(option: str, trace: Path) -> None:
    before = trace.read_bytes()
    rest = [] if option == "-o" else ["--no-html"]

    code, _, errors = call("analyze", trace, option, trace, *rest)

    assert (code, len(errors.splitlines())) == (2, 1)
    assert "is an input" in errors
    assert trace.read_bytes() == before


def test_two_reports_in_one_place_are_refused(trace: Path, tmp_path: Path) -> None:
    code, _, errors = call("analyze", trace, "--no-html", "--json", tmp_path / "r", "--markdown", tmp_path / "r")

    assert (code, len(errors.splitlines())) == (2, 1)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("verb", "option"),
    [("analyze", "-o"), ("analyze", "--json"), ("analyze", "--markdown"), ("compare", "-o"), ("doctor", "--json")],
)
def test_a_place_that_cannot_be_a_file_is_refused_before_reading(verb: str, option: str, tmp_path: Path) -> None:
    # The trace does not exist: had it been read first, the message would be about it.
    (tmp_path / "file").write_text("", encoding="utf-8")
    inputs = ["no.json"] * (2 if verb == "compare" else 1)

    folder, below = (call(verb, *inputs, option, place) for place in (tmp_path, tmp_path / "file" / "x" / "y"))

    assert (folder[0], below[0]) == (2, 2)
    assert folder[2] == f"commprof: {tmp_path}: is a folder (give a file in it)\n"
    assert f"{tmp_path / 'file'} is a file, not a folder" in below[2]


def test_a_reader_that_goes_away_is_no_error(trace: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "commprof", "analyze", str(trace), "--no-html"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert run.stdout is not None
    run.stdout.close()
    _, errors = run.communicate()

    assert (run.returncode, errors.decode()) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no full device")
def test_a_full_standard_output_is_one_line(trace: Path) -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "commprof", "analyze", str(trace), "--no-html"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert run.returncode == 4
    assert len(run.stderr.splitlines()) == 1
    assert "No space left" in run.stderr


def test_reports_of_equal_names_do_not_replace_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        t0().write(tmp_path / folder / "run.json")

    first, second, again = (call("analyze", f"{folder}/run.json") for folder in "aba")

    assert [(code, errors) for code, _, errors in (first, again)] == [(0, ""), (0, "")]
    assert "reports/run-2.html" in second[1]
    assert second[2] == "commprof: reports/run.html is the report of another input and stays as it is\n"
    assert [path.name for path in sorted((tmp_path / "reports").iterdir())] == ["run-2.html", "run.html"]
    for name, subject in (("run", "a/run.json"), ("run-2", "b/run.json")):
        assert f'content="{subject}"' in (tmp_path / "reports" / f"{name}.html").read_text()[:500]


def test_a_file_that_is_no_report_keeps_its_name(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "reports" / "rank0.html"
    mine.parent.mkdir()
    mine.write_text("<p>mine</p>")

    code, said, _ = call("analyze", trace)

    assert code == 0
    assert mine.read_text() == "<p>mine</p>"
    assert "reports/rank0-2.html" in said


def test_a_reader_who_leaves_early_still_gets_the_files(trace: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "commprof", "analyze", str(trace), "-o", str(page)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None

    process.stdout.close()
    _, errors = process.communicate(timeout=60)

    assert (process.returncode, errors) == (0, b"")
    assert page.stat().st_size > 1_000_000
