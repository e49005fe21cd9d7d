"""C072, C073 and their kind: group, number, peer, root and size of gloo's calls, whose events name none of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commprof.manifest import FlightEntry, Manifest, ProcessGroup, manifest_name, trace_name, write_manifest
from tests.builders.command import Run
from tests.builders.kineto import BASE_NS, MAIN_THREAD, Trace

Analyze = Callable[..., Run]
FLOAT = {"Input type": ["float", "float", "", "", "", ""]}
WORLD, TP, PP = (0, 1, 2, 3), (0, 1), (1, 3)


def trace_of(*groups: tuple[str, str, tuple[int, ...]], rank: int = 1) -> Trace:
    """A rank of four in these groups (name, description, members), after the default one."""
    trace = Trace(rank=rank, world_size=4, backend="gloo")
    config = trace.top["distributedInfo"]["pg_config"]
    config += [
        {"pg_name": name, "pg_desc": description, "pg_size": len(ranks), "ranks": list(ranks)}
        for name, description, ranks in groups
    ]
    trace.step(1, 0, 1000)
    trace.cpu_op("aten::mm", 0, 5)
    return trace


def reduce_in(trace: Trace, at: int, tid: int, size: int = 1000) -> None:
    """An all-reduce, called at ``at`` and run on a thread of gloo."""
    trace.cpu_op("c10d::allreduce_", at, at + 5, args={"Input Dims": [[[size]], [], []], "Input type": ["TensorList"]})
    trace.annotation("gloo:all_reduce", at + 6, at + 20, tid=tid)["args"].update({"Input Dims": [[size]], **FLOAT})


def gather_in(trace: Trace, at: int, tid: int, members: int) -> None:
    """An all-gather of 10 elements of each member: its shapes tell how many there are."""
    dims = {"Input Dims": [[10 * members], [10], [], [], []]}
    trace.cpu_op("c10d::_allgather_base_", at, at + 5, args={**dims, **FLOAT})
    trace.annotation("gloo:all_gather", at + 6, at + 20, tid=tid)["args"].update({"Input Dims": [[10]], **FLOAT})


def message(trace: Trace, name: str, at: int, place: int) -> None:
    """A send or receive with the member at a place of the group, on the caller's thread."""
    args = {
        "Input Dims": [[[8, 4]], [], [], []],
        "Concrete Inputs": ["", "", str(place), "0"],
        "Input type": ["TensorList", "", "Scalar", "Scalar"],
    }
    trace.cpu_op(f"c10d::{name}", at, at + 4, args=args)
    span = trace.annotation(f"gloo:{name.strip('_')}", at + 1, at + 20, tid=MAIN_THREAD)
    span["args"].update({"Input Dims": [[8, 4]], **FLOAT})


@pytest.fixture
def calls(run_analyze: Analyze, tmp_path: Path) -> Callable[[Trace], list[dict[str, Any]]]:
    """The calls of one rank's trace."""

    def read(trace: Trace) -> list[dict[str, Any]]:
        run = run_analyze(trace.write(tmp_path / "rank.json"))
        assert run.code == 0, run.stderr
        rows: list[dict[str, Any]] = run.report["collectives"]
        return rows

    return read


def groups_of(rows: list[dict[str, Any]]) -> list[str | None]:
    return [row["group"] for row in rows]


# Threads tell: two for each group, made in its order.


