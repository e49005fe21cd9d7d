"""C063, C074, C077, C121, C168 and their kind: what is one call, who takes part in it and what it moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import SEND_RECV, Trace, comm_args

Analyze = Callable[..., Run]
READ = Callable[[Trace], list[dict[str, Any]]]
BARE = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
AR = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture
def calls(run_analyze: Analyze, tmp_path: Path) -> READ:
    """The calls of one rank's trace."""

    def read(trace: Trace) -> list[dict[str, Any]]:
        run = run_analyze(trace.write(tmp_path / "rank0.json"))
        assert run.code == 0, run.stderr
        rows: list[dict[str, Any]] = run.report["collectives"]
        return rows

    return read


def started(rank: int = 0, world_size: int = 4) -> Trace:
    """A step with one matrix multiplication."""
    trace = Trace(rank=rank, world_size=world_size)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600, launch=1)
    return trace


# Batches: several rows of calls, one launch after them.


def batch(trace: Trace, parts: list[tuple[str, int, int]], at: int = 100, **metadata: Any) -> None:
    """``batch_isend_irecv`` of (call, peer, elements): a row for each, then one launch outside all of them."""
    for place, (call, peer, elements) in enumerate(parts):
        key = "Dst Rank" if call == "send" else "Src Rank"
        begin = at + 10 * place
        trace.comms_op(call, begin, begin + 5, metadata={"elements": elements, key: peer, "seq": place, **metadata})
    end = at + 10 * len(parts)
    trace.kernel(BARE, end + 100, end + 200, stream=20, launch=end + 2)


def test_a_batch_of_messages_is_one_call_with_the_bytes_of_its_rows(calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [("send", 2, 1000), ("recv", 0, 500), ("send", 0, 250)], dtype="BFloat16")

    (row,) = calls(trace)

    assert (row["op"], row["kind_source"], row["group"], row["dtype"]) == ("send_recv", "link", "0", "bfloat16")
    assert (row["sent_bytes"], row["received_bytes"], row["size_bytes"]) == (2500, 1000, 2500)
    assert row["partners"] == [
        {"peer": 2, "sent_bytes": 2000, "received_bytes": 0},
        {"peer": 0, "sent_bytes": 0, "received_bytes": 1000},
        {"peer": 0, "sent_bytes": 500, "received_bytes": 0},
    ]
    assert row["peer"] is None


@pytest.mark.parametrize("call", ["send", "recv"])
def test_a_batch_of_one_message_is_that_message(call: str, calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [(call, 3, 1000)])

    (row,) = calls(trace)

    assert (row["op"], row["peer"], row["size_bytes"], row["partners"]) == (call, 3, 4000, None)


def test_both_ways_with_one_peer_name_the_peer(calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [("send", 2, 1000), ("recv", 2, 1000)])

    (row,) = calls(trace)

    assert (row["op"], row["peer"], row["sent_bytes"], row["received_bytes"]) == ("send_recv", 2, 4000, 4000)


def test_two_batches_do_not_share_rows(calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [("send", 2, 1000), ("recv", 0, 1000)])
    batch(trace, [("send", 0, 10), ("recv", 2, 20)], at=400)

    rows = calls(trace)

    assert [(row["sent_bytes"], row["received_bytes"]) for row in rows] == [(4000, 4000), (40, 80)]


def test_a_batch_too_large_for_one_kernel_is_still_one_call(calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [("send", 2, 1000), ("recv", 0, 1000)])
    trace.kernel(BARE, 330, 380, stream=20, launch=126)

    (row,) = calls(trace)

    assert (row["kernels"], row["duration_ns"], row["sent_bytes"]) == (2, 150_000, 4000)


def test_rows_of_a_batch_of_unknown_type_have_no_size(calls: READ) -> None:
    trace = started(rank=1)
    batch(trace, [("send", 2, 1000), ("recv", 0, 1000)], dtype="Posit8")

    (row,) = calls(trace)

    assert (row["op"], row["size_bytes"], row["sent_bytes"], row["received_bytes"]) == ("send_recv", None, None, None)


