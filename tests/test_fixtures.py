"""The fixtures: made by one command, and read as their hand-derived truth says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.conftest import ROOT
from tests.oracle.identities import check_identities

FOLDERS = sorted(path.parent for path in (ROOT / "fixtures").glob("*/truth.json"))
fixtures = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def test_make_writes_the_same_bytes_again() -> None:
    command = [sys.executable, str(ROOT / "fixtures" / "make.py"), "--check"]

    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (result.returncode, result.stdout) == (0, "")


def test_every_fixture_has_a_truth_and_a_provenance_line() -> None:
    readme = (ROOT / "fixtures" / "README.md").read_text()

    folders = sorted(path.name for path in (ROOT / "fixtures").iterdir() if path.is_dir() and "__" not in path.name)

    assert folders == [folder.name for folder in FOLDERS]
    sections = {part.split("\n", 1)[0]: part for part in readme.split("\n## ")[1:]}
    assert sorted(sections) == folders
    assert all("Provenance: " in part for part in sections.values())


@fixtures
def test_report_of_a_fixture_is_its_truth(folder: Path, run_analyze: Callable[..., Run]) -> None:
    truth = json.loads((folder / "truth.json").read_text())

    run = run_analyze(_capture(folder))

    assert run.code == truth["exit_code"], run.stderr
    for key in ("input", "ranks", "coverage"):
        _holds(run.report[key], truth.get(key, type(run.report[key])()), key)
    _holds(_in_order(run.report["collectives"]), _in_order(truth["collectives"]), "collectives")
    assert set(truth.get("notes", [])) <= {note["code"] for note in run.report["notes"]}
    for wanted in truth.get("waits", []):
        calls = [c for c in run.report["collectives"] if all(c[k] == wanted[k] for k in ("rank", "size_bytes"))]
        assert calls
        for call in (call for call in calls if call["wait_ns"] is not None):
            _holds(call, wanted, "waits")


@fixtures
def test_identities_hold_on_a_fixture(folder: Path, run_analyze: Callable[..., Run]) -> None:
    run = run_analyze(_capture(folder))

    check_identities(run.report)


def _capture(folder: Path) -> Path | list[Path]:
    """The trace files of a fixture: its truth lies beside them and is no trace."""
    files = sorted(folder.glob("rank*"))
    return files if len(files) > 1 else files[0]


def _in_order(calls: list[Any]) -> list[Any]:
    return sorted(calls, key=lambda call: (call.get("rank", 0), call["start_ns"], call.get("stream", 0)))


def _holds(got: Any, wanted: Any, where: str) -> None:
    """Every key of ``wanted`` has the same value in ``got``; other keys of ``got`` are free."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            _holds(got[key], value, f"{where}.{key}")
    elif isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        assert len(got) == len(wanted), where
        for place, (one, other) in enumerate(zip(got, wanted, strict=True)):
            _holds(one, other, f"{where}[{place}]")
    else:
        assert got == wanted, where
