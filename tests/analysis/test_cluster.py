"""Ranks that the workers of a Dask scheduler read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from commprof.analysis.cluster import _refuse_others
from commprof.cli.app import main
from commprof.errors import InputRefused
from commprof.version import __version__

FIXTURE = Path(__file__).parents[2] / "fixtures" / "ddp-two-ranks"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Address of a scheduler with one worker, both in this process."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None, protocol="tcp"
    ) as running:
        yield running.scheduler_address


def test_a_cluster_gives_the_report_that_one_process_gives(cluster: str, tmp_path: Path) -> None:
    # Given a folder with two ranks and a scheduler.
    here, there = tmp_path / "here.json", tmp_path / "there.json"

    # When it is analysed in this process and on the cluster.
    codes = [
        main(["analyze", str(FIXTURE), "--no-html", "--json", str(here), "--jobs", "1"]),
        main(["analyze", str(FIXTURE), "--no-html", "--json", str(there), "--scheduler", cluster]),
    ]

    # Then both reports say the same.
    assert codes == [0, 0]
    one, other = (json.loads(path.read_text()) for path in (here, there))
    assert one == other


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
def test_an_address_without_a_scheduler_is_one_line(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given an address at which nothing listens, and one that is none.
    monkeypatch.setattr("commprof.analysis.cluster._CONNECT_S", 1)

    # When ranks are to be read there.
    code = main(["analyze", str(FIXTURE), "--no-html", "--scheduler", address])

    # Then one line says so, with how an address looks.
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert f"no Dask scheduler at {address}" in line
    assert "tcp://HOST:8786" in line


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({}, "no workers"),
        ({"tcp://a:1": __version__, "tcp://b:1": "0.0.1"}, "tcp://b:1 has commprof 0.0.1"),
        ({"tcp://a:1": ImportError("No module named 'commprof'")}, "tcp://a:1 has no commprof"),
    ],
)
def test_workers_that_would_not_give_the_same_answer_are_refused(versions: dict[str, object], told: str) -> None:
    with pytest.raises(InputRefused, match=told):
        _refuse_others(versions)


def test_workers_with_this_version_are_taken() -> None:
    _refuse_others({"tcp://a:1": __version__, "tcp://b:1": __version__})
