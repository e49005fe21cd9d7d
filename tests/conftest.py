"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run, analyze
from tests.oracle.identities import check_identities

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def run_analyze(tmp_path: Path) -> Callable[..., Run]:
    """``run_analyze(PATH or [PATHS], *options)``: exit code, report, standard output and standard error.

    Whatever the test is about, the accounting identities must hold in its report.
    """

    def run(paths: Path | list[Path], *options: str | Path) -> Run:
        out = tmp_path / "out"
        out.mkdir(exist_ok=True)
        result = analyze(paths, out / "report.json", *options)
        if result.report is not None:
            check_identities(result.report)
        return result

    return run


def traces_folder() -> Path | None:
    """The public traces: the folder that COMMPROF_TRACES names, else ``../shared/traces`` beside the checkout."""
    named = os.environ.get("COMMPROF_TRACES")
    places = [Path(named)] if named else []
    places.append(ROOT.parent / "shared" / "traces")
    return next((place for place in places if place.is_dir()), None)


@pytest.fixture(scope="session")
def public_traces() -> Path:
    """The folder of public traces, or a skipped test where there is none."""
    folder = traces_folder()
    if folder is None:
        pytest.skip("no folder of public traces (COMMPROF_TRACES)")
    return folder
