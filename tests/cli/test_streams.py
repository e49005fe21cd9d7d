"""A reader who goes away (``| head``) and a call without any verb: what is written, and the exit code."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commprof.cli.app import main
from tests.builders.command import call
from tests.builders.kineto import t0


def to_nobody(*argv: str | Path) -> tuple[int, str]:
    """Exit code and standard error of a command whose standard output is a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    pipe = os.fdopen(writing, "w", encoding="utf-8")
    with pipe, contextlib.redirect_stdout(pipe), contextlib.redirect_stderr(errors):
        code = main([str(argument) for argument in argv])
    return code, errors.getvalue()


@pytest.mark.parametrize("option", [[], ["--json", "-"]])
def test_a_limit_is_exceeded_whether_anybody_reads_the_summary_or_not(option: list[str], tmp_path: Path) -> None:
    trace, page = t0().write(tmp_path / "rank0.json"), tmp_path / "page.html"

    code, errors = to_nobody("check", trace, "--max-exposed", "0%", "-o", page, *option)

    assert code == 1
    assert "commprof: max-exposed: " in errors
    assert page.is_file()


def test_files_are_written_whether_anybody_reads_along_or_not(tmp_path: Path) -> None:
    trace, page, kept = t0().write(tmp_path / "rank0.json"), tmp_path / "page.html", tmp_path / "report.json"

    analyzed = to_nobody("analyze", trace, "--no-html", "--json", kept)
    compared = to_nobody("compare", kept, kept, "-o", page)

    assert (analyzed, compared) == ((0, ""), (0, ""))
    assert kept.is_file()
    assert page.is_file()


@pytest.mark.parametrize("argv", [["synth", "list"], ["schema"], ["--version"], []])
def test_what_nobody_reads_is_no_failure(argv: list[str]) -> None:
    assert to_nobody(*argv) == (0, "")


def test_doctor_finds_no_fail_because_nobody_reads(tmp_path: Path) -> None:
    trace = t0().write(tmp_path / "rank0.json")

    answers = call("doctor", trace)[0], to_nobody("doctor", trace)[0]

    assert answers == (0, 0)


def test_help_that_nobody_reads_is_no_failure() -> None:
    # Typer prints its help itself; what is left in the buffer is flushed when the interpreter ends.
    command = [sys.executable, "-c", "from commprof.cli.app import run; run()", "analyze", "--help"]
    reading, writing = os.pipe()
    os.close(reading)

    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)

    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_call_without_a_verb_shows_the_verbs() -> None:
    code, out, err = call()

    assert (code, err) == (0, "")
    assert out == call("--help")[1]
    assert "\n  analyze " in out
