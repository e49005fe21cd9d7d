"""A reader who goes away (``| head``) and a call without any verb: what is written, and the exit code."""

from __future__ import annotations

import contextlib
import io
import json
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


def told(encoding: str, *argv: str | Path) -> subprocess.CompletedProcess[bytes]:
    """A command whose standard streams have that encoding."""
    command = [sys.executable, "-c", "from commprof.cli.app import run; run()", *map(str, argv)]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    return subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "ascii:surrogateescape"])
def test_characters_that_a_stream_lacks_cost_no_report(encoding: str, tmp_path: Path) -> None:
    # Given a trace whose times are microseconds, and a name with letters of several alphabets,
    trace = t0().write(tmp_path / "é-中-rank0.json")
    page, kept = tmp_path / "page.html", tmp_path / "report.json"

    # When the streams can hold few characters or hardly any,
    ended = told(encoding, "analyze", trace, "-o", page, "--json", kept)

    # Then all is written, and what is printed reads alike.
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert page.is_file()
    assert kept.is_file()
    text = ended.stdout.decode("latin-1")
    assert " µs" in text if encoding == "latin-1" else " us" in text
    assert "é-?-rank0" in text if encoding == "latin-1" else "e-?-rank0" in text


@pytest.mark.parametrize(
    "argv", [["doctor"], ["check", "--no-html", "--max-exposed", "100%"], ["compare", "--no-html"]]
)
def test_no_command_stops_at_a_character(argv: list[str], tmp_path: Path) -> None:
    trace = t0().write(tmp_path / "中.json")

    ended = told("ascii", argv[0], trace, *([trace] if argv[0] == "compare" else []), *argv[1:])

    assert ended.returncode == 0, ended.stderr
    assert b"internal error" not in ended.stderr


def test_an_error_is_readable_in_any_encoding(tmp_path: Path) -> None:
    ended = told("ascii", "analyze", tmp_path / "µ-é.json")

    assert ended.returncode == 2
    assert b"u-e.json: no such file" in ended.stderr


def test_json_on_standard_output_is_utf8_whatever_the_stream_holds(tmp_path: Path) -> None:
    trace = t0().write(tmp_path / "中é.json")

    ended = told("latin-1", "analyze", trace, "--no-html", "--json", "-")

    assert ended.returncode == 0
    assert "中é.json" in json.loads(ended.stdout.decode("utf-8"))["input"]["path"]
    assert b"?" in ended.stderr


def test_who_calls_the_command_in_a_script_keeps_the_streams() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")

    with contextlib.redirect_stdout(stream):
        code = main(["--help"])

    assert (code, stream.errors) == (0, "strict")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["analyze", "x", "--jobs", "0"], "'--jobs' / '-j': must be 1 or more"),
        (["demo", "--ranks", "17"], "'--ranks': must be 16 or less"),
        (["run", "--steps", "x", "--", "ls"], "'--steps': is not a whole number"),
    ],
)
def test_a_number_that_does_not_fit_is_refused_in_plain_words(argv: list[str], said: str) -> None:
    code, out, err = call(*argv)

    assert (code, out) == (2, "")
    assert err == f"commprof: Invalid value for {said} (commprof --help shows how)\n"


def test_a_file_whose_name_is_no_text_is_reported_like_any_other(tmp_path: Path) -> None:
    # A name in Latin-1, as a disk of another system may hold: Python has no letter for its byte.
    trace = t0().write(tmp_path / "tr\udce9.json")
    page, kept, notes = tmp_path / "page.html", tmp_path / "report.json", tmp_path / "notes.md"

    analyzed = told("utf-8", "analyze", trace, "-o", page, "--json", kept, "--markdown", notes)
    compared = told("utf-8", "compare", trace, trace, "-o", tmp_path / "both.html", "--json", tmp_path / "both.json")
    examined = told("utf-8", "doctor", trace)

    for ended in (analyzed, compared, examined):
        assert (ended.returncode, b"internal error" in ended.stderr) == (0, False), ended.stderr
    assert json.loads(kept.read_text(encoding="utf-8"))["input"]["path"].endswith("tr\ufffd.json")
    assert notes.is_file()
    assert page.is_file()


def test_a_name_that_only_the_locale_cannot_read_is_in_the_report_as_it_is(tmp_path: Path) -> None:
    trace, kept = t0().write(tmp_path / "中.json"), tmp_path / "report.json"
    command = [sys.executable, "-c", "from commprof.cli.app import run; run()", "analyze", str(trace), "--no-html"]
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    ended = subprocess.run([*command, "--json", str(kept)], env=plain, capture_output=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stderr
    assert json.loads(kept.read_text(encoding="utf-8"))["input"]["path"].endswith("中.json")