def test_coalesced_collectives_of_one_kind_add_up(calls: READ) -> None:
    trace = started()
    for place, elements in enumerate((1000, 3000)):
        trace.comms_op("allreduce", 100 + 10 * place, 105 + 10 * place, metadata={"elements": elements})
    trace.kernel(AR, 200, 300, stream=20, launch=122)

    (row,) = calls(trace)

    assert (row["op"], row["size_bytes"], row["group"]) == ("all_reduce", 16_000, "0")


@pytest.mark.parametrize("why", ["other operation", "launched before", "a launch between", "its own kernel"])
def test_rows_that_are_no_batch_describe_nothing(why: str, calls: READ) -> None:
    # The kernel has no metadata and no operator; the row before it is of something else.
    trace = started(rank=1)
    row = trace.comms_op("allreduce" if why == "other operation" else "send", 100, 105, metadata={"Dst Rank": 2})
    if why == "a launch between":
        trace.gemm(610, 620, launch=110)
    if why == "its own kernel":
        trace.kernel(BARE, 150, 160, stream=20, launch=102, under=row)
    trace.kernel(BARE, 200, 300, stream=20, launch=99 if why == "launched before" else 120)

    rows = calls(trace)

    assert (rows[-1]["op"], rows[-1]["kind_source"], rows[-1]["size_bytes"]) == ("send_recv", "name", None)


def test_wait_rows_between_do_not_end_a_batch_and_add_nothing(calls: READ) -> None:
    trace = started(rank=1)
    trace.comms_op("send", 100, 105, metadata={"Dst Rank": 2})
    trace.comms_op("wait", 106, 107, metadata={"elements": 0, "dtype": "Byte"})
    trace.kernel(BARE, 200, 300, stream=20, launch=110)

    (row,) = calls(trace)

    assert (row["op"], row["peer"]) == ("send", 2)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        (BARE, "send_recv"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
        ("ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "unknown"),
    ],
)
def test_the_range_of_a_batch_names_no_operation(name: str, op: str, calls: READ) -> None:
    trace = started()
    trace.annotation("nccl:coalesced", 100, 150)["args"]["Input Dims"] = [[]]
    trace.kernel(name, 200, 300, stream=20, launch=120)

    (row,) = calls(trace)

    assert row["op"] == op


# Several kernels of one call.


@pytest.mark.parametrize("launched", [True, False], ids=["with launches", "by id alone"])
def test_several_kernels_of_one_operator_are_one_call(launched: bool, calls: READ) -> None:
    trace = started()
    operator = trace.comms_op("all_to_all", 100, 150, metadata={"elements": 4000})
    for place in range(4):
        begin = 200 + 20 * place  # 200-210, 220-230, 240-250, 260-270
        trace.kernel(BARE, begin, begin + 10, stream=20, launch=110 + place if launched else None, under=operator)

    (row,) = calls(trace)

    assert (row["kernels"], row["duration_ns"], row["size_bytes"]) == (4, 40_000, 16_000)
    assert (row["start_ns"], row["op"]) == (200_000, "all_to_all")


def test_several_kernels_with_metadata_and_one_id_are_one_call(calls: READ) -> None:
    # The operator itself was not recorded.
    trace = started()
    for place in range(3):
        args = {**comm_args("all_to_all", ranks=[0, 1, 2, 3]), "External id": 77_777}
        trace.kernel(BARE, 200 + 20 * place, 210 + 20 * place, stream=20, launch=110 + place, args=args)

    (row,) = calls(trace)

    assert row["kernels"] == 3


def test_overlapping_kernels_of_one_call_count_once(calls: READ) -> None:
    trace = started()
    operator = trace.comms_op("all_to_all", 100, 150)
    for begin, end in ((200, 260), (210, 220), (250, 300)):
        trace.kernel(BARE, begin, end, stream=20, launch=110, under=operator)

    (row,) = calls(trace)

    assert row["duration_ns"] == 100_000


