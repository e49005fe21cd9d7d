"""Which files are meant: links that lead nowhere, one file under two names, archives."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from commprof.errors import InputRefused
from commprof.trace.discover import find_candidates
from tests.builders.command import analyze, call
from tests.builders.kineto import t0


def test_links_that_lead_nowhere_are_counted_and_listed(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    t0().write(runs / "rank0.json")
    for rank in (1, 2):
        (runs / f"rank{rank}.json").symlink_to(tmp_path / "moved" / f"rank{rank}.json")

    run = analyze(runs, tmp_path / "out.json")
    doctor = call("doctor", runs)[1]

    assert run.code == 0
    assert "2 links lead nowhere and were left out: rank1.json, rank2.json" in run.stderr
    assert run.report["input"]["ignored"] == [
        {"path": f"rank{rank}.json", "reason": "a link that leads nowhere"} for rank in (1, 2)
    ]
    assert "a link that leads nowhere" in doctor


def test_a_folder_of_dead_links_alone_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rank0.json").symlink_to(tmp_path / "moved.json")

    with pytest.raises(InputRefused, match=r"rank0\.json is a link that leads nowhere"):
        find_candidates([str(tmp_path / "runs")])


@pytest.mark.parametrize(
    "given",
    [
        ["runs/*", "runs/a/rank0.json"],
        ["runs/**/*"],
        ["runs/a/*.json", "runs/../runs/a/rank0.json"],
        ["runs"],
    ],
)
def test_one_file_under_several_names_is_read_once(
    given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The folder twice, by itself and as "latest"; the file too, as "first.json" beside it.
    monkeypatch.chdir(tmp_path)
    t0().write(tmp_path / "runs" / "a" / "rank0.json")
    (tmp_path / "runs" / "latest").symlink_to("a")
    (tmp_path / "runs" / "a" / "first.json").symlink_to("rank0.json")

    found = find_candidates(given)

    assert len(found) == 1
    assert Path(found[0].path).resolve() == tmp_path / "runs" / "a" / "rank0.json"


def test_links_from_elsewhere_are_files_of_their_own(tmp_path: Path) -> None:
    store = t0().write(tmp_path / "store" / "0123.json")
    for name in ("rank0.json", "rank1.json"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / "runs" / name).symlink_to(store)

    assert [Path(it.path).name for it in find_candidates([str(tmp_path / "runs")])] == ["rank0.json", "rank1.json"]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("named", [True, False])
def test_an_archive_of_traces_is_to_be_unpacked(mode: str, named: bool, tmp_path: Path) -> None:
    text = t0().text("compact").encode()
    entry = tarfile.TarInfo("runs/rank0.json")
    entry.size = len(text)
    path = tmp_path / "in" / "runs.tar"
    path.parent.mkdir()
    with tarfile.open(path, mode) as archive:
        archive.addfile(entry, io.BytesIO(text))

    code, _, errors = call("analyze", path if named else path.parent, "--no-html")

    assert code == 2
    assert len(errors.splitlines()) == 1
    assert "a tar archive" in errors
    assert "binary" not in errors
    assert "unpack it and give the folder" in errors


def test_an_archive_beside_traces_is_listed(tmp_path: Path) -> None:
    t0().write(tmp_path / "runs" / "rank0.json")
    with tarfile.open(tmp_path / "runs" / "all.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "runs" / "rank0.json", "rank0.json")

    run = analyze(tmp_path / "runs", tmp_path / "out.json")

    assert run.code == 0
    assert run.report["input"]["ignored"] == [{"path": "all.tar.gz", "reason": "a tar archive"}]


@pytest.mark.parametrize("verb", [["analyze"], ["doctor"], ["check", "--max-exposed", "5%"]])
def test_a_pipe_is_one_line_that_says_so(verb: list[str], tmp_path: Path) -> None:
    # Nobody writes to it: whoever opened it would wait for ever.
    os.mkfifo(tmp_path / "rank0.json")

    code, out, err = call(*verb, tmp_path / "rank0.json")

    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.endswith("rank0.json: is a pipe, not a file (write what comes from it to a file and give that)")


def test_a_pipe_in_a_folder_is_passed_over(tmp_path: Path) -> None:
    t0().write(tmp_path / "rank0.json")
    os.mkfifo(tmp_path / "rank1.json")

    found = find_candidates([str(tmp_path)])

    assert [candidate.display for candidate in found] == ["rank0.json"]


def test_a_device_is_no_file() -> None:
    with pytest.raises(InputRefused, match="is a device, not a file"):
        find_candidates([os.devnull])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('XFileSystem requires "requests" and "aiohttp" to be installed', "(pip install requests aiohttp)"),
        ("Please install gcsfs to access Google Storage", "(pip install gcsfs)"),
        ("Install the requests package to use the github FS", "(pip install requests)"),
        ("something is missing", "something is missing (install the package that it names)"),
    ],
)
def test_a_url_whose_package_is_missing_says_what_to_install(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(url: str) -> None:
        raise ImportError(words)

    monkeypatch.setattr("fsspec.url_to_fs", missing)

    with pytest.raises(InputRefused) as refused:
        find_candidates(["http://localhost/rank0.json"])

    assert str(refused.value).startswith("http://localhost/rank0.json: ")
    assert str(refused.value).endswith(said)


def test_a_pattern_that_matches_nothing_is_answered_with_a_name_that_would(tmp_path: Path) -> None:
    (tmp_path / "rank0.json").write_text("{}")

    with pytest.raises(InputRefused, match=r"no file matches 'zzz' \(--only is a glob .*'rank0.json'\)"):
        find_candidates([str(tmp_path)], only="zzz")
