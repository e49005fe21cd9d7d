"""``commprof demo`` as a person runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commprof.cli.app import main
from commprof.cli.demo import demo
from tests.builders.command import analyze
from tests.capture.jobs import volumes

with_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
ROOT = Path(__file__).resolve().parent.parent.parent


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Standard error, which must be one line; nothing on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_without_torch_it_says_how_to_get_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find_spec(name))

    code = main(["demo"])

    assert code == 2
    assert 'pip install "commprof[torch]"' in one_line(capsys)
    assert list(here.iterdir()) == []


@pytest.mark.torch
@with_torch
def test_a_folder_with_something_in_it_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("keep")

    code = main(["demo", "--out", "mine"])

    assert code == 2
    assert "mine" in one_line(capsys)
    assert [p.name for p in (here / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("ranks", ["1", "0", "two"])
def test_fewer_than_two_ranks_are_refused(here: Path, capsys: pytest.CaptureFixture[str], ranks: str) -> None:
    code = main(["demo", "--ranks", ranks])

    assert code == 2
    assert "--ranks" in one_line(capsys)


@pytest.mark.torch
@with_torch
def test_a_training_process_that_fails_is_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuchinterface0")

    code = main(["demo"])

    (line,) = capsys.readouterr().err.splitlines()
    assert code == 4
    assert line.startswith("commprof: rank ")
    assert "of 2 failed" in line


@pytest.mark.torch
@with_torch
def test_the_demo_trains_captures_and_reports(here: Path) -> None:
    ranks = 3  # not what it is by default, which CI runs as the README has it

    done = subprocess.run(
        [sys.executable, "-c", "from commprof.cli.app import run; run()", "demo", "--ranks", str(ranks)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    # Ends with the path of the report and the verdict in one sentence; no progress bar where nobody looks.
    *_, path, verdict = done.stdout.splitlines()
    assert path == f"Report: {Path('reports') / 'demo.html'}"
    assert verdict.endswith(".")
    assert done.stderr == ""
    assert (here / "reports" / "demo.html").stat().st_size > 0
    manifests = [json.loads(p.read_text()) for p in sorted((here / "runs" / "demo").glob("*.manifest.json"))]
    assert [m["rank"] for m in manifests] == list(range(ranks))
    for manifest in manifests:
        assert manifest["recorded_steps"] == [f"ProfilerStep#{i}" for i in (5, 6, 7, 8)]
        assert manifest["partial"] is False
        assert {bucket["layout"] for bucket in manifest["ddp"][0]["buckets"]} == {"rebuilt"}
        assert len(manifest["ddp"][0]["buckets"]) >= 5
    strategy = analyze(here / "runs" / "demo", here / "report.json").report["strategy"]
    assert strategy["name"] == "ddp"
    assert strategy["measured_bytes_per_step"] == pytest.approx(float(volumes.ddp(ranks)), abs=1)


def test_the_next_demo_takes_the_next_folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("commprof.cli.demo._train", lambda folder, job, ranks: used.append(str(folder)))
    monkeypatch.setattr("commprof.cli.demo._report", lambda folder: 0)

    demo(ranks=2, out=None)
    (here / "runs" / "demo").mkdir(parents=True)
    demo(ranks=2, out=None)
    (here / "runs" / "demo-2").mkdir()
    demo(ranks=2, out=None)
    demo(strategy="tp", out=None)

    assert [Path(folder).name for folder in used] == ["demo", "demo-2", "demo-3", "demo-tp"]


@pytest.mark.parametrize(
    ("arguments", "ranks", "said"),
    [
        (["--strategy", "hsdp"], 4, "hybrid FSDP2, 2 replicas"),
        (["--strategy", "hsdp", "--ranks", "8"], 8, "hybrid FSDP2, 2 replicas"),
        (["--strategy", "zero1"], 2, "ZeRO-1 (ZeroRedundancyOptimizer)"),
        (["--strategy", "pp", "--ranks", "3"], 3, "pipeline parallelism"),
        (["--strategy", "pp-dp"], 4, "pipelines in 2 replicas under DDP"),
    ],
)
def test_it_says_what_it_trains_and_on_how_many_processes(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    ranks: int,
    said: str,
) -> None:
    used: list[int] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("commprof.cli.demo._train", lambda folder, job, ranks: used.append(ranks))
    monkeypatch.setattr("commprof.cli.demo._report", lambda folder: 0)

    code = main(["demo", *arguments])

    assert code == 0
    assert used == [ranks]
    assert capsys.readouterr().out.splitlines() == [f"Training a small transformer on {ranks} processes: {said}"]


@pytest.mark.parametrize(
    ("installed", "said"), [(True, "DeepSpeed"), (False, "FSDP1 SHARD_GRAD_OP, DeepSpeed is not installed")]
)
def test_zero2_says_by_what_it_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], installed: bool, said: str
) -> None:
    used: list[tuple[str, ...]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if installed or name != "deepspeed" else None)
    monkeypatch.setattr("commprof.cli.demo._train", lambda folder, job, ranks: used.append(job.command))
    monkeypatch.setattr("commprof.cli.demo._report", lambda folder: 0)

    main(["demo", "--strategy", "zero2"])

    assert f"ZeRO-2 ({said})" in capsys.readouterr().out
    assert used[0][-2:] == ("--engine", "deepspeed" if installed else "fsdp1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--strategy", "ddpp"],
        ["--strategy", "hsdp", "--ranks", "2"],
        ["--strategy", "hsdp", "--ranks", "5"],
        ["--strategy", "tp", "--ranks", "3"],
        ["--strategy", "pp", "--ranks", "8"],
        ["--strategy", "pp-dp", "--ranks", "5"],
    ],
)
def test_a_strategy_or_a_number_of_ranks_that_does_not_fit_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())

    code = main(["demo", *arguments])

    assert code == 2
    assert arguments[-1] in one_line(capsys)
    assert list(here.iterdir()) == []


def test_the_command_line_imports_no_torch() -> None:
    code = "import sys, commprof.cli.demo; print([m for m in ('torch', 'pandas', 'plotly') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "[]"
