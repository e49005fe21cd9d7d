"""SIGTERM inside the window, in real processes with a fake profiler."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.fake import files_of, manifest_of
from tests.capture.real import ROOT

MANIFEST, TRACE = "rank-00000.manifest.json", "rank-00000.pt.trace.json.gz"

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals as on Linux")


def run(kind: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.capture.term_script", kind, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_what_is_there_is_written_and_the_signal_ends_the_process(folder: Path) -> None:
    done = run("plain", folder)

    assert done.returncode == -signal.SIGTERM
    assert "Traceback" not in done.stderr
    assert files_of(folder) == [MANIFEST, TRACE]
    manifest = manifest_of(folder)
    assert (manifest["partial"], manifest["reason"]) == (True, "SIGTERM in step 6")
    assert (manifest["recorded_steps"], manifest["cut_step"]) == (["ProfilerStep#5"], "ProfilerStep#6")


def test_a_rank_that_is_stuck_outside_python_ends_too_and_leaves_its_trace(folder: Path) -> None:
    done = run("stuck", folder)

    assert done.returncode == -signal.SIGTERM
    assert files_of(folder) == [MANIFEST, TRACE]
    assert manifest_of(folder)["reason"] == "SIGTERM in step 6"


def test_a_signal_while_the_trace_is_written_waits_for_it(folder: Path) -> None:
    done = run("while writing", folder)

    assert done.returncode == -signal.SIGTERM
    assert files_of(folder) == [MANIFEST, TRACE]
    assert manifest_of(folder)["partial"] is False
    assert "loop over" not in done.stdout


def test_a_handler_of_the_program_is_left_alone(folder: Path) -> None:
    done = run("own handler", folder)

    assert done.returncode == 0
    assert done.stdout.splitlines() == ["own handler", "loop over"]
    assert manifest_of(folder)["partial"] is False


def test_a_forked_child_dies_alone(folder: Path) -> None:
    done = run("child", folder)

    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"child {int(signal.SIGTERM)}", "loop over"]
    assert manifest_of(folder)["partial"] is False
