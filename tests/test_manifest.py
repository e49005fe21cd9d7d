"""The file format between capture and analysis."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commprof.errors import InputRefused
from commprof.manifest import (
    Bucket,
    Clock,
    DdpModule,
    FlightEntry,
    Manifest,
    ProcessGroup,
    StepTimes,
    manifest_name,
    read_manifest,
    read_manifests,
    trace_name,
    write_manifest,
)

MINIMAL = {
    "format": "commprof.capture",
    "version": 1,
    "rank": 0,
    "rank_source": "default",
    "world_size": 1,
    "host": "h",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def full(rank: int = 3) -> Manifest:
    return Manifest(
        rank=rank,
        rank_source="process group",
        world_size=4,
        host="node-7",
        local_rank=1,
        pid=4711,
        trace=trace_name(rank),
        partial=True,
        reason="KeyboardInterrupt in step 7",
        recorded_steps=("ProfilerStep#5", "ProfilerStep#6"),
        cut_step="ProfilerStep#7",
        clock=Clock(start_ns=1_700_000_000_000_000_001, stop_ns=1_700_000_000_900_000_003),
        steps=StepTimes(start_ns=tuple(range(0, 900, 100)), duration_ns=(90, 80, 10, 30, 20, 50, 60, 40, 20)),
        export_ns=123,
        backend="nccl",
        groups=(ProcessGroup(name="0", description='a "b" \\ ü\n', backend="cpu:gloo", ranks=(0, 1, 2, 3)),),
        ddp=(
            DdpModule(
                module="Net",
                buckets=(Bucket(index=0, size_bytes=4096, parameters=("a.weight", "b"), layout="rebuilt"),),
                options={"bucket_cap_bytes": 26214400, "comm_hook": "f"},
            ),
        ),
        environment={"NCCL_ALGO": "Ring"},
        cores=16,
        flight=(FlightEntry(group="0", seq=7, name="gloo:all_reduce", created_ns=5, input_sizes=((2, 3), ())),),
        notes=("NCCL version not read: E",),
    )


def test_names_hold_the_rank() -> None:
    assert trace_name(3) == "rank-00003.pt.trace.json.gz"
    assert manifest_name(3) == "rank-00003.manifest.json"
    assert manifest_name(123456, 2) == "rank-123456.2.manifest.json"


def test_what_is_written_is_read(folder: Path) -> None:
    path = write_manifest(folder, full())

    assert path == folder / "rank-00003.manifest.json"
    assert read_manifest(path) == full()
    assert [p.name for p in folder.iterdir()] == [path.name]


@settings(max_examples=50, deadline=None)
@given(
    description=st.text(), environment=st.dictionaries(st.text(), st.text(), max_size=3), ns=st.integers(0, 2**63 - 1)
)
def test_any_text_and_any_time_survive(
    tmp_path_factory: pytest.TempPathFactory, description: str, environment: dict[str, str], ns: int
) -> None:
    manifest = Manifest(
        rank=0,
        rank_source="default",
        world_size=1,
        host="h",
        groups=(ProcessGroup(name="0", description=description),),
        environment=environment,
        clock=Clock(start_ns=ns),
    )

    path = write_manifest(tmp_path_factory.mktemp("any"), manifest)

    assert read_manifest(path) == manifest


def test_the_file_is_strict_json_with_format_and_version(folder: Path) -> None:
    write_manifest(folder, full())

    loaded = json.loads((folder / "rank-00003.manifest.json").read_text(encoding="utf-8"))

    assert (loaded["format"], loaded["version"]) == ("commprof.capture", 1)
    assert loaded["groups"][0]["description"] == 'a "b" \\ ü\n'
    assert loaded["ddp"][0]["buckets"][0] == {
        "index": 0,
        "size_bytes": 4096,
        "parameters": ["a.weight", "b"],
        "layout": "rebuilt",
    }


def test_a_folder_is_read_in_order_of_rank(folder: Path) -> None:
    for rank in (11, 2, 0):
        write_manifest(folder, full(rank))
    write_manifest(folder, full(2), number=2)
    (folder / ".rank-00005.manifest.json.abc.tmp").write_text("half")
    (folder / "notes.txt").write_text("mine")

    assert [manifest.rank for manifest in read_manifests(folder)] == [0, 2, 2, 11]


def test_a_folder_without_manifests_is_empty_and_one_that_is_not_there_refused(folder: Path) -> None:
    assert read_manifests(folder) == []
    with pytest.raises(InputRefused, match="no such folder"):
        read_manifests(folder / "nowhere")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not a manifest"),
        (b"{", "not a manifest"),
        (b"[1, 2]", "not a manifest"),
        (b"\xff\xfe", "not a manifest"),
        (b"{}", "format is ''"),
        (b'{"traceEvents": []}', "format is ''"),
        (json.dumps({**MINIMAL, "format": "other"}).encode(), "format is 'other'"),
        (json.dumps({**MINIMAL, "version": 2}).encode(), "version 2 of commprof.capture is unknown"),
        (json.dumps({**MINIMAL, "version": "1"}).encode(), "not a manifest"),
        (json.dumps({**MINIMAL, "rank": "zero"}).encode(), "broken manifest"),
        (json.dumps({k: v for k, v in MINIMAL.items() if k != "rank"}).encode(), "broken manifest"),
        (json.dumps({**MINIMAL, "rank_source": "guess"}).encode(), "broken manifest"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused_in_one_line(folder: Path, content: bytes, words: str) -> None:
    (folder / "rank-00000.manifest.json").write_bytes(content)

    with pytest.raises(InputRefused, match=words) as refused:
        read_manifests(folder)

    assert "rank-00000.manifest.json" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_fields_of_a_later_release_are_ignored(folder: Path) -> None:
    (folder / "rank-00000.manifest.json").write_text(json.dumps({**MINIMAL, "mesh_names": ["dp"]}))

    (manifest,) = read_manifests(folder)

    assert manifest.rank == 0
    assert manifest.trace is None


def test_medians_of_profiled_and_unprofiled_steps() -> None:
    # Recorded: steps 5 and 6 with 50 and 60. Outside: 2, 3, 4, 8 with 10 30 20 20; 0 and 1 settle, 7 is cut.
    manifest = full()

    assert manifest.recorded_indices == (5, 6)
    assert manifest.profiled_step_ns == 55
    assert manifest.unprofiled_step_ns == 20


def test_medians_without_steps_are_null() -> None:
    manifest = Manifest(rank=0, rank_source="default", world_size=1, host="h")

    assert (manifest.profiled_step_ns, manifest.unprofiled_step_ns) == (None, None)


def test_a_failed_write_leaves_the_old_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_manifest(folder, full())
    before = path.read_bytes()

    def refuse(*args: object) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("os.replace", refuse)
    with pytest.raises(OSError, match="disk is full"):
        write_manifest(folder, Manifest(rank=3, rank_source="default", world_size=9, host="h"))

    assert path.read_bytes() == before
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_reading_manifests_imports_no_torch() -> None:
    code = "import sys, commprof.manifest; print([m for m in ('torch', 'pandas', 'numpy') if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
