"""The README tells the truth: its commands run, its code runs, its options exist."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.command import call
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Code blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def command(marker: str) -> str:
    """The command that stands under a marker; the same lines are run by ``.ci/run``."""
    match = re.search(rf"<!-- command: {marker} -->\n```sh\n(python3 .*)\n```", README)
    assert match is not None
    return match[1]


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Captures where the README has them: ``runs/mine`` and ``runs/before``."""
    target = tmp_path / "runs" / "mine"
    target.mkdir(parents=True)
    for source in (ROOT / "fixtures" / "ddp-two-ranks").iterdir():
        (target / source.name).write_bytes(source.read_bytes())
    shutil.copytree(target, tmp_path / "runs" / "before")
    (tmp_path / "trace.json.gz").write_bytes(next(iter(sorted(target.glob("*rank0*")))).read_bytes())
    return tmp_path


def commprof_lines() -> list[str]:
    lines = [line.partition("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("commprof ")]


@pytest.mark.parametrize("line", commprof_lines())
def test_every_command_of_the_readme_runs(line: str, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line)[1:]
    monkeypatch.chdir(capture)

    code, _, errors = call(*words)

    # doctor ends with 1 when it finds something to complain about, and says what.
    assert code in ((0, 1) if words[0] == "doctor" else (0,)), errors
    assert "Traceback" not in errors


def test_the_python_of_the_readme_runs(capture: Path) -> None:
    (code,) = [block for block in blocks("python") if "analyze" in block]

    run = subprocess.run([sys.executable, "-c", code], cwd=capture, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()
    assert (capture / "report.html").exists()
    assert (capture / "report.json").exists()


@pytest.mark.torch
def test_the_three_lines_of_the_readme_capture_a_loop(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (code,) = [block for block in blocks("python") if "Capture" in block]
    loop = (
        "import torch\nmodel = torch.nn.Linear(4, 4)\nloader = [torch.randn(2, 4)] * 12\n"
        "def train_step(batch): model(batch).sum().backward()\n"
    )

    run = subprocess.run([sys.executable, "-c", loop + code], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in (tmp_path / "runs" / "mine").iterdir()) == [
        "rank-00000.manifest.json",
        "rank-00000.pt.trace.json.gz",
    ]


def test_ci_runs_the_two_commands_with_their_set_up() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    for marker in ("demo", "tests"):
        assert command(marker).startswith("python3 -m venv .venv && .venv/bin/pip install")
        assert f"readme_command {marker}" in ci


def test_every_file_that_the_readme_shows_is_there() -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", README):
        assert (ROOT / target).is_file(), target


def test_every_module_that_the_readme_points_to_is_there() -> None:
    table = README.partition("| to change | look in `commprof/` |")[2].partition("\n\n")[0]
    places = re.findall(r"`([a-z_/]+(?:\.py)?)`", table)

    assert len(places) > 12
    assert [place for place in places if not (ROOT / "commprof" / place).exists()] == []


def test_every_option_that_the_readme_names_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    names = set(re.findall(r"`(--[a-z-]+)", README)) | {
        word for line in commprof_lines() for word in shlex.split(line) if word.startswith("--")
    }

    texts = [call(verb, "--help")[1] for verb in ("analyze", "demo", "doctor", "check", "compare", "run", "synth")]

    assert {name for name in names if not any(name in text for text in texts)} == set()