# Barriers.


def test_a_barrier_of_nccl_is_told_from_its_all_reduce(calls: READ) -> None:
    trace = started()
    trace.comms_op("barrier", 100, 160, metadata={"elements": 0})
    inner = trace.comms_op("allreduce", 110, 150, metadata={"elements": 1})
    trace.kernel(AR, 200, 300, stream=20, launch=120, under=inner, args=comm_args("allreduce", elements=1))

    (row,) = calls(trace)

    # It does nothing but wait, so its wait is known on one rank too.
    assert (row["op"], row["size_bytes"], row["wait_ns"], row["group"]) == ("barrier", 0, 100_000, "0")


def test_an_all_reduce_beside_a_barrier_stays_one(calls: READ) -> None:
    trace = started()
    trace.comms_op("barrier", 100, 110, metadata={"elements": 0})
    trace.comms_op("allreduce", 120, 150)
    trace.all_reduce(200, 300, launch=130)

    (row,) = calls(trace)

    assert row["op"] == "all_reduce"


# CUDA graphs.


def test_c077_calls_of_a_graph_have_no_launch_of_their_own(calls: READ) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.runtime("cudaGraphLaunch", 5, 9, correlation=900)
    for number in range(3):
        args = {"correlation": 900, "graph node id": number + 1}
        trace.kernel(AR, 20 + 20 * number, 30 + 20 * number, stream=20, args=args)
    trace.all_reduce(500, 520, launch=400)

    rows = calls(trace)

    assert [(row["in_graph"], row["launched_ns"] is None) for row in rows] == 3 * [(True, True)] + [(False, False)]


# Peers and roots as global ranks.


@pytest.mark.parametrize("call", ["broadcast", "reduce", "gather", "scatter"])
def test_the_root_is_a_global_rank(call: str, calls: READ) -> None:
    trace = started(rank=5, world_size=8)
    operator = trace.comms_op(call, 100, 150, metadata={"ranks": [4, 5, 6, 7], "group": "tp", "Rank": 2})
    trace.kernel(BARE, 200, 300, stream=20, launch=120, under=operator)

    (row,) = calls(trace)

    assert (row["root"], row["peer"]) == (6, None)


@pytest.mark.parametrize("call", ["send", "recv"])
def test_c168_the_peer_before_global_ranks_were_written(call: str, calls: READ) -> None:
    # Up to 2.4 the operator alone names the peer, by its place in the group.
    trace = started(rank=5, world_size=8)
    operator = trace.comms_op(call, 100, 150, metadata={"ranks": [1, 5], "group": "pp", "Rank": 0})
    meta = comm_args(call, ranks=[1, 5], group="pp")
    trace.kernel(SEND_RECV, 200, 300, stream=20, launch=120, under=operator, args=meta)

    (row,) = calls(trace)

    assert (row["op"], row["peer"], row["kind_source"]) == (call, 1, "metadata")


def test_a_place_in_a_group_of_unknown_members_is_no_rank(calls: READ) -> None:
    trace = started(rank=5, world_size=8)
    operator = trace.comms_op("send", 100, 150, metadata={"group": "pp", "group_size": 2, "Rank": 0})
    del operator["args"]["Process Group Ranks"]
    trace.kernel(SEND_RECV, 200, 300, stream=20, launch=120, under=operator)

    (row,) = calls(trace)

    assert (row["op"], row["peer"]) == ("send", None)


# What a rank gives and gets.


def test_unequal_splits_are_said_with_the_bytes_of_both_sides(calls: READ) -> None:
    trace = started(world_size=2)
    splits = {"in_split": "[10, 30]", "out_split": "[10, 90]", "elements": 160, "out_elements": 400, "dtype": "Half"}
    trace.collective("all_to_allv", 200, 300, metadata=splits)
    trace.collective("all_to_all", 400, 500, metadata={"elements": 160})

    rows = calls(trace)

    assert [(row["sent_bytes"], row["received_bytes"], row["unequal_splits"]) for row in rows] == [
        (320, 800, True),
        (640, 640, False),
    ]
    # Rows of the split sizes have four elements of two bytes each way.
    assert [row["splits"] for row in rows] == [{"sent_bytes": [80, 240], "received_bytes": [80, 720]}, None]


