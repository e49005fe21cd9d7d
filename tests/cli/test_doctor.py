"""``commprof doctor`` as a person runs it: exit codes, streams, JSON, 80 columns."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from commprof.diagnosis.doctor import judge
from commprof.diagnosis.examination import examine
from commprof.report.doctor_view import build_doctor_view, print_doctor
from tests.builders.command import call, strict_json
from tests.builders.kineto import Trace, t0

ROOT = Path(__file__).resolve().parent.parent.parent


def trace(rank: int = 0, world: int = 2) -> Trace:
    """``T0`` of any rank."""
    made = t0()
    made.top["distributedInfo"] |= {"rank": rank, "world_size": world}
    return made


def first_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r"PASS|WARN|FAIL", line)]


def test_warnings_alone_are_exit_0(tmp_path: Path) -> None:
    trace().write(tmp_path / "rank0.json")

    code, out, err = call("doctor", tmp_path)

    assert (code, err) == (0, "")
    assert re.match(r"Fit for analysis, with \d+ reservations\.\n", out)
    assert "rank 1 missing" in out


def test_a_fail_is_exit_1_and_stands_first(tmp_path: Path) -> None:
    trace().write(tmp_path / "rank0.json")
    (tmp_path / "rank1.json").write_text("")

    code, out, err = call("doctor", tmp_path)

    assert (code, err) == (1, "")
    assert out.startswith("Not fit for analysis as it is: 1 problem to solve first.\n")
    assert re.match(r"FAIL  readable +rank1\.json: empty file$", first_lines(out)[0])
    statuses = [line[:4] for line in first_lines(out)]
    assert statuses == sorted(statuses, key=["FAIL", "WARN", "PASS"].index)


def test_a_trace_without_device_work_is_exit_1(tmp_path: Path) -> None:
    made = trace()
    made.events = made.events[:1]
    made.write(tmp_path / "rank0.json")

    code, out, _ = call("doctor", tmp_path)

    assert code == 1
    assert any(line.startswith("FAIL  device work") for line in first_lines(out))


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        (None, 2, "no such file"),
        ("", 2, "empty file"),
        ("hello", 2, "not a trace"),
        ('{"traceEvents": []}', 3, "no events"),
    ],
)
def test_c224_a_single_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, text: str | None, code: int, reason: str
) -> None:
    path = tmp_path / "rank0.json"
    if text is not None:
        path.write_text(text)

    got, out, err = call("doctor", path)

    assert (got, out) == (code, "")
    (line,) = err.splitlines()
    assert line.startswith(f"commprof: {path}: {reason}")


@pytest.mark.parametrize(("second", "code"), [("nothing", 2), ('{"traceEvents": []}', 3)])
def test_where_nothing_can_be_read_every_file_has_its_line(tmp_path: Path, second: str, code: int) -> None:
    (tmp_path / "rank0.json").write_text('{"traceEvents": []}')
    (tmp_path / "rank1.json").write_text(second)

    got, out, err = call("doctor", tmp_path, "--json", tmp_path / "out" / "doctor.json")

    assert got == code
    assert [re.split(r"\s{2,}", line)[2].partition(":")[0] for line in first_lines(out)] == ["rank0.json", "rank1.json"]
    assert len(err.splitlines()) == 1
    assert strict_json((tmp_path / "out" / "doctor.json").read_bytes())["fit"] is False


def test_a_folder_without_any_file_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    code, out, err = call("doctor", tmp_path / "empty")

    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1


def test_the_json_says_what_the_terminal_says(tmp_path: Path) -> None:
    run = tmp_path / "run"
    trace().write(run / "rank0.json")
    (run / "notes.txt").write_text("mine")
    target = tmp_path / "out" / "doctor.json"

    code, out, _ = call("doctor", run, "--json", target)

    answer = strict_json(target.read_bytes())
    assert code == 0
    assert answer["schema"] == "commprof.doctor/1"
    assert answer["fit"] is True
    assert answer["input"]["files"] == [{"path": "rank0.json", "rank": 0}]
    assert [entry["path"] for entry in answer["input"]["ignored"]] == ["notes.txt"]
    assert (answer["input"]["ranks"], answer["input"]["world_size"]) == ([0], 2)
    assert len(answer["checks"]) == len(first_lines(out)) == sum(answer["counts"].values())
    flat = " ".join(out.split())
    for check in answer["checks"]:
        assert f"{check['status']} {check['name']} {check['message']}" in flat
        assert check["advice"] is None or f"-> {check['advice']}" in flat
    for line in answer["capture"]["call"].splitlines():
        assert line in out
    assert answer["capture"]["torch_profiler"] in out


def test_json_on_standard_output_stands_there_alone(tmp_path: Path) -> None:
    trace().write(tmp_path / "rank0.json")

    code, out, err = call("doctor", tmp_path, "--json", "-")

    assert code == 0
    assert strict_json(out.encode())["schema"] == "commprof.doctor/1"
    assert err.startswith("Fit for analysis")


def test_c220_the_same_input_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    trace().write(tmp_path / "rank0.json")

    assert call("doctor", tmp_path, "--json", "-") == call("doctor", tmp_path, "--json", "-")


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "fixtures").iterdir() if path.is_dir()))
def test_fixtures_are_examined_within_80_columns(folder: str) -> None:
    code, out, err = call("doctor", ROOT / "fixtures" / folder)

    assert code == (1 if folder == "damaged" else 0)
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80


def rendered(path: Path, *, terminal: bool, width: int = 80) -> str:
    found = examine(path)
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=width, color_system="standard" if terminal else None)
    print_doctor(build_doctor_view(found, judge(found)), console)
    return stream.getvalue()


def test_colour_on_a_terminal_only_and_never_with_no_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace().write(tmp_path / "rank0.json")
    monkeypatch.delenv("NO_COLOR", raising=False)
    colours = re.compile(r"\x1b\[(?:\d+;)*3[0-7]m")

    assert colours.search(rendered(tmp_path, terminal=True))
    assert "\x1b" not in rendered(tmp_path, terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours.search(rendered(tmp_path, terminal=True))


def test_names_from_a_trace_do_not_steer_the_terminal(tmp_path: Path) -> None:
    made = trace()
    made.kernel("evil\x1b[2J\x07[red]kernel[/red]", 600, 1000)
    made.write(tmp_path / "rank0.json")

    code, out, _ = call("doctor", tmp_path)

    assert code == 0
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[red]kernel[/red]" in out


def test_a_narrow_terminal_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace().write(tmp_path / "run" / "rank0.json")
    monkeypatch.chdir(tmp_path)

    narrow, wide = (rendered(Path("run"), terminal=False, width=width) for width in (50, 100))

    # The same words, wrapped otherwise, and no figure parted from its unit.
    assert narrow.split() == wide.split()
    assert not re.search(r"^\s*%", narrow, re.MULTILINE)


@pytest.mark.traces
def test_public_traces(public_traces: Path) -> None:
    """By their README: all 8 ranks of one step without group metadata; one rank of two with all of it."""
    dlrm, resnet = (examine(public_traces / name) for name in ("dlrm-8rank-v100", "ddp-resnet50-a100"))

    by_name = [{check.name: check for check in judge(found).checks} for found in (dlrm, resnet)]

    assert by_name[0]["ranks"].message == "all of them: ranks 0–7 of 8"
    assert by_name[0]["metadata"].message == "group and members known for 0 of 64 calls (0.0 %)"
    assert by_name[0]["steps"].message == "1 step marked, 0 steps with a known end"
    assert by_name[1]["ranks"].message == "1 of 2: rank 1 missing"
    assert by_name[1]["sizes"].message == "bytes known for all 21 calls"
    assert by_name[1]["launch links"].message == "all 3,774 device events linked to a launch"
