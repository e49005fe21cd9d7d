"""``commprof run``: a script that nobody changed, captured by its optimizer steps."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from commprof.cli.app import main
from commprof.cli.run import run_environment
from commprof.manifest import read_manifests
from tests.capture.fake import files_of
from tests.capture.real import names_in, trace_of
from tests.conftest import ROOT

SCRIPT = str(Path(__file__).parent / "scripts" / "train_plain.py")

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def command(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if k not in {"RANK", "LOCAL_RANK", "WORLD_SIZE"}}
    return subprocess.run(
        [sys.executable, "-m", "commprof", "run", *arguments],
        cwd=ROOT,
        env={**variables, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("torchrun") / "run"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return folder, command("-o", str(folder), "--skip", "2", "--steps", "2", "--", *launcher, SCRIPT, "8")


@pytest.mark.torch
@needs_torch
def test_every_rank_is_captured(torchrun: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = torchrun

    assert done.stdout.count("trained") == 2
    assert done.returncode == 1  # torchrun's own, for ranks that end with 5
    assert done.stderr.count("commprof: captured to") == 1
    manifests = read_manifests(folder)
    assert [(m.rank, m.world_size, m.partial, m.step_source) for m in manifests] == [
        (0, 2, False, "optimizer"),
        (1, 2, False, "optimizer"),
    ]
    # The first optimizer step is step 0; skip 2 and warm-up 1 lead to steps 3 and 4.
    assert [m.recorded_steps for m in manifests] == [("ProfilerStep#3", "ProfilerStep#4")] * 2
    assert [m.steps.first for m in manifests] == [1, 1]
    assert [len(m.steps.duration_ns) for m in manifests] == [7, 7]


@pytest.mark.torch
@needs_torch
def test_model_and_buckets_are_found_without_being_named(
    torchrun: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    elements = 32 * 64 + 64 + 64 + 1
    for manifest in read_manifests(torchrun[0]):
        assert manifest.parameters is not None
        assert manifest.parameters.by_dtype == {"float32": elements}
        assert sum(bucket.size_bytes for bucket in manifest.ddp[0].buckets) == 4 * elements
        assert [(o.name, o.count) for o in manifest.optimizers] == [("AdamW", elements)]


@pytest.mark.torch
@needs_torch
def test_a_step_holds_its_optimizer_and_both_micro_batches(
    torchrun: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    trace = trace_of(torchrun[0])
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    step = next(e for e in events if e["name"] == "ProfilerStep#3")

    inside = names_in(
        {"traceEvents": [e for e in events if step["ts"] <= e["ts"] and e["ts"] + e["dur"] <= step["ts"] + step["dur"]]}
    )

    assert inside.count("Optimizer.step#AdamW.step") == 1
    assert inside.count("DistributedDataParallel.forward") == 2


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(0)", 0), ("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_exit_code_is_the_command_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], code: str, expected: int
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["run", "--", sys.executable, "-c", code]) == expected

    said = capfd.readouterr().err
    assert said.count("commprof:") == 1
    assert "nothing was captured to runs/run" in said
    assert (f"the command ended with {expected}" in said) == (expected != 0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "no-such-command-at-all"], "no such command"),
        (["--ranks", "some", "--", "true"], "ranks='some'"),
        (["--slow-step", "0.5", "--", "true"], "slow_step"),
        (["-o", "s3://bucket/run", "--", "true"], "is a URL"),
        ([], "command"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["run", *arguments]) == 2

    said = capfd.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1
    assert files_of(tmp_path) == []


def test_a_sitecustomize_of_the_user_runs_too(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('mine', 'torch' in sys.modules)\n")
    environment = run_environment({"out": str(tmp_path / "run")}, {**os.environ, "PYTHONPATH": str(tmp_path)})

    done = subprocess.run(
        [sys.executable, "-c", "import sitecustomize, sys; print(sitecustomize.__file__, 'torch' in sys.modules)"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == ["mine False", f"{tmp_path / 'sitecustomize.py'} False"]
    assert done.stderr == ""


def test_an_option_that_the_hook_refuses_costs_the_program_nothing(tmp_path: Path) -> None:
    environment = run_environment({}, dict(os.environ))
    environment["COMMPROF_RUN"] = "{"

    done = subprocess.run(
        [sys.executable, "-c", "print('runs')"], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "runs\n"
    assert "is not captured" in done.stderr


def test_options_reach_the_processes(tmp_path: Path) -> None:
    environment = run_environment({"out": "x", "ranks": [0, 3]}, {"HOME": "h"})

    assert json.loads(environment["COMMPROF_RUN"]) == {"out": "x", "ranks": [0, 3]}
    assert environment["HOME"] == "h"