def test_four_threads_of_two_groups_are_theirs_in_order(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of(("1", "tp", TP))
    for place, tid in enumerate((501, 502, 511, 512, 501)):
        reduce_in(trace, 100 + 30 * place, tid)

    assert groups_of(calls(trace)) == ["0", "0", "1", "1", "0"]


def test_one_thread_unseen_leaves_the_middle_open(calls: Callable[[Trace], Any]) -> None:
    # 501 and 511 may be one group's, or 511 and 512.
    trace = trace_of(("1", "tp", TP))
    for place, tid in enumerate((501, 511, 512)):
        reduce_in(trace, 100 + 30 * place, tid)

    assert groups_of(calls(trace)) == ["0", None, "1"]


@pytest.mark.parametrize(("members", "group"), [(4, "0"), (2, "1")])
def test_shapes_that_tell_the_size_decide(members: int, group: str, calls: Callable[[Trace], Any]) -> None:
    trace = trace_of(("1", "tp", TP))
    gather_in(trace, 100, 501, members)

    assert groups_of(calls(trace)) == [group]


def test_a_root_beyond_a_group_leaves_it_out(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of(("1", "tp", TP))
    args = {"Input Dims": [[[8]], []], "Concrete Inputs": ["", "", "3", "0"], "Input type": ["TensorList", ""]}
    trace.cpu_op("c10d::broadcast_", 100, 105, args=args)
    trace.annotation("gloo:broadcast", 106, 120, tid=501)

    (row,) = calls(trace)

    assert (row["group"], row["root"]) == ("0", 3)


def test_nothing_is_claimed_where_groups_are_alike(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of(("1", "tp", TP), ("2", "dp", (1, 2)))
    gather_in(trace, 100, 501, 2)

    assert groups_of(calls(trace)) == [None]


# Messages: the peer's place tells which groups it can be.


@pytest.mark.parametrize(("name", "op"), [("send", "send"), ("recv_", "recv")])
def test_c168_the_peer_of_a_message_is_a_global_rank(name: str, op: str, calls: Callable[[Trace], Any]) -> None:
    # Rank 1 is the first of (1, 3): place 1 is rank 3 there; in the default group it is rank 1 itself.
    trace = trace_of(("4", "mesh_pp", PP))
    message(trace, name, 100, 1)

    (row,) = calls(trace)

    assert (row["op"], row["group"], row["peer"], row["size_bytes"]) == (op, "4", 3, 128)


def test_a_message_that_fits_two_groups_goes_to_the_pipeline_if_all_do(calls: Callable[[Trace], Any]) -> None:
    # Rank 3 is second of (1, 3); place 0 may be rank 0 of all or rank 1 of the pipeline.
    trace = trace_of(("4", "mesh_pp", PP), rank=3)
    message(trace, "send", 100, 0)
    message(trace, "recv_", 200, 0)

    assert [(row["group"], row["peer"]) for row in calls(trace)] == [("4", 1), ("4", 1)]


def test_a_message_that_fits_two_groups_is_left_open_if_others_do_not(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of(("4", "mesh_pp", PP), rank=3)
    message(trace, "send", 100, 0)
    message(trace, "send", 200, 2)  # only the default group has a third member

    assert [(row["group"], row["peer"]) for row in calls(trace)] == [(None, None), ("0", 2)]


# The Flight Recorder of a capture names group and number.


def entry(group: str, seq: int, name: str, at_us: int, size: int = 1000) -> FlightEntry:
    return FlightEntry(
        group=group, seq=seq, name=f"gloo:{name}", created_ns=BASE_NS + 1000 * at_us, input_sizes=((size,),),
        output_sizes=((size,),), input_dtypes=("Float",), output_dtypes=("Float",),
    )  # fmt: skip


def captured(trace: Trace, folder: Path, entries: list[FlightEntry]) -> Path:
    """The trace as a capture folder, with groups and the recorder's entries in its manifest."""
    folder.mkdir()
    trace.write(folder / trace_name(1))
    groups = (
        ProcessGroup(name="0", description="default_pg", ranks=WORLD),
        ProcessGroup(name="1", description="mesh_tp", ranks=TP),
        ProcessGroup(name="2", description="mesh_dp", ranks=(1, 2)),
    )
    manifest = Manifest(
        rank=1, rank_source="process group", world_size=4, host="a", trace=trace_name(1), backend="gloo",
        groups=groups, flight=tuple(entries),
    )  # fmt: skip
    write_manifest(folder, manifest)
    assert (folder / manifest_name(1)).is_file()
    return folder


def test_the_flight_recorder_names_group_and_number(run_analyze: Analyze, tmp_path: Path) -> None:
    # Started in another order than launched: the group's own threads tell which span is whose.
    trace = trace_of(("1", "mesh_tp", TP), ("2", "mesh_dp", (1, 2)))
    dims = {"Input Dims": [[[1000]], [], []], "Input type": ["TensorList"]}
    for at in (100, 110, 120, 130):
        trace.cpu_op("c10d::allreduce_", at, at + 5, args=dims)
    for at, end, tid in ((111, 300, 511), (112, 200, 521), (131, 150, 512), (132, 160, 522)):
        trace.annotation("gloo:all_reduce", at, end, tid=tid)["args"].update({"Input Dims": [[1000]], **FLOAT})
    entries = [
        entry("2", 7, "all_reduce", 102), entry("1", 31, "all_reduce", 112), entry("2", 8, "all_reduce", 122),
        entry("1", 32, "all_reduce", 132),
    ]  # fmt: skip

    run = run_analyze(captured(trace, tmp_path / "capture", entries))

    rows = [(row["group"], row["seq"], row["group_size"], row["stream"]) for row in run.report["collectives"]]
    assert sorted(rows) == [
        ("1", 31, 2, 511),
        ("1", 32, 2, 512),
        ("2", 7, 2, 521),
        ("2", 8, 2, 522),
    ] or sorted(rows) == [
        ("1", 31, 2, 521),
        ("1", 32, 2, 522),
        ("2", 7, 2, 511),
        ("2", 8, 2, 512),
    ]
    groups = {group["group"]: group["ranks"] for group in run.report["groups"]}
    assert groups == {"1": [0, 1], "2": [1, 2]}


def test_the_flight_recorder_knows_sizes_that_the_trace_lacks(run_analyze: Analyze, tmp_path: Path) -> None:
    # Recorded without shapes: nothing in the trace says how much was moved.
    trace = trace_of(("1", "mesh_tp", TP), ("2", "mesh_dp", (1, 2)))
    trace.cpu_op("c10d::allreduce_", 100, 105)
    trace.annotation("gloo:all_reduce", 106, 120, tid=511)

    run = run_analyze(captured(trace, tmp_path / "capture", [entry("1", 4, "all_reduce", 101, size=250)]))

    (row,) = run.report["collectives"]
    assert (row["group"], row["seq"], row["size_bytes"], row["dtype"]) == ("1", 4, 1000, "float32")


def test_an_entry_outside_of_the_operator_is_another_call(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = trace_of(("1", "mesh_tp", TP), ("2", "mesh_dp", (1, 2)))
    reduce_in(trace, 100, 511)

    run = run_analyze(captured(trace, tmp_path / "capture", [entry("1", 4, "all_reduce", 99)]))

    assert [(row["group"], row["seq"]) for row in run.report["collectives"]] == [(None, None)]


def test_groups_that_only_the_manifest_knows_complete_the_trace(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = trace_of(("1", "mesh_tp", TP), ("2", "mesh_dp", (1, 2)))
    del trace.top["distributedInfo"]["pg_config"]
    reduce_in(trace, 100, 511)

    run = run_analyze(captured(trace, tmp_path / "capture", [entry("1", 4, "all_reduce", 101)]))

    (group,) = run.report["groups"]
    assert (group["description"], group["ranks"], group["members"]) == ("mesh_tp", [0, 1], "known")


# Shapes of the other operators, as torch 2.13 writes them.


@pytest.mark.parametrize(
    ("operator", "dims", "types", "span", "size"),
    [
        ("gather_", [[], [[8, 4]], [], []], ["ScalarList", "TensorList", "", "Scalar"], "gather", 4 * 128),
        ("gather_", [[], [[8, 4]], [], []], ["", "TensorList", "", "Scalar"], "gather", 4 * 128),
        ("allreduce_", [[[]], [], []], ["TensorList", "", ""], "all_reduce", 4),  # one number
    ],
)
def test_no_tensor_is_told_from_a_number(
    operator: str, dims: Any, types: list[str], span: str, size: int, calls: Callable[[Trace], Any]
) -> None:
    trace = trace_of()
    args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": ["[]", "", "", "2"]}
    trace.cpu_op(f"c10d::{operator}", 100, 105, args=args)
    trace.annotation(f"gloo:{span}", 106, 120, tid=501)["args"].update({"Input Dims": [[8, 4]], **FLOAT})
    if size == 4:
        trace.events[-1]["args"]["Input Dims"] = [[]]

    (row,) = calls(trace)

    assert row["size_bytes"] == size


def test_splits_of_an_all_to_all_come_from_the_operator(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of()
    args = {
        "Input Dims": [[6, 4], [8, 4], [], [], [], [], []],
        "Input type": ["float", "float", "", "ScalarList", "ScalarList", "Scalar", "Scalar"],
        "Concrete Inputs": ["", "", "", "[1, 2, 3, 0]", "[2, 2, 2, 2]", "False", "-1"],
    }
    trace.cpu_op("c10d::alltoall_base_", 100, 105, args=args)
    trace.annotation("gloo:all_to_all", 106, 120, tid=501)["args"].update({"Input Dims": [[8, 4]], **FLOAT})

    (row,) = calls(trace)

    assert (row["size_bytes"], row["sent_bytes"], row["received_bytes"], row["unequal_splits"]) == (128, 128, 96, True)


def test_lists_of_tensors_are_their_own_splits(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of()
    out, given = [[4], [4], [4], [4]], [[1], [2], [3], [4]]
    args = {"Input Dims": [out, given, []], "Input type": ["TensorList", "TensorList", ""]}
    trace.cpu_op("c10d::alltoall_", 100, 105, args=args)
    trace.annotation("gloo:all_to_all", 106, 120, tid=501)["args"].update({"Input Dims": given, **FLOAT})

    (row,) = calls(trace)

    assert (row["sent_bytes"], row["received_bytes"], row["unequal_splits"]) == (40, 64, True)


# A reduce-scatter runs as all-reduces: one for its list, or one for each tensor of a batch.


@pytest.mark.parametrize("shapes", [True, False], ids=["with shapes", "without"])
def test_c073_the_list_form_of_a_reduce_scatter_is_one_call(shapes: bool, calls: Callable[[Trace], Any]) -> None:
    trace = trace_of()  # one group of four
    args = {"Input Dims": [[[5]], [], [], []], "Input type": ["TensorList", "", "", ""]} if shapes else {}
    trace.cpu_op("c10d::reduce_scatter_", 100, 105, args=args)
    for place in range(4):
        span = trace.annotation("gloo:all_reduce", 110 + 10 * place, 130 + 10 * place, tid=501 + place % 2)
        span["args"].update({"Input Dims": [[5]], **FLOAT} if shapes else {})

    (row,) = calls(trace)

    assert (row["op"], row["kernels"], row["duration_ns"]) == ("reduce_scatter", 4, 50_000)
    assert row["size_bytes"] == (4 * 5 * 4 if shapes else None)  # the whole input: four parts of five floats


def test_c073_a_batch_of_reduce_scatters_is_one_call(calls: Callable[[Trace], Any]) -> None:
    trace = trace_of()
    args = {"Input Dims": [[[4], [2]], [[16], [8]], [], []], "Input type": ["TensorList", "TensorList", "", ""]}
    trace.cpu_op("c10d::reduce_scatter_tensor_coalesced_", 100, 105, args=args)
    for place, size in enumerate((8, 16)):  # the second starts first
        span = trace.annotation("gloo:all_reduce", 110 + 10 * place, 115 + 10 * place, tid=501 + place)
        span["args"].update({"Input Dims": [[size]], **FLOAT})
    reduce_in(trace, 200, 501, size=8)

    rows = [(row["op"], row["kernels"], row["size_bytes"]) for row in calls(trace)]

    assert rows == [("reduce_scatter", 2, 96), ("all_reduce", 1, 32)]
