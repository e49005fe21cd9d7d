"""From the profiler's local file to the capture folder."""

from __future__ import annotations

import errno
import gzip
import os
import threading
from pathlib import Path

import pytest

from commprof.capture import Capture
from commprof.capture.delivery import Delivery, deliver_trace, is_whole
from tests.capture.fake import FakeEngine, files_of, manifest_of, warnings_of


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    path = tmp_path / "raw.json"
    path.write_bytes(b'{"traceEvents": []}\n' * 1000)
    return path


def test_the_trace_is_compressed_and_the_raw_file_untouched(raw: Path, folder: Path) -> None:
    number = deliver_trace(raw, folder, 7)

    assert number == 1
    assert files_of(folder) == ["rank-00007.pt.trace.json.gz"]
    assert gzip.decompress((folder / "rank-00007.pt.trace.json.gz").read_bytes()) == raw.read_bytes()


def test_two_processes_with_one_rank_get_two_complete_files_c185(tmp_path: Path, folder: Path) -> None:
    # Both take the same name at the same moment: the second finds it taken only when it wants to have it.
    raws = [tmp_path / f"{i}.json" for i in range(8)]
    for i, path in enumerate(raws):
        path.write_bytes(b'{"process": %d}' % i)
    gate = threading.Barrier(len(raws))
    numbers: list[int] = []

    def deliver(path: Path) -> None:
        gate.wait()
        numbers.append(deliver_trace(path, folder, 0))

    threads = [threading.Thread(target=deliver, args=(path,)) for path in raws]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(numbers) == list(range(1, 9))
    contents = {gzip.decompress((folder / name).read_bytes()) for name in files_of(folder)}
    assert contents == {path.read_bytes() for path in raws}


def test_a_name_lost_to_another_process_between_look_and_claim(
    raw: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(source: Path, final: Path) -> None:
        if final.name == "rank-00000.pt.trace.json.gz" and not final.exists():
            final.write_bytes(b"another process")
        link(source, final)

    monkeypatch.setattr("os.link", late)

    assert deliver_trace(raw, folder, 0) == 2
    assert (folder / "rank-00000.pt.trace.json.gz").read_bytes() == b"another process"


def test_a_file_system_without_hard_links(raw: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr("os.link", refuse)

    assert deliver_trace(raw, folder, 0) == 1
    assert files_of(folder) == ["rank-00000.pt.trace.json.gz"]
    assert deliver_trace(raw, folder, 0) == 2


def test_a_disk_that_fills_up_leaves_nothing_c194(raw: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, target: object, length: int) -> None:
        target.write(b"half")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", refuse)

    with pytest.raises(OSError, match="No space left"):
        deliver_trace(raw, folder, 0)

    assert files_of(folder) == []
    assert raw.exists()


@pytest.mark.parametrize(
    ("content", "whole"), [(b'{"a": 1}', True), (b'{"a": 1}\n\n', True), (b'{"a": [1,', False), (b"", False)]
)
def test_whether_the_file_ends_as_json_ends(tmp_path: Path, content: bytes, whole: bool) -> None:
    (tmp_path / "x").write_bytes(content)

    assert is_whole(tmp_path / "x") is whole


def test_the_training_waits_only_so_long_c187() -> None:
    release, done = threading.Event(), threading.Event()

    def slow() -> None:
        release.wait(30)
        done.set()

    delivery = Delivery(limit_s=0.05)

    in_time = [delivery.run(slow), delivery.run(lambda: None)]
    release.set()

    assert in_time == [False, False]
    assert done.wait(30)
    assert delivery.run(lambda: None) is True


def test_an_error_of_the_job_comes_out() -> None:
    def broken() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        Delivery(limit_s=30).run(broken)


def test_a_slow_folder_is_one_warning_with_the_local_file_c187(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    original = os.link

    def slow(source: Path, final: Path) -> None:
        release.wait(30)
        original(source, final)

    monkeypatch.setattr("os.link", slow)
    engine = FakeEngine()
    capture = Capture(folder, write_limit_s=0.05, _engine=engine)

    with capture:
        for _ in range(10):
            capture.step()

    warnings = warnings_of(caplog)
    assert len(warnings) == 1
    local = Path(warnings[0].rpartition("the trace is ")[2])
    assert local.read_bytes() == engine.content
    assert not (folder / "rank-00000.pt.trace.json.gz").exists()
    release.set()
    for thread in threading.enumerate():
        if thread.name == "commprof-delivery":
            thread.join(30)
    assert manifest_of(folder)["trace"] == "rank-00000.pt.trace.json.gz"
    assert not local.exists()
