"""The hook in real training processes on gloo."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from commprof.manifest import read_manifests
from tests.capture.fake import files_of, manifest_of
from tests.capture.real import names_in, run_alone, run_ranks, trace_of

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch"),
]


@pytest.fixture(scope="module")
def bitwise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    folder = tmp_path_factory.mktemp("bitwise")
    return folder / "run", run_ranks("bitwise", folder, 3)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("groups")
    run_ranks("groups", folder, 4)
    return folder


def test_parameters_are_equal_bit_for_bit_with_and_without_the_hook_c195(bitwise: tuple[Path, list[Any]]) -> None:
    _, results = bitwise

    digests = {digest for result in results for digest in result["digests"]}

    assert len(digests) == 1
    assert [result["hooks"] for result in results] == [0, 0, 0]


def test_so_are_those_of_other_strategies(bitwise: tuple[Path, list[Any]]) -> None:
    _, results = bitwise

    for rank, result in enumerate(results):
        for name, digests in result["others"].items():
            assert len(digests) == (0 if name == "ddp of 2" and rank == 2 else 2)
            assert len(set(digests)) <= 1, (name, rank)
    # A digest that could not differ would prove nothing: FSDP's shards are other ones on each rank.
    assert len({result["others"]["fsdp2"][0] for result in results}) == 3


def test_the_hook_issues_no_collective(bitwise: tuple[Path, list[Any]]) -> None:
    _, results = bitwise

    for result in results:
        without, with_hook = result["collectives"]
        assert without == with_hook > 0


def test_bucket_map_is_what_ddp_logs(bitwise: tuple[Path, list[Any]]) -> None:
    folder, results = bitwise

    for rank, result in enumerate(results):
        (ddp,) = manifest_of(folder, rank)["ddp"]
        sizes = [int(size) for size in result["sizes"].split(",")]
        members = [[int(i) for i in part.split()] for part in result["indices"].split(",")]
        assert [bucket["size_bytes"] for bucket in ddp["buckets"]] == sizes
        assert [bucket["index"] for bucket in ddp["buckets"]] == list(range(len(sizes)))
        assert [b["parameters"] for b in ddp["buckets"]] == [[result["names"][i] for i in m] for m in members]
        assert {bucket["layout"] for bucket in ddp["buckets"]} == {"rebuilt"}
        assert ddp["options"]["bucket_cap_bytes"] == result["cap"]
        # 6 layers of 96 x 96 + 96 and the scale, 4 bytes each; the frozen parameter is in no bucket.
        assert sum(sizes) == 4 * (6 * (96 * 96 + 96) + 96)
        assert len(sizes) > 2


def test_trace_and_manifest_of_a_ddp_run_agree(bitwise: tuple[Path, list[Any]]) -> None:
    folder, _ = bitwise
    steps = ["ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7", "ProfilerStep#8"]

    manifests = read_manifests(folder)

    assert [(m.rank, m.rank_source, m.world_size, m.backend) for m in manifests] == [
        (rank, "process group", 3, "gloo") for rank in range(3)
    ]
    for manifest in manifests:
        trace = trace_of(folder, manifest.rank)
        names = names_in(trace)
        buckets = len(manifest.ddp[0].buckets)
        assert trace["distributedInfo"]["rank"] == manifest.rank
        assert [name for name in names if name.startswith("ProfilerStep")] == steps
        assert list(manifest.recorded_steps) == steps
        assert names.count("gloo:all_reduce") == 4 * buckets
        # Every collective of the window, with the sequence numbers running on.
        assert [entry.name for entry in manifest.flight] == ["gloo:all_reduce"] * (4 * buckets)
        assert [e.seq - manifest.flight[0].seq for e in manifest.flight] == list(range(4 * buckets))
        assert len(manifest.steps.duration_ns) == 11
        assert manifest.environment["OMP_NUM_THREADS"] == "1"
        assert not manifest.partial
        assert manifest.notes == ()
        elements = 6 * (96 * 96 + 96) + 96
        assert manifest.parameters is not None
        assert (manifest.parameters.count, manifest.parameters.trainable_bytes) == (elements + 7, 4 * elements)
        assert manifest.clock_samples == ()  # one host, one clock


def test_manifests_of_other_strategies_say_what_they_are(bitwise: tuple[Path, list[Any]]) -> None:
    folder, _ = bitwise

    sharded = read_manifests(folder.parent / "zero1")[0].optimizers
    units = read_manifests(folder.parent / "fsdp2")[0].fsdp

    assert [(it.name, it.inner) for it in sharded] == [("ZeroRedundancyOptimizer", "AdamW")]
    assert sorted((u.module, u.count, u.shard_size) for u in units) == [
        ("", 96 + 7, 3),
        *[(f"inner.{i}", 96 * 96 + 96, 3) for i in range(6)],
    ]


def test_step_marks_of_trace_and_manifest_share_one_clock(bitwise: tuple[Path, list[Any]]) -> None:
    folder, _ = bitwise
    trace = trace_of(folder)
    manifest = read_manifests(folder)[0]

    marks = {e["name"]: e for e in trace["traceEvents"] if str(e.get("name")).startswith("ProfilerStep")}

    assert manifest.clock.start_ns is not None
    assert manifest.clock.stop_ns is not None
    for name, mark in marks.items():
        start = trace["baseTimeNanoseconds"] + round(mark["ts"] * 1000)
        assert manifest.clock.start_ns <= start <= manifest.clock.stop_ns, name


def test_sizes_of_collectives_are_recorded(bitwise: tuple[Path, list[Any]]) -> None:
    folder, results = bitwise
    sizes = [int(size) for size in results[0]["sizes"].split(",")]

    calls = [e for e in trace_of(folder)["traceEvents"] if e.get("name") == "c10d::allreduce_"]

    elements = [call["args"]["Input Dims"][0][0][0] for call in sorted(calls, key=lambda call: call["ts"])]
    assert [4 * n for n in elements] == sizes * 4


def test_four_processes_write_four_complete_files_c186(groups: Path) -> None:
    manifests = read_manifests(groups / "all")

    assert files_of(groups / "all") == [
        f"rank-0000{rank}.{kind}" for rank in range(4) for kind in ("manifest.json", "pt.trace.json.gz")
    ]
    assert [m.recorded_steps for m in manifests] == [("ProfilerStep#2", "ProfilerStep#3")] * 4
    for rank in range(4):
        assert names_in(trace_of(groups / "all", rank)).count("gloo:all_reduce") == 2 * 3


def test_ranks_0_and_3_write_two_files_c189(groups: Path) -> None:
    manifests = read_manifests(groups / "two")

    assert [m.rank for m in manifests] == [0, 3]
    assert {m.world_size for m in manifests} == {4}
    assert len(files_of(groups / "two")) == 4


def test_group_descriptions_come_back_unchanged_c205(groups: Path) -> None:
    description = json.loads((groups / "result-0.json").read_text())["description"]
    for rank in range(4):
        trace = trace_of(groups / "all", rank)
        manifest = read_manifests(groups / "all")[rank]

        in_trace = {g["pg_desc"]: tuple(g["ranks"]) for g in trace["distributedInfo"]["pg_config"]}
        in_manifest = {g.description: g.ranks for g in manifest.groups}

        half = rank % 2
        expected = {"default_pg": (0, 1, 2, 3), description: (0, 1, 2, 3), f"half {half}": (half, half + 2)}
        assert in_trace == in_manifest == expected


def test_collectives_of_other_threads_are_recorded(groups: Path) -> None:
    names = names_in(trace_of(groups / "all"))

    assert names.count("c10d::broadcast_") == 2
    assert names.count("gloo:broadcast") == 2


def test_a_group_destroyed_inside_the_window_is_remembered_c198(groups: Path) -> None:
    manifests = read_manifests(groups / "destroyed")

    assert [(m.rank, m.rank_source, m.world_size) for m in manifests] == [(r, "process group", 4) for r in range(4)]
    assert {m.recorded_steps for m in manifests} == {("ProfilerStep#0", "ProfilerStep#1")}
    assert {m.reason for m in manifests} == {"the loop ended after 2 of 3 steps"}


def test_fifty_cycles_end_c191(tmp_path: Path) -> None:
    results = run_ranks("cycles", tmp_path, 2, timeout_s=240)  # against a hang, on a busy machine too

    assert [result["total"] for result in results] == [100.0, 100.0]
    for cycle in range(50):
        assert [m.partial for m in read_manifests(tmp_path / f"cycle-{cycle:02d}")] == [False, False]
    assert names_in(trace_of(tmp_path / "cycle-49", 1)).count("gloo:all_reduce") == 1


def test_sys_exit_after_the_hook_was_thrown_away_c196(tmp_path: Path) -> None:
    done = run_alone("thrown_away", tmp_path)

    assert done.returncode == 3
    assert done.stdout == "still here\n"
    assert "Traceback" not in done.stderr
    manifest = manifest_of(tmp_path / "run")
    assert (manifest["partial"], manifest["reason"]) == (True, "the process ended in step 3")
    assert manifest["recorded_steps"] == ["ProfilerStep#1", "ProfilerStep#2"]
    # Recording went on after the hook was thrown away.
    assert "aten::add" in names_in(trace_of(tmp_path / "run"))


def test_control_c_inside_the_window_c199(tmp_path: Path) -> None:
    done = run_alone("interrupted", tmp_path)

    assert done.returncode == -2 or done.returncode == 130
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    manifest = manifest_of(tmp_path / "run")
    assert (manifest["partial"], manifest["reason"]) == (True, "KeyboardInterrupt in step 3")
    assert names_in(trace_of(tmp_path / "run")).count("aten::matmul") == 3


def test_a_disk_without_room_c194(tmp_path: Path) -> None:
    done = run_alone("no_room", tmp_path)

    assert done.returncode == 0
    assert files_of(tmp_path / "run") == ["rank-00000.manifest.json"]
    warnings = [line for line in done.stderr.splitlines() if line.startswith("commprof:")]
    assert len(warnings) == 1
    assert manifest_of(tmp_path / "run")["trace"] is None
