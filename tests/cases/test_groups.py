"""C117, C119 to C121, C129 and C130: groups, operations and sizes of the calls of one rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders.command import Run
from tests.builders.kineto import SEND_RECV, Trace, t0
from tests.cases.t0_numbers import assert_t0

Analyze = Callable[..., Run]
NEW_FORM = "[" + ", ".join(str(rank) for rank in range(29)) + ", ..., 63]"  # 29 values, then the last
OLD_FORM = "[" + ", ".join(str(rank) for rank in range(30)) + ", ...]"  # 30 values
MIDDLE = "[0, 1, ..., 28, ..., 63]"


def of_64(ranks: str, known: bool) -> Trace:
    """``T0`` in a job of 64 ranks whose list of ranks was shortened by the profiler."""
    trace = Trace(rank=0, world_size=64)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.all_reduce(500, 900, metadata={"group_size": 64})
    trace.events[-1]["args"]["Process Group Ranks"] = ranks
    if not known:
        del trace.top["distributedInfo"]["pg_config"]
    return trace


@pytest.mark.parametrize("ranks", [NEW_FORM, OLD_FORM, MIDDLE], ids=["new form", "old form", "short"])
@pytest.mark.parametrize("known", [True, False], ids=["with pg_config", "without"])
def test_c119_shortened_lists_of_ranks(known: bool, ranks: str, run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(of_64(ranks, known).write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["group_size"] == 64
    (group,) = run.report["groups"]
    assert group["group_size"] == 64
    if known:
        assert (group["members"], group["ranks"]) == ("known", list(range(64)))
    else:
        assert group["members"] == "partly"
        assert set(group["ranks"] or []) <= set(range(64))


def test_c114_c119_shortened_lists_tell_groups_of_one_name_apart(run_analyze: Analyze, tmp_path: Path) -> None:
    # Two groups of 32 ranks, one name; the configuration is missing and both lists are shortened.
    paths = []
    for rank in (0, 1):
        trace = Trace(rank=rank, world_size=64)
        trace.step(1, 0, 1000)
        trace.gemm(0, 600)
        trace.all_reduce(500, 900, metadata={"group": "dp", "group_size": 32})
        trace.events[-1]["args"]["Process Group Ranks"] = f"[{rank}, {rank + 2}, {rank + 4}, ..., {rank + 62}]"
        del trace.top["distributedInfo"]["pg_config"]
        paths.append(trace.write(tmp_path / f"rank{rank}.json"))

    run = run_analyze(paths)

    assert [(group["group_size"], group["members"]) for group in run.report["groups"]] == 2 * [(32, "partly")]
    assert len({call["group_id"] for call in run.report["collectives"]}) == 2


def test_c117_calls_without_optional_fields_stay_in_the_summary(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for number in range(4):
        trace.all_reduce(100 * number, 100 * number + 50)
        if number >= 2:
            args = trace.events[-1]["args"]
            args["Process Group Name"] = "9"
            for key in ("In split size", "Out split size", "Process Group Ranks"):
                del args[key]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["size_bytes"] for call in run.report["collectives"]] == 4 * [4_000_000]
    groups = {group["group"]: group for group in run.report["groups"]}
    assert {name: (group["calls"], group["members"]) for name, group in groups.items()} == {
        "0": (2, "known"),
        "9": (2, "unknown"),
    }


def test_c120_a_send_has_a_counter_of_its_own(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.events[2]["args"]["Seq"] = 5
    trace.collective("send", 920, 960, metadata={"seq": 5, "Dst Rank": 1, "Src Rank": 0})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = [(call["op"], call["seq"]) for call in run.report["collectives"]]
    assert rows == [("all_reduce", 5), ("send", 5)]
    matches = [call["match"] for call in run.report["collectives"] if call["match"] is not None]
    assert len(set(matches)) == len(matches)


CALLS = {
    "broadcast": "broadcast",
    "reduce": "reduce",
    "send": "send",
    "recv": "recv",
    "gather": "gather",
    "scatter": "scatter",
    "barrier": "barrier",
    "allreduce": "all_reduce",
}


def test_c121_one_of_each_gives_eight_rows(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for place, name in enumerate(CALLS):
        trace.collective(name, 100 * place, 100 * place + 50)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["op"] for call in run.report["collectives"]] == list(CALLS.values())
    assert sorted(group["op"] for group in run.report["groups"]) == sorted(CALLS.values())
    assert run.report["ranks"][0]["steps"][0]["comm_ns"] == 400_000


@pytest.mark.parametrize(("field", "peer"), [("Dst Rank", 6), ("Src Rank", 4)])
def test_c168_peers_are_global_ranks(field: str, peer: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(rank=5, world_size=8)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    call = "send" if field == "Dst Rank" else "recv"
    trace.collective(call, 500, 900, metadata={"ranks": [4, 5, 6, 7], "group": "pp", field: peer})

    run = run_analyze(trace.write(tmp_path / "rank5.json"))

    assert [(call["op"], call["peer"]) for call in run.report["collectives"]] == [(call, peer)]


# C129: sizes.


ELEMENT_BYTES = {
    "Byte": 1, "Char": 1, "Short": 2, "Int": 4, "Long": 8, "Half": 2, "Float": 4, "Double": 8, "Bool": 1,
    "BFloat16": 2, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e4m3fn": 1, "Float8_e5m2": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "Float8_e8m0fnu": 1,
    "UInt16": 2, "UInt32": 4, "UInt64": 8, "Float4_e2m1fn_x2": 1, "UInt4": 1, "Int3": 1, "Bits16": 2, "QInt8": 1,
    "c10::BFloat16": 2, "c10::Float8_e4m3fn": 1, "signed char": 1, "unsigned char": 1, "long int": 8, "short int": 2,
    "unsigned int": 4, "c10::complex<float>": 8, "bf16": 2,
}  # fmt: skip


def test_c129_the_size_of_every_type(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    for place, dtype in enumerate(ELEMENT_BYTES):
        trace.all_reduce(200 * place, 200 * place + 100, metadata={"dtype": dtype})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    calls = dict(zip(ELEMENT_BYTES, run.report["collectives"], strict=True))
    assert {dtype: call["size_bytes"] for dtype, call in calls.items()} == {
        dtype: 1_000_000 * size for dtype, size in ELEMENT_BYTES.items()
    }
    assert all(call["dtype"] is not None for call in calls.values())
    assert run.report["coverage"]["unknown_dtype"] == 0


def test_c129_an_unknown_type_has_no_size_but_keeps_its_time(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.all_reduce(0, 100, metadata={"dtype": "Posit8"})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (call,) = run.report["collectives"]
    assert (call["size_bytes"], call["busbw_at_least_gbps"], call["duration_ns"]) == (None, None, 100_000)
    assert run.report["coverage"]["unknown_dtype"] == 1


@pytest.mark.parametrize(
    ("call", "elements", "out", "size"),
    [
        ("allreduce", 1000, 1000, 4000),
        ("broadcast", 1000, 1000, 4000),
        ("reduce", 1000, 1000, 4000),
        ("_allgather_base", 1000, 4000, 16000),  # the gathered output
        ("all_gather", 1000, 4000, 16000),
        ("_reduce_scatter_base", 4000, 1000, 16000),  # the full input
        ("reduce_scatter", 4000, 1000, 16000),
        ("all_to_all", 4000, 4000, 16000),  # the whole send buffer
        ("all_to_allv", 3000, 5000, 12000),
        ("gather", 1000, 4000, 16000),  # at the root
        ("scatter", 4000, 1000, 16000),
        ("send", 1000, 1000, 4000),
        ("recv", 1000, 1000, 4000),
    ],
)
def test_c125_which_buffer_is_the_size(
    call: str, elements: int, out: int, size: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace(world_size=4)
    trace.collective(call, 0, 100, name=SEND_RECV, metadata={"elements": elements, "out_elements": out})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["collectives"][0]["size_bytes"] == size


def test_c130_without_element_counts_there_is_no_bandwidth(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for key in ("In msg nelems", "Out msg nelems"):
        del trace.events[2]["args"][key]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    (call,) = run.report["collectives"]
    assert {call[key] for key in ("size_bytes", "algbw_gbps", "busbw_gbps", "busbw_at_least_gbps")} == {None}


@pytest.mark.parametrize("key", ["In msg size", "In msg nelems"])
def test_c130_element_counts_in_the_spelling_of_2023(key: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    args = trace.events[2]["args"]
    args[key] = args.pop("In msg nelems")
    args[key.replace("In", "Out")] = args.pop("Out msg nelems")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["size_bytes"] == 4_000_000


@pytest.mark.parametrize("key", ["Process Group Name", "Process Group ID"])
def test_group_names_of_both_spellings(key: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    args = trace.events[2]["args"]
    del args["Process Group Name"]
    args[key] = 0 if key.endswith("ID") else "0"

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["group"] == "0"


def test_c114_groups_of_one_name_are_told_apart_by_their_members(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(rank=0, world_size=4)
    trace.step(1, 0, 1000)
    trace.gemm(0, 10)
    trace.all_reduce(100, 200, metadata={"group": "1", "ranks": [0, 1]})
    trace.all_reduce(300, 400, metadata={"group": "1", "ranks": [0, 2]})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    ids = [call["group_id"] for call in run.report["collectives"]]
    assert ids[0] != ids[1]
    assert sorted(tuple(group["ranks"]) for group in run.report["groups"]) == [(0, 1), (0, 2)]


def test_c152_shard_and_replicate_groups_have_a_row_each_and_their_exposed_times_add_up(
    run_analyze: Analyze, tmp_path: Path
) -> None:
    shards, replicas = [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 4], [1, 5], [2, 6], [3, 7]]
    for rank in range(8):
        trace = Trace(rank=rank, world_size=8)
        trace.step(1, 0, 1000)
        shard = {"group": f"s{rank // 4}", "ranks": shards[rank // 4]}
        copies = {"group": f"r{rank % 4}", "ranks": replicas[rank % 4], "elements": 250_000}
        trace.gemm(0, 300)
        trace.all_gather(200, 350 + rank, stream=21, metadata={**shard, "elements": 250_000})
        trace.gemm(400, 600)
        trace.reduce_scatter(590, 700, stream=22, metadata=shard)
        trace.all_reduce(700, 760 + rank % 4, metadata=copies)
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "in")

    rows = {(row["group"], row["op"]): row for row in run.report["groups"]}
    assert {key: (row["ranks"], row["group_size"]) for key, row in rows.items()} == {
        **{(f"s{i}", op): (shard, 4) for i, shard in enumerate(shards) for op in ("all_gather", "reduce_scatter")},
        **{(f"r{i}", "all_reduce"): (pair, 2) for i, pair in enumerate(replicas)},
    }
    # Gather 300 to 350 + rank, scatter 600 to 700, reduction 700 to 760 + rank mod 4.
    total = {rank: 1000 * (50 + rank + 100 + 60 + rank % 4) for rank in range(8)}
    assert {row["rank"]: row["whole"]["exposed_comm_ns"] for row in run.report["ranks"]} == total
    assert sum(row["exposed_ns"] for row in rows.values()) == sum(total.values())
    by_rank = dict.fromkeys(range(8), 0)
    for row in run.report["exposure"]:
        by_rank[row["rank"]] += row["exposed_ns"] if row["by"] == "group" else 0
    assert by_rank == total