def test_channels_are_the_grid_beside_the_size_of_the_device(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = started()
    trace.top["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    trace.all_reduce(200, 300, args={"grid": [24, 1, 1]})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["collectives"][0]["channels"] == 24
    assert run.report["ranks"][0]["device_sms"] == 132


@pytest.mark.parametrize(
    ("call", "elements", "out", "sent", "received"),
    [
        ("_allgather_base", 1000, 4000, 4000, 16_000),
        ("_reduce_scatter_base", 4000, 1000, 16_000, 4000),
        ("allreduce", 1000, 1000, 4000, 4000),
        ("send", 1000, 1000, 4000, 0),
        ("recv", 1000, 1000, 0, 4000),
    ],
)
def test_bytes_given_and_gotten(call: str, elements: int, out: int, sent: int, received: int, calls: READ) -> None:
    trace = started()
    trace.collective(call, 200, 300, name=SEND_RECV, metadata={"elements": elements, "out_elements": out})

    (row,) = calls(trace)

    assert (row["sent_bytes"], row["received_bytes"], row["unequal_splits"]) == (sent, received, None)


def test_a_rank_that_sends_nothing_sends_zero_bytes(calls: READ) -> None:
    trace = started(world_size=2)
    splits = {"in_split": "[0, 0]", "out_split": "[3, 4]", "elements": 0, "out_elements": 56}
    trace.collective("all_to_allv", 200, 300, metadata=splits)

    (row,) = calls(trace)

    assert (row["size_bytes"], row["sent_bytes"], row["received_bytes"]) == (0, 0, 224)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Process Group Ranks", {"0": 1}),
        ("Process Group Ranks", [[0], 1]),
        ("Group size", 1 << 40),
        ("Group size", -2),
        ("In split size", {}),
        ("Rank", "last"),
        ("Dst Rank", 1e300),
        ("dtype", ["Float"]),
    ],
)
@pytest.mark.parametrize("batched", [True, False])
def test_metadata_of_another_kind_is_as_good_as_none(batched: bool, key: str, value: Any, calls: READ) -> None:
    trace = started(rank=1)
    operator = trace.comms_op("send", 100, 105, metadata={"Dst Rank": 2, key: value})
    trace.kernel(BARE, 200, 300, stream=20, launch=110 if batched else 102, under=None if batched else operator)

    (row,) = calls(trace)

    assert (row["op"], row["duration_ns"]) == ("send", 100_000)


# Groups completed from the head of the file.


def test_c117_a_call_without_its_ranks_belongs_to_the_group_of_its_name(calls: READ) -> None:
    trace = started(world_size=8)
    for place in range(2):
        trace.all_reduce(200 + 100 * place, 250 + 100 * place, metadata={"group": "dp", "ranks": [0, 4]})
    del trace.events[-1]["args"]["Process Group Ranks"]

    rows = calls(trace)

    assert rows[0]["group_id"] == rows[1]["group_id"]


def test_c119_the_configuration_must_fit_what_the_shortened_list_shows(run_analyze: Analyze, tmp_path: Path) -> None:
    # A group of the same name and size with other members (from before a restart) completes nothing.
    trace = Trace(rank=0, world_size=64)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.all_reduce(700, 800, metadata={"group": "dp", "group_size": 32})
    trace.events[-1]["args"]["Process Group Ranks"] = "[0, 2, 4, ..., 62]"
    config = trace.top["distributedInfo"]["pg_config"]
    config.append({"pg_name": "dp", "pg_desc": "data", "pg_size": 32, "ranks": list(range(32))})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (group,) = run.report["groups"]
    assert (group["members"], group["ranks"], group["group_size"]) == ("partly", None, 32)


