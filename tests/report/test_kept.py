"""JSON of commprof's own as an input: reports are compared, packed too; everything else is named for what it is."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.builders.command import call
from tests.builders.kineto import t0


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """What ``analyze --json`` wrote about T0."""
    path = tmp_path / "report.json"
    assert call("analyze", t0().write(tmp_path / "rank0.json"), "--no-html", "--json", path)[0] == 0
    return path


def test_packed_and_squeezed_reports_are_compared_like_others(report: Path, tmp_path: Path) -> None:
    packed, squeezed = tmp_path / "packed.json.gz", tmp_path / "squeezed.json"
    packed.write_bytes(gzip.compress(report.read_bytes()))
    squeezed.write_text(json.dumps(json.loads(report.read_text()), separators=(",", ":")))

    ended = [call("compare", base, new, "--no-html") for base, new in ((report, packed), (squeezed, report))]

    assert [(code, err) for code, _, err in ended] == [(0, ""), (0, "")]


@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_comparison_is_not_taken_for_a_run(ending: str, report: Path, tmp_path: Path) -> None:
    kept, given = tmp_path / "kept.json", tmp_path / f"given{ending}"
    assert call("compare", report, report, "--no-html", "--json", kept)[0] == 0
    given.write_bytes(gzip.compress(kept.read_bytes()) if ending.endswith(".gz") else kept.read_bytes())

    code, out, err = call("compare", report, given, "--no-html")

    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{given}: a comparison of commprof, not a report" in err


@pytest.mark.parametrize("verb", [["analyze", "--no-html"], ["check", "--no-html", "--max-exposed", "1"], ["doctor"]])
def test_a_report_is_not_taken_for_a_trace(verb: list[str], report: Path) -> None:
    code, out, err = call(*verb, report)

    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{report}: a report of commprof, not a trace" in err


def test_a_broken_packed_report_is_one_line(report: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json.gz"
    broken.write_bytes(gzip.compress(report.read_bytes())[:-400])

    code, out, err = call("compare", broken, report, "--no-html")

    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"{broken}: " in err
