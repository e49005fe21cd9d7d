"""Public traces of real runs against ``expected.csv`` and the tables beside it, to the nanosecond.

The folder is no part of this repository: see :func:`tests.conftest.traces_folder`. Where it is there, nothing here is
skipped; a file that is missing in it is a failure.
"""

from __future__ import annotations

import csv
import functools
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run, analyze
from tests.conftest import traces_folder
from tests.oracle.identities import check_identities

pytestmark = pytest.mark.traces

FOLDER = traces_folder()
Reports = Callable[[str], Run]


def _expected() -> list[dict[str, str]]:
    if FOLDER is None:
        return []
    with (FOLDER / "expected.csv").open(newline="") as file:
        return list(csv.DictReader(file))


ROWS = _expected()
FOLDERS = sorted({row["file"].split("/")[0] for row in ROWS})


@pytest.fixture(scope="module")
def reports(public_traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The run of ``commprof analyze`` on each folder of traces, made once."""
    out = tmp_path_factory.mktemp("public")

    @functools.cache
    def report(name: str) -> Run:
        return analyze(public_traces / name, out / f"{name}.json")

    return report


def _rank_row(report: Any, file: str) -> Any:
    """The one rank row of the file with this name."""
    (entry,) = (entry for entry in report["input"]["files"] if Path(entry["path"]).name == Path(file).name)
    (row,) = (row for row in report["ranks"] if row["rank"] == entry["rank"])
    return row


def _calls(run: Run, rank: int = 0) -> list[Any]:
    return [call for call in run.report["collectives"] if call["rank"] == rank]


def test_the_table_covers_every_kind_of_trace(public_traces: Path) -> None:
    assert len(ROWS) == 49
    assert len(FOLDERS) == 7


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['file'].split('.')[0]}-{row['window']}")
def test_every_number_is_equal_to_the_nanosecond(row: dict[str, str], reports: Reports) -> None:
    wanted = {key: int(value) for key, value in row.items() if key.endswith("_ns")}

    rank = _rank_row(reports(row["file"].split("/")[0]).report, row["file"])

    windows = {step["name"]: step for step in rank["steps"]} | {"whole": rank["whole"]}
    assert {key: windows[row["window"]][key] for key in wanted} == wanted


@pytest.mark.parametrize("file", sorted({row["file"] for row in ROWS}))
def test_no_window_is_missing_and_none_is_invented(file: str, reports: Reports) -> None:
    wanted = [row["window"] for row in ROWS if row["file"] == file and row["window"] != "whole"]

    rank = _rank_row(reports(file.split("/")[0]).report, file)

    assert [step["name"] for step in rank["steps"]] == wanted


@pytest.mark.parametrize("folder", FOLDERS)
def test_identities_hold_with_equality(folder: str, reports: Reports) -> None:
    run = reports(folder)

    assert run.code == 0, run.stderr
    check_identities(run.report)


# ddp-resnet50-a100


BUCKETS = [2_049_000, 7_875_584, 6_563_840, 6_637_568, 2_431_040]


@pytest.mark.parametrize("step", ["ProfilerStep#4", "ProfilerStep#5", "ProfilerStep#6"])
def test_resnet50_all_reduces_are_the_buckets_in_order(step: str, reports: Reports) -> None:
    calls = [call for call in _calls(reports("ddp-resnet50-a100")) if call["step"] == step]

    sizes = [call["size_bytes"] for call in calls if call["op"] == "all_reduce"]

    assert sizes == [4 * elements for elements in BUCKETS]
    assert [(call["dtype"], call["size_bytes"]) for call in calls if call["op"] == "broadcast"] == [
        ("float32", 53120 * 4),
        ("int64", 53 * 8),
    ]
    assert {(call["group"], call["group_size"], call["kind_source"], call["stream"]) for call in calls} == {
        ("0", 2, "metadata", 40)
    }


@pytest.mark.parametrize(
    ("step", "exposed_host", "idle_host", "share"),
    [
        ("ProfilerStep#4", 9_677_499, 164_185_114, 4.6),
        ("ProfilerStep#5", 10_034_720, 161_627_927, 4.8),
        ("ProfilerStep#6", 17_853_384, 152_347_030, 8.6),
    ],
)
def test_resnet50_host_bound_parts(
    step: str, exposed_host: int, idle_host: int, share: float, reports: Reports
) -> None:
    (rank,) = reports("ddp-resnet50-a100").report["ranks"]

    (row,) = (row for row in rank["steps"] if row["name"] == step)

    assert (row["exposed_host_ns"], row["idle_host_ns"]) == (exposed_host, idle_host)
    assert row["exposed_blocking_ns"] == row["exposed_comm_ns"] - exposed_host
    assert round(100 * row["comm_share"], 1) == share


def test_resnet50_is_described_as_in_the_contract(reports: Reports) -> None:
    # These figures stand in the description of the report format; the exposed part of the first bucket was
    # counted apart from this package: 457,660 ns of its 3,306,963 lie beside compute kernels.
    run = reports("ddp-resnet50-a100")

    (file,) = run.report["input"]["files"]
    assert (file["bytes"], file["events"], file["device_events"]) == (749_757, 40_573, 3_774)
    assert run.report["input"]["devices"] == ["NVIDIA A100-PG509-200"]
    first = next(call for call in _calls(run) if call["op"] == "all_reduce")
    assert (first["size_bytes"], first["duration_ns"], first["exposed_ns"]) == (8_196_000, 3_306_963, 2_849_303)


def test_resnet50_waits_for_the_absent_peer_in_step_6(reports: Reports) -> None:
    # The first three buckets of step 6 take 2.3 times as long as in step 5.
    calls = _calls(reports("ddp-resnet50-a100"))

    first = {
        step: sum(c["duration_ns"] for c in calls if c["step"] == step and c["size_bytes"] in _sizes(3))
        for step in ("ProfilerStep#5", "ProfilerStep#6")
    }

    assert round(first["ProfilerStep#6"] / first["ProfilerStep#5"], 1) == 2.3


def _sizes(count: int) -> set[int]:
    return {4 * elements for elements in BUCKETS[:count]}


def test_resnet50_is_bound_by_the_host(reports: Reports) -> None:
    run = reports("ddp-resnet50-a100")

    assert run.report["verdict"]["bottleneck"] == "host"
    assert (run.report["input"]["world_size"], run.report["input"]["missing_ranks"]) == (2, [1])


# dlrm-8rank-v100: eight collectives in stream order, start and duration (µs) per rank.


DLRM = [
    ("all_to_all", "5489 0 7116 1502 2752 2955 7119 7624", "2146 7635 518 6132 4882 4679 514 10"),
    ("all_to_all", "9380 9387 9895 9389 9303 9351 9892 10404", "1032 1025 517 1021 1108 1060 520 8"),
    ("all_to_all", "10637 10643 10640 10638 10642 10637 10637 10805", "176 169 173 174 170 175 175 7"),
    ("all_to_all", "10814 10814 10814 10813 10814 10813 10813 10938", "131 132 131 133 132 132 131 7"),
    ("all_reduce", "11998 11934 12041 11949 12148 12145 12030 12157", "246 307 198 291 95 96 213 86"),
    ("all_to_all", "13483 13452 13528 13453 13934 13986 13511 13638", "514 545 468 542 61 10 483 357"),
    ("all_reduce", "13999 13998 14027 13997 14532 14581 14002 14133", "601 601 572 602 70 20 602 468"),
    ("all_reduce", "15078 15105 15117 15146 15963 15949 15112 15225", "952 922 915 879 69 79 920 803"),
]
# Sent elements and type from the nccl:* ranges of the trace: the whole send buffer, the tensor of an all-reduce.
DLRM_SIZES = [6144 * 4, 24 * 8, 384 * 4, 3392 * 4, 394_241 * 4, 6144 * 4, 112 * 4, 226_960 * 4]
DLRM_TYPES = ["float32", "int64", "int32", "int32", "float32", "float32", "float32", "float32"]
DLRM_COMM_US = [5798, 11336, 3492, 9774, 6587, 6251, 3558, 1746]


def test_dlrm_has_eight_ranks_and_all_of_them(reports: Reports) -> None:
    run = reports("dlrm-8rank-v100")

    assert run.report["input"]["ranks"] == list(range(8))
    assert run.report["input"]["missing_ranks"] == []
    assert [rank["rank"] for rank in run.report["ranks"]] == list(range(8))
    assert [rank["whole"]["comm_ns"] for rank in run.report["ranks"]] == [1000 * us for us in DLRM_COMM_US]


@pytest.mark.parametrize("rank", range(8))
def test_dlrm_collectives_are_those_of_the_table(rank: int, reports: Reports) -> None:
    calls = _calls(reports("dlrm-8rank-v100"), rank)

    # The table counts from the earliest collective, which is the first one of rank 1.
    first = min(call["start_ns"] for call in reports("dlrm-8rank-v100").report["collectives"])
    rows = [(c["op"], (c["start_ns"] - first) // 1000, c["duration_ns"] // 1000) for c in calls]
    assert rows == [(op, int(at.split()[rank]), int(us.split()[rank])) for op, at, us in DLRM]
    assert Counter(call["op"] for call in calls) == {"all_to_all": 5, "all_reduce": 3}


@pytest.mark.parametrize("rank", range(8))
def test_dlrm_sizes_and_types_come_from_ranges_and_operators(rank: int, reports: Reports) -> None:
    calls = _calls(reports("dlrm-8rank-v100"), rank)

    assert [call["size_bytes"] for call in calls] == DLRM_SIZES
    assert [call["dtype"] for call in calls] == DLRM_TYPES
    assert all(call["kind_source"] != "metadata" for call in calls)


def test_dlrm_names_no_groups_so_one_group_is_assumed(reports: Reports) -> None:
    run = reports("dlrm-8rank-v100")

    assert {call["group_size"] for call in run.report["collectives"]} <= {8, None}
    assert run.notes("group-assumed")


# ddp-resnet-mi300x: every kernel is called Generic, so only metadata tells what it is.


def test_mi300x_operations_and_sizes_come_from_metadata(reports: Reports) -> None:
    step = [("broadcast", "bfloat16", 9600 * 2), ("broadcast", "int64", 20 * 8)]
    step += [("all_reduce", "bfloat16", 2_873_320 * 2), ("all_reduce", "bfloat16", 8_816_192 * 2)]

    calls = _calls(reports("ddp-resnet-mi300x"))

    assert len(calls) == 17
    assert [(c["op"], c["dtype"], c["size_bytes"]) for c in calls[5:]] == 3 * step
    assert {c["kind_source"] for c in calls[5:]} == {"metadata"}


def test_mi300x_kernels_without_metadata_are_counted_not_guessed(reports: Reports) -> None:
    run = reports("ddp-resnet-mi300x")

    calls = _calls(run)[:5]

    assert {(c["op"], c["size_bytes"], c["dtype"], c["launched_ns"]) for c in calls} == {("unknown", None, None, None)}
    assert {c["kind_source"] for c in calls} == {"name"}
    assert run.report["coverage"]["comm_without_metadata"] == 5
    assert run.report["coverage"]["unknown_collective"] == 5


def test_mi300x_rank_device_and_host_bound_parts(reports: Reports) -> None:
    run = reports("ddp-resnet-mi300x")

    (rank,) = run.report["ranks"]

    assert (rank["rank"], rank["device"], rank["windows"]) == (0, 2, "launch")
    assert {call["device"] for call in run.report["collectives"]} == {2}
    assert [(step["exposed_host_ns"], step["idle_host_ns"]) for step in rank["steps"]] == 3 * [(0, 0)]
    assert run.report["verdict"]["bottleneck"] == "communication"
    assert round(100 * rank["mean"]["comm_share"]) in (62, 63)
    assert [step["open"] for step in rank["steps"]] == [False, False, True]


# The others.


def test_tiny_allreduce_has_404_all_reduces_per_step(reports: Reports) -> None:
    calls = _calls(reports("tiny-allreduce-v100"), rank=1)

    per_step = Counter((call["step"], call["op"]) for call in calls)

    assert per_step == {(f"ProfilerStep#{n}", "all_reduce"): 404 for n in range(2, 7)}
    durations = sorted(call["duration_ns"] for call in calls)
    assert durations[len(durations) // 2] == 11_000


def test_world_size_one_has_no_communication(reports: Reports) -> None:
    run = reports("world1-v100")

    assert run.code == 0
    assert run.report["collectives"] == []
    assert run.notes("no-communication")
    assert {rank["whole"]["overlap_ratio"] for rank in run.report["ranks"]} == {None}


def test_sampled_ranks_say_which_ranks_are_missing(reports: Reports) -> None:
    run = reports("sampled-2of128")

    assert run.report["input"]["ranks"] == [0, 1]
    assert run.report["input"]["missing_ranks"] == list(range(2, 128))
    assert run.notes("missing-ranks")


def test_kineto_2021_has_the_old_layout_and_no_communication(reports: Reports) -> None:
    run = reports("kineto-2021")

    (rank,) = run.report["ranks"]

    assert rank["windows"] == "launch"
    assert run.report["collectives"] == []
    (file,) = run.report["input"]["files"]
    assert file["device_events"] == 8772 + 312 + 12
    assert sum(file["skipped"].values()) == 0


def test_straggler_analysis_arrays_are_no_profiler_traces(public_traces: Path, tmp_path: Path) -> None:
    # A bare array of events of another tool: no device category at all.
    run = analyze(public_traces / "straggler-analysis" / "timeline-ST.json.gz", tmp_path / "st.json")

    assert run.code in (2, 3)
    assert len(run.lines) >= 1
    assert re.search("timeline-ST.json.gz", run.stderr)