# Symmetric memory and user buffers.


def test_c063_copies_of_one_operation_of_symmetric_memory_are_one_call(calls: READ) -> None:
    trace = started()
    trace.cpu_op("symm_mem::fused_all_gather_matmul", 100, 200)
    for place in range(3):
        inner = trace.cpu_op("aten::copy_", 110 + 20 * place, 120 + 20 * place)
        begin = 610 + 50 * place
        trace.copy(
            begin, begin + 30, "PtoP (Device -> Device)", launch=112 + 20 * place, under=inner, stream=21 + place
        )
    trace.cpu_op("symm_mem::fused_matmul_reduce_scatter", 300, 350)
    trace.copy(800, 820, "PtoP (Device -> Device)", launch=310, stream=21)

    rows = calls(trace)

    assert [(row["op"], row["kernels"], row["copy_engine"], row["kind_source"]) for row in rows] == [
        ("all_gather", 3, True, "annotation"),
        ("reduce_scatter", 1, True, "annotation"),
    ]


def test_c063_copies_without_launches_belong_to_the_range_of_their_operator(calls: READ) -> None:
    trace = started()
    trace.cpu_op("symm_mem::fused_all_gather_matmul", 100, 200)
    for place in range(2):
        inner = trace.cpu_op("aten::copy_", 110 + 20 * place, 120 + 20 * place)
        trace.copy(610 + 50 * place, 640 + 50 * place, "PtoP (Device -> Device)", under=inner)
    outside = trace.cpu_op("aten::copy_", 210, 220)
    trace.copy(750, 770, "PtoP (Device -> Device)", under=outside)

    (row,) = calls(trace)

    assert (row["op"], row["kernels"], row["duration_ns"]) == ("all_gather", 2, 60_000)


def test_peer_copies_beside_signals_of_user_buffers_communicate(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = started()
    trace.kernel("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", 700, 702, stream=31)
    trace.copy(702, 750, "PtoP (Device -> Device)", stream=31)
    trace.copy(760, 780, "PtoP (Device -> Device)", stream=32)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["comm_ns"], whole["copy_ns"]) == (50_000, 20_000)
    assert run.report["coverage"]["possible_comm"] == {"calls": 1, "duration_ns": 20_000}


LIMITS = {
    "void deep_ep::internode_ll::dispatch<true, false, 7168>(...)": "receive hooks",
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": "copy engine",
    "wait_signal": "cuStreamWaitValue",
    "void mscclpp::collective::allreducePacket<float>(...)": "proxy",
    "EpDispatchInterNodeV1Kernel_bf16": "proxy",
}


@pytest.mark.parametrize(("name", "word"), LIMITS.items(), ids=list(LIMITS))
def test_what_leaves_no_event_is_said_where_such_a_library_is_seen(
    name: str, word: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = started()
    trace.kernel(name, 700, 800, stream=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (note,) = run.notes("no-event")
    assert word in note


def test_plain_nccl_has_no_such_limit(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = started()
    trace.all_reduce(700, 800)

    assert run_analyze(trace.write(tmp_path / "rank0.json")).notes("no-event") == []


# Patterns of the project.


@pytest.mark.parametrize("depth", ["", "below/it"])
def test_c056_patterns_of_the_project_and_of_the_command_add_up(
    depth: str, run_analyze: Analyze, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / depth).mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.commprof]\ncomm-pattern = ["^acme_"]\n')
    trace = Trace(world_size=2)
    trace.kernel("acme_ring_exchange", 0, 100)
    trace.kernel("zeta_pull", 100, 150)
    path = trace.write(tmp_path / "rank0.json")
    monkeypatch.chdir(project / depth)

    alone = run_analyze(path)
    both = run_analyze(path, "--comm-pattern", "^zeta_")

    assert alone.report["ranks"][0]["whole"]["comm_ns"] == 100_000
    assert both.report["ranks"][0]["whole"]["comm_ns"] == 150_000
