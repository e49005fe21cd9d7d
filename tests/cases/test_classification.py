"""C053 to C056, C059 and C063 to C082: metadata, links, patterns and categories decide what an event is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import CPU_PROCESS, GEMM, SEND_RECV, Trace, t0
from tests.cases.t0_numbers import assert_t0, faults, repaired

Analyze = Callable[..., Run]
GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
AR = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def step_of(run: Run) -> Any:
    """The only window of the only rank."""
    (row,) = run.report["ranks"]
    (step,) = row["steps"]
    return step


# C053, C054, C059: metadata first, then the innermost operator, then the name.


def test_c053_metadata_then_operator_then_name(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.collective("allreduce", 100, 200, name=GENERIC)
    operator = trace.comms_op("_allgather_base", 10, 20, metadata={"elements": 250_000})
    trace.kernel(GENERIC, 300, 400, stream=20, under=operator)
    trace.kernel(GENERIC, 700, 800, stream=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = run.report["collectives"]
    assert [(r["op"], r["kind_source"], r["size_bytes"]) for r in rows] == [
        ("all_reduce", "metadata", 4_000_000),
        ("all_gather", "link", 2_000_000),
        ("unknown", "name", None),
    ]
    assert step_of(run)["comm_ns"] == 300_000
    assert run.report["coverage"]["unknown_collective"] == 1
    assert run.report["coverage"]["comm_without_metadata"] == 1


COLLECTIVE_NAMES = {
    "allreduce": "all_reduce", "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast", "_broadcast_oop": "broadcast", "reduce": "reduce", "_reduce_oop": "reduce",
    "all_gather": "all_gather", "_allgather_base": "all_gather", "allgather_into_tensor_coalesced": "all_gather",
    "reduce_scatter": "reduce_scatter", "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all": "all_to_all", "all_to_allv": "all_to_all",
    "send": "send", "recv": "recv", "gather": "gather", "scatter": "scatter", "barrier": "barrier",
}  # fmt: skip


@pytest.mark.parametrize("name", [SEND_RECV, GENERIC], ids=["SendRecv", "Generic"])
def test_c054_the_metadata_wins_over_the_kernel_name(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(0, 600)
    for place, call in enumerate(COLLECTIVE_NAMES):
        trace.collective(call, 1000 * place + 500, 1000 * place + 900, name=name)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = dict(zip(COLLECTIVE_NAMES, run.report["collectives"], strict=True))
    assert {call: row["op"] for call, row in rows.items()} == COLLECTIVE_NAMES
    assert {row["kind_source"] for row in rows.values()} == {"metadata"}


def test_c054_algorithm_and_protocol_are_never_stated(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)
    trace.kernel(AR, 500, 900, stream=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    shown = (run.stdout + run.json_bytes.decode()).replace(AR, "")
    for word in ("RING", "Ring", "LL128", "NVLS", "protocol"):
        assert word not in shown


def test_c059_the_innermost_operator_decides(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.annotation("nccl:all_gather", 5, 60)
    comms = trace.comms_op("_allgather_base", 6, 50)
    trace.kernel("xyz_kernel", 100, 200, stream=20, launch=10, under=comms)
    copies = trace.cpu_op("aten::copy_", 20, 40)
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
    trace.kernel(name, 200, 500, stream=20, launch=25, under=copies)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert (row["whole"]["comm_ns"], row["whole"]["compute_ns"]) == (100_000, 300_000)
    (call,) = run.report["collectives"]
    assert (call["op"], call["kind_source"], call["start_ns"]) == ("all_gather", "link", 0)


@pytest.mark.parametrize(("ranks", "size"), [([0], 1), (None, 1)], ids=["group of rank 0", "size 1 without ranks"])
def test_a_call_of_a_group_of_one_rank_is_no_communication(
    ranks: list[int] | None, size: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    trace.all_reduce(910, 950, metadata={"ranks": ranks or [0], "group": "self", "group_size": size})
    if ranks is None:
        del trace.events[-1]["args"]["Process Group Ranks"]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = step_of(run)
    assert (step["comm_ns"], step["compute_ns"]) == (400_000, 640_000)
    assert len(run.report["collectives"]) == 1


# C055, C056: patterns of the user.


def acme(name: str = "acme_ring_exchange") -> Trace:
    """One kernel of a private library."""
    trace = Trace()
    trace.kernel(name, 0, 100)
    return trace


@pytest.mark.parametrize(
    ("name", "pattern"),
    [("my_nccl_free_gemm", "my_nccl"), ("acme_ring_exchange", "^acme_"), ("acme_ring_exchange", "ring.*ge$")],
)
def test_c055_c056_a_pattern_makes_a_kernel_communication(
    name: str, pattern: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    path = acme(name).write(tmp_path / "rank0.json")

    plain = run_analyze(path)
    told = run_analyze(path, "--comm-pattern", pattern)

    assert plain.code == 3  # a job of two ranks without any communication
    assert plain.report["ranks"][0]["whole"]["compute_ns"] == 100_000
    assert told.code == 0
    whole = told.report["ranks"][0]["whole"]
    assert (whole["comm_ns"], whole["compute_ns"]) == (100_000, 0)
    (call,) = told.report["collectives"]
    assert call["kind_source"] == "pattern"


def test_c056_several_patterns(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = acme()
    trace.kernel("zeta_pull", 100, 150)

    run = run_analyze(trace.write(tmp_path / "rank0.json"), "--comm-pattern", "^acme_", "--comm-pattern", "^zeta_")

    assert run.report["ranks"][0]["whole"]["comm_ns"] == 150_000


def test_c056_a_pattern_comes_before_every_other_rule(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.device_event("kernel", "__amd_rocclr_copyBuffer", 910, 950, stream=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"), "--comm-pattern", "copyBuffer")

    assert step_of(run)["comm_ns"] == 440_000


def test_c056_a_pattern_that_matches_nothing_is_one_warning(run_analyze: Analyze, tmp_path: Path) -> None:
    path = t0().write(tmp_path / "rank0.json")

    plain = run_analyze(path)
    run = run_analyze(path, "--comm-pattern", "^no_such_kernel_")

    assert_t0(run)
    extra = [line for line in run.lines if line not in plain.lines]
    assert len(extra) == 1
    assert "^no_such_kernel_" in extra[0]


@pytest.mark.parametrize("pattern", ["(", "[a-", "*x", "(?P<n>a)(?P<n>b)", "\\"])
def test_c056_an_invalid_pattern_is_refused(pattern: str, run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(acme().write(tmp_path / "rank0.json"), "--comm-pattern", pattern)

    assert (run.code, run.report, len(run.lines)) == (2, None, 1)
    assert pattern in run.lines[0]


# C063: copies between devices.


def test_c063_copies_are_communication_only_under_a_collective(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 20, launch=1)
    gather = trace.comms_op("_allgather_base", 100, 150)
    trace.copy(200, 300, "PtoP (Device -> Device)", launch=110, under=gather)
    local = trace.cpu_op("aten::copy_", 160, 180)
    trace.copy(300, 420, "DtoD (Device -> Device)", launch=165, under=local)
    trace.copy(420, 500, "PtoP (Device -> Device)")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["comm_ns"], whole["copy_ns"]) == (100_000, 200_000)
    (call,) = run.report["collectives"]
    assert (call["op"], call["copy_engine"], call["duration_ns"]) == ("all_gather", True, 100_000)
    assert run.report["coverage"]["possible_comm"] == {"calls": 1, "duration_ns": 80_000}


@pytest.mark.parametrize("kind", ["DtoD (Device -> Device)", "PtoP (Device -> Device)", "PtoP"])
def test_c063_copy_engine_collectives_of_every_kind(kind: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    gather = trace.comms_op("all_to_all", 100, 150)
    trace.copy(920, 960, kind, under=gather)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert step_of(run)["comm_ns"] == 440_000
    assert [call["copy_engine"] for call in run.report["collectives"]] == [False, True]


def test_c063_a_copy_inside_the_range_of_a_collective_stays_a_copy(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.comms_op("_allgather_base", 910, 940)
    inner = trace.cpu_op("aten::copy_", 912, 930)
    trace.copy(940, 960, "DtoD (Device -> Device)", launch=915, under=inner)
    trace.gemm(5, 6, launch=2)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["comm_ns"], whole["copy_ns"]) == (400_000, 20_000)
    assert run.report["coverage"]["possible_comm"] == {"calls": 0, "duration_ns": 0}


@pytest.mark.parametrize(
    "scope",
    [
        "symm_mem::fused_all_gather_matmul",
        "fused_all_gather_matmul",
        "fused_matmul_reduce_scatter",
        "symm_mem::all_to_all_vdev",
    ],
)
def test_peer_copies_inside_a_symmetric_memory_operation(scope: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(10, 20, launch=1)
    trace.cpu_op(scope, 100, 200)
    inner = trace.cpu_op("aten::copy_", 110, 150)
    trace.copy(200, 300, "PtoP (Device -> Device)", launch=120, under=inner)
    trace.all_reduce(400, 500)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["ranks"][0]["whole"]["comm_ns"] == 200_000


@pytest.mark.parametrize("kind", ["HtoD", "DtoH", "DtoD", "HtoH", "PtoP"])
@pytest.mark.parametrize("cat", ["gpu_memcpy", "Memcpy"])
def test_copies_are_neither_compute_nor_communication(
    cat: str, kind: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = t0()
    trace.copy(900, 950, kind)["cat"] = cat
    trace.device_event("gpu_memset" if cat == "gpu_memcpy" else "Memset", "Memset (Device)", 950, 960, stream=7)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = step_of(run)
    assert (step["compute_ns"], step["comm_ns"]) == (600_000, 400_000)
    assert (step["copy_ns"], step["exposed_copy_ns"], step["idle_ns"]) == (60_000, 60_000, 40_000)


# C064 to C069: rows that are no work.


def test_c064_gpu_annotations_are_no_work(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.all_reduce(0, 100)
    trace.annotation("nccl:all_reduce", 0, 105, cat="gpu_user_annotation", tid=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["comm_ns"], whole["duration_ns"]) == (100_000, 100_000)


def test_c065_synchronisation_rows_are_no_work(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.all_reduce(500, 900)
    trace.device_event("cuda_sync", "Stream Sync", 0, 1000, stream=7)
    trace.device_event("cuda_sync", "Stream Wait Event", 0, 400, stream=7, args={"wait_on_stream": 20})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = step_of(run)
    assert (step["compute_ns"], step["exposed_comm_ns"], step["idle_ns"]) == (0, 400_000, 600_000)
    assert step["overlap_ratio"] == 0.0


@pytest.mark.parametrize(
    "cat",
    ["Trace", "overhead", "cuda_sync", "cuda_event", "gpu_user_annotation", "user_annotation"],
)
def test_c066_bookkeeping_is_no_work(cat: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.add(cat, "PyTorch Profiler (0)", 0, 1_000_000, "Spans", "PyTorch Profiler", {"Op count": 0})
    trace.add(cat, "Buffer Flush", 100, 300, CPU_PROCESS, 1, {})
    trace.events.append(
        {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": 0, "ts": 0}
    )
    trace.events.append({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 86_400_000_000})

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0


def test_c067_a_cpu_operator_with_a_stream_is_no_device_work(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.cpu_op("triton_poi_fused_add_0", 0, 500, args={"stream": 0, "device": 0})
    trace.kernel("triton_poi_fused_add_0", 510, 511)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["ranks"][0]["whole"]["compute_ns"] == 1_000


@pytest.mark.parametrize("stream", [0, 7, 1_000_007])
def test_c068_every_stream_is_device_work(stream: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 600, stream=stream)
    trace.all_reduce(500, 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


@pytest.mark.parametrize("cat", ["kernel", "Kernel"])
def test_c068_categories_of_every_era(cat: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for event in trace.events[1:]:
        event["cat"] = cat
        event["tid"] = f"stream {event['tid']}"  # as in 2021

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert run.report["collectives"][0]["stream"] == 20


def test_c069_operators_only_is_no_answer(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 100)
    trace.cpu_op("aten::mm", 10, 90)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert (run.code, run.report, len(run.lines)) == (3, None, 1)
    assert "no GPU kernels in this trace" in run.lines[0]
    assert "0 %" not in run.stdout
    assert "0.0 %" not in run.stdout


def test_c070_one_rank_without_communication(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = step_of(run)
    assert run.code == 0
    assert (step["compute_ns"], step["comm_ns"], step["overlap_ratio"]) == (600_000, 0, None)
    assert len(run.notes("no-communication")) == 1
    assert "no communication" in run.everything.lower()
    assert "n/a" in run.stdout


def test_c071_a_job_of_eight_without_communication(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=8)
    trace.step(1, 0, 1000)
    trace.gemm(0, 600)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code == 3
    assert step_of(run)["overlap_ratio"] is None
    assert [line for line in run.lines if "communication" in line and "8" in line]
    assert "nan" not in run.stdout.lower()


# C072, C073: gloo on the CPU.


def test_c072_gloo_spans_are_a_union(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(backend="gloo")
    trace.step(1, 0, 500)
    trace.annotation("gloo:all_reduce", 100, 300, tid=201)
    trace.annotation("gloo:all_reduce", 250, 400, tid=202)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code == 0, run.stderr
    step = step_of(run)
    assert (step["comm_ns"], step["compute_ns"], step["exposed_comm_ns"]) == (300_000, 0, 300_000)
    assert "includes queueing and waiting" in run.everything


@pytest.mark.parametrize(
    ("operator", "span", "op"),
    [
        ("c10d::_reduce_scatter_base_", "gloo:all_reduce", "reduce_scatter"),
        ("c10d::reduce_scatter_tensor_coalesced_", "gloo:all_reduce", "reduce_scatter"),
        ("c10d::allreduce_", "gloo:all_reduce", "all_reduce"),
        ("c10d::_allgather_base_", "gloo:all_gather", "all_gather"),
        ("c10d::allgather_into_tensor_coalesced_", "gloo:all_gather", "all_gather"),
        ("c10d::broadcast_", "gloo:broadcast", "broadcast"),
        ("c10d::reduce_", "gloo:reduce", "reduce"),
        ("c10d::alltoall_base_", "gloo:all_to_all", "all_to_all"),
        ("c10d::gather_", "gloo:gather", "gather"),
        ("c10d::scatter_", "gloo:scatter", "scatter"),
        ("c10d::barrier", "gloo:barrier", "barrier"),
    ],
)
@pytest.mark.parametrize("layout", ["enclosing", "enqueue only"])
def test_c073_the_operator_names_the_collective(
    layout: str, operator: str, span: str, op: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace(backend="gloo")
    trace.step(1, 0, 500)
    trace.cpu_op("aten::mm", 10, 90)
    trace.cpu_op(operator, 100, 400 if layout == "enclosing" else 120)
    trace.annotation(span, 130, 380, tid=201)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (call,) = run.report["collectives"]
    assert (call["op"], call["duration_ns"]) == (op, 250_000)
    assert step_of(run)["comm_ns"] == 250_000


def test_gloo_spans_beside_device_events_are_no_work(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.annotation("gloo:all_reduce", 900, 1000, tid=201)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    step = step_of(run)
    assert (step["comm_ns"], step["idle_ns"]) == (400_000, 100_000)
    (note,) = run.notes("gloo-beside-device")
    assert "1 gloo call" in note
    assert "100 µs" in note


# C074 to C078: what counts as a call.


def test_c074_wait_rows_add_neither_calls_nor_bytes(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for number in range(3):
        trace.comms_op("allreduce", 10 * number, 10 * number + 3)
        trace.comms_op("wait", 10 * number + 4, 10 * number + 5, metadata={"elements": 0, "dtype": "Byte"})
        trace.all_reduce(100 * number + 100, 100 * number + 150)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["size_bytes"] for call in run.report["collectives"]] == 3 * [4_000_000]
    assert sum(group["calls"] for group in run.report["groups"]) == 3
    assert sum(group["bytes"] for group in run.report["groups"]) == 12_000_000


def test_c075_a_call_without_arguments_stays_in_the_time(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    for number in range(4):
        trace.all_reduce(100 * number, 100 * number + 50)
    trace.kernel(AR, 400, 450, stream=20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert step_of(run)["comm_ns"] == 250_000
    assert len(run.report["collectives"]) == 5
    assert run.report["coverage"]["group_unknown"] == 1
    assert run.report["coverage"]["comm_without_metadata"] == 1
    (without,) = (call for call in run.report["collectives"] if call["size_bytes"] is None)
    assert (without["group"], without["busbw_at_least_gbps"]) == (None, None)


@pytest.mark.parametrize("form", ["new", "old"])
def test_c076_ids_and_categories_of_both_forms(form: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for number, event in enumerate(trace.events[1:], start=500):
        event["args"]["correlation"] = number
        event["args"]["External id"] = number if form == "new" else number - 490
    cat = "user_annotation" if form == "new" else "cpu_op"
    trace.annotation("DistributedDataParallel.forward", 0, 50, cat=cat)
    for number in (10, 11):
        trace.cpu_op("aten::mm", number, number + 1)["args"]["External id"] = number

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


def graph(kernels: int = 40, comm: int = 4) -> Trace:
    """One ``cudaGraphLaunch`` of many kernels, the last of them NCCL."""
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.runtime("cudaGraphLaunch", 5, 9, correlation=900)
    for number in range(kernels):
        start = 10 + 10 * number
        args = {"correlation": 900, "graph node id": number}
        if number < kernels - comm:
            trace.gemm(start, start + 10, args=args)
        else:
            trace.kernel(AR, start, start + 10, stream=20, args=args)
    return trace


def test_c077_all_kernels_of_a_graph_launch_are_counted(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(graph().write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["compute_ns"], whole["comm_ns"]) == (360_000, 40_000)
    assert run.report["coverage"]["device_events"] == 40
    assert run.report["coverage"]["graph_kernels"] == 40
    assert sum(call["kernels"] for call in run.report["collectives"]) == 4


def test_c077_kernels_of_a_graph_are_never_clipped(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = graph()
    first = trace.events[2]
    assert first["name"] == GEMM
    first["dur"] = 395  # contains every later kernel of its stream: a long wait looks the same

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert repaired(run) == {}
    assert run.report["ranks"][0]["whole"]["compute_ns"] == 395_000


def test_c078_a_kernel_before_its_launch(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(97, 200, launch=100)
    trace.gemm(200, 600)
    trace.all_reduce(500, 900, launch=110)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.code == 0
    coverage = run.report["coverage"]
    assert coverage["clamped_launches"] == 1
    assert (coverage["device_events"], coverage["linked_device_events"]) == (3, 2)


# C079, C080: durations that the profiler got wrong, and those that it did not.


def ladder(first_us: int, count: int = 11, **more: Any) -> Trace:
    """Stream 7: kernels of one name every 30 µs, 20 long each except the first."""
    trace = Trace(world_size=1)
    for number in range(count):
        trace.gemm(30 * number, 30 * number + (20 if number else first_us), **more)
    return trace


def test_c079_an_impossible_duration_is_clipped_at_the_next_start(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(ladder(1_600_000).write(tmp_path / "rank0.json"))

    whole = run.report["ranks"][0]["whole"]
    assert (whole["compute_ns"], whole["duration_ns"]) == (230_000, 320_000)
    assert repaired(run) == {"clipped": 1}


@pytest.mark.parametrize(
    ("first_us", "clipped"),
    [
        (199, 0),  # contains six whole, but below 10 times the median of 20
        (200, 1),  # exactly 10 times
        (80, 0),
    ],
)
def test_c079_clipping_needs_ten_times_the_median(
    first_us: int, clipped: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    run = run_analyze(ladder(first_us).write(tmp_path / "rank0.json"))

    assert repaired(run).get("clipped", 0) == clipped


@pytest.mark.parametrize(("later", "clipped"), [(1, 0), (2, 1)])
def test_c079_clipping_needs_two_later_events_inside(
    later: int, clipped: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    # The median of the name is 20: eleven more of them on another stream.
    trace = Trace(world_size=1)
    for number in range(11):
        trace.gemm(30 * number, 30 * number + 20, stream=9)
    trace.gemm(1000, 1500)
    for number in range(later):
        trace.kernel("other", 1100 + 100 * number, 1150 + 100 * number)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert repaired(run).get("clipped", 0) == clipped
    expected = 11 * 20 + (500 if not clipped else 100 + 50 * later)
    assert run.report["ranks"][0]["whole"]["compute_ns"] == expected * 1000


def test_c079_events_of_other_streams_do_not_clip(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.gemm(0, 1000)
    for number in range(10):
        trace.gemm(30 * number, 30 * number + 20, stream=9)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert repaired(run) == {}
    assert run.report["ranks"][0]["whole"]["compute_ns"] == 1_000_000


def test_c079_communication_is_never_clipped(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.all_reduce(0, 5000)
    for number in range(10):
        trace.all_reduce(100 + 30 * number, 120 + 30 * number)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert repaired(run) == {}
    assert run.report["ranks"][0]["whole"]["comm_ns"] == 5_000_000


def test_c080_dependent_launches_really_overlap(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.gemm(0, 100)
    trace.gemm(95, 200)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["ranks"][0]["whole"]["compute_ns"] == 200_000
    assert faults(run) == 0


# C081, C082.


def test_c081_names_that_no_rule_knows_are_listed_from_5_percent(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.step(1, 0, 1000)
    trace.gemm(0, 900)
    trace.kernel("my_custom_kernel", 900, 960)
    trace.kernel("another_odd_thing", 960, 1000)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert step_of(run)["compute_ns"] == 1_000_000
    coverage = run.report["coverage"]
    assert coverage["unclassified"] == [{"name": "my_custom_kernel", "share": 0.06}]
    assert coverage["unrecognised_kernel_share"] == 0.1
    assert len(run.notes("unclassified-kernels")) == 1


def test_c081_exactly_5_percent_is_listed_or_not_but_never_below(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(world_size=1)
    trace.gemm(0, 951)
    trace.kernel("my_custom_kernel", 951, 1000)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["coverage"]["unclassified"] == []


def test_c082_the_kernel_is_the_duration_not_the_range(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 6000)
    trace.annotation("nccl:all_reduce", 10, 40)
    comms = trace.comms_op("allreduce", 8, 45)
    trace.all_reduce(100, 5100, launch=20, under=comms)
    trace.gemm(60, 90, launch=2)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (call,) = run.report["collectives"]
    assert call["duration_ns"] == 5_000_000
    assert run.report["ranks"][0]["whole"]["comm_ns"] == 5_000_000


@pytest.mark.parametrize("name", ["allreduce_time", "nccl:all_reduce", "Forward", "FSDP::all_gather_copy_out"])
def test_c160_framework_timers_are_not_read(name: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.annotation(name, 0, 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
