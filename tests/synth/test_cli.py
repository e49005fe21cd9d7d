"""``commprof synth`` from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from commprof.cli.synth import synth
from commprof.errors import CommprofError, UsageError
from commprof.synth import FAULTS, PRESETS, Fault, parse_fault, preset


def call(*arguments: str) -> int:
    app = typer.Typer()
    app.command()(synth)
    return int(app(list(arguments), standalone_mode=False) or 0)


def test_a_run_is_written_with_its_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"

    call(
        "fsdp", "-o", str(folder), "--ranks", "2", "--seed", "7", "--steps", "2", "--fault", "slow-gpu:1:300", "--real"
    )

    truth = json.loads((folder / "truth.json").read_text())
    assert sorted(p.name for p in folder.iterdir()) == ["rank0.json.gz", "rank1.json.gz", "truth.json"]
    assert (truth["world_size"], truth["seed"], truth["model"]) == (2, 7, "real")
    assert truth["faults"][0]["straggler"] == {"rank": 1, "host": 0, "cause": "slow-device", "kind": "persistent"}
    assert "2 traces" in capsys.readouterr().out


def test_calls_can_be_left_out_of_the_truth(tmp_path: Path) -> None:
    call("ddp", "-o", str(tmp_path / "run"), "--no-calls", "--steps", "2")

    rank = json.loads((tmp_path / "run" / "truth.json").read_text())["ranks"][0]
    assert rank["calls"] is None
    assert len(rank["steps"]) == 2


def test_scenarios_can_be_listed_and_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call("list")
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(PRESETS)
    assert "tp+pp+ddp on 8 ranks" in next(line for line in listed if line.startswith("tp-pp-dp"))

    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"name": "mine", "strategy": "zero3", "steps": 2, "layers": 2}))
    call(str(path), "-o", str(tmp_path / "run"))

    assert json.loads((tmp_path / "run" / "truth.json").read_text())["strategy"]["parts"] == ["zero3"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing-of-the-kind", "-o", "x"),
        ("ddp",),
        ("tp", "-o", "x", "--ranks", "3"),
        ("ddp", "-o", "x", "--fault", "gremlins"),
        ("ddp", "-o", "x", "--fault", "slow-gpu:one"),
        ("ddp", "-o", "x", "--fault", "slow-gpu:9"),
        ("ddp", "-o", "x", "--fault", "slow-link"),
        ("missing.json", "-o", "x"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: tuple[str, ...], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(CommprofError) as caught:
        call(*arguments)

    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "x").exists()


def test_faults_as_text() -> None:
    assert parse_fault("host-pause") == Fault("host-pause", None, 5_000_000)
    assert parse_fault("slow-gpu:3") == Fault("slow-gpu", 3, 200)
    assert parse_fault("loader-stall:all:7") == Fault("loader-stall", None, 7)
    with pytest.raises(UsageError):
        parse_fault("slow-gpu:1:2:3")


def test_every_kind_of_fault_has_a_scenario_of_its_name() -> None:
    assert {fault.kind for name in FAULTS for fault in preset(name).faults} == set(FAULTS)
