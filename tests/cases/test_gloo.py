"""C072 and its kind: on a CPU trace gloo's spans are communication and the operators of training threads compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import MAIN_THREAD, Trace

Analyze = Callable[..., Run]
OTHER = 300


@pytest.fixture
def split(run_analyze: Analyze, tmp_path: Path) -> Callable[[Trace], Any]:
    """The only window of the only rank."""

    def read(trace: Trace) -> Any:
        run = run_analyze(trace.write(tmp_path / "rank0.json"))
        assert run.code == 0, run.stderr
        (row,) = run.report["ranks"]
        (step,) = row["steps"]
        return step

    return read


def gloo() -> Trace:
    """A step 0–1000 with one all-reduce 600–700 on a thread of gloo."""
    trace = Trace(backend="gloo")
    trace.step(1, 0, 1000)
    trace.cpu_op("c10d::allreduce_", 590, 595)
    trace.annotation("gloo:all_reduce", 600, 700, tid=201)
    return trace


def test_nested_operators_are_a_union(split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op("aten::linear", 0, 100)
    trace.cpu_op("aten::addmm", 20, 80)
    trace.cpu_op("aten::relu", 90, 150)

    step = split(trace)

    assert (step["compute_ns"], step["comm_ns"], step["idle_ns"]) == (150_000, 100_000, 750_000)


WRAPPERS = [
    "autograd::engine::evaluate_function: AddmmBackward0",
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
    "AddmmBackward0",
    "MulBackward0",
    "torch::autograd::AccumulateGrad",
    "torch::autograd::CopyBackwards",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad",
    "torch.distributed.ddp.reducer::search_unused_parameters",
]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_are_left_out(wrapper: str, split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op(wrapper, 0, 400)
    trace.cpu_op("aten::mm", 100, 200)

    assert split(trace)["compute_ns"] == 100_000


@pytest.mark.parametrize(
    "name", ["torch::distributed::reducer::mul_out", "fsdp::chunk_cat", "fsdp::all_gather_copy_in", "my_lib::op"]
)
def test_other_operators_are_compute(name: str, split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op(name, 0, 100)

    assert split(trace)["compute_ns"] == 100_000


@pytest.mark.parametrize("operator", ["c10d::allreduce_", "_c10d_functional::wait_tensor", "c10d::_allgather_base_"])
def test_spans_of_collectives_are_taken_out_of_compute(operator: str, split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op("aten::outer", 100, 400)
    trace.cpu_op(operator, 200, 300)
    trace.cpu_op("aten::inside_of_it", 220, 240)

    assert split(trace)["compute_ns"] == 200_000


def test_only_threads_of_training_compute(split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op("aten::mm", 0, 100)
    trace.cpu_op("aten::stack", 0, 1000, tid=OTHER)
    trace.cpu_op("c10d::allreduce_", 0, 1000, tid=OTHER)

    assert split(trace)["compute_ns"] == 100_000


def test_a_thread_of_the_autograd_engine_computes_too(split: Callable[[Trace], Any]) -> None:
    trace = gloo()
    trace.cpu_op("aten::mm", 0, 100)
    trace.cpu_op("autograd::engine::evaluate_function: MmBackward0", 50, 400, tid=OTHER)
    trace.cpu_op("aten::mm", 60, 200, tid=OTHER)

    assert split(trace)["compute_ns"] == 200_000


def test_collectives_of_one_training_thread_are_taken_out_of_the_union(split: Callable[[Trace], Any]) -> None:
    # Compute is the union over the threads minus the union of their c10d spans.
    trace = gloo()
    trace.cpu_op("aten::mm", 0, 300)
    trace.cpu_op("autograd::engine::evaluate_function: MmBackward0", 50, 400, tid=OTHER)
    trace.cpu_op("c10d::allreduce_", 100, 150, tid=OTHER)

    assert split(trace)["compute_ns"] == 250_000


@pytest.mark.parametrize(("operator", "span", "op"), [("c10d::send", "send", "send"), ("c10d::recv_", "recv", "recv")])
def test_point_to_point_lies_across_operators(
    operator: str, span: str, op: str, run_analyze: Analyze, tmp_path: Path
) -> None:
    trace = Trace(backend="gloo")
    trace.step(1, 0, 1000)
    trace.cpu_op(operator, 100, 105)
    trace.annotation(f"gloo:{span}", 102, 500, tid=MAIN_THREAD)
    trace.cpu_op("aten::mm", 200, 300)
    trace.cpu_op("aten::mm", 450, 600)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    (step,) = row["steps"]
    assert (step["comm_ns"], step["compute_ns"], step["overlap_ns"]) == (398_000, 250_000, 150_000)
    assert [(call["op"], call["duration_ns"]) for call in run.report["collectives"]] == [(op, 398_000)]


def test_sizes_come_from_the_operator(run_analyze: Analyze, tmp_path: Path) -> None:
    # A reduce-scatter of 1000 floats into 500 runs as an all-reduce of its input.
    trace = Trace(backend="gloo")
    trace.step(1, 0, 1000)
    trace.cpu_op("aten::mm", 0, 50)
    types = {"Input type": ["float", "float", "", "", "", ""]}
    trace.cpu_op("c10d::_reduce_scatter_base_", 100, 110, args={"Input Dims": [[500], [1000], [], [], [], []], **types})
    trace.annotation("gloo:all_reduce", 120, 300, tid=201)["args"]["Input Dims"] = [[1000]]
    trace.cpu_op("c10d::_allgather_base_", 400, 410, args={"Input Dims": [[2000], [1000], [], []], **types})
    trace.annotation("gloo:all_gather", 420, 500, tid=201)["args"]["Input Dims"] = [[1000]]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = [(call["op"], call["dtype"], call["size_bytes"]) for call in run.report["collectives"]]
    assert rows == [("reduce_scatter", "float32", 4000), ("all_gather", "float32", 8000)]


def test_without_shapes_sizes_are_unknown_not_zero(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(gloo().write(tmp_path / "rank0.json"))

    (call,) = run.report["collectives"]
    assert (call["size_bytes"], call["dtype"], call["busbw_at_least_gbps"]) == (None, None, None)
    assert sum(group["calls_without_size"] for group in run.report["groups"]) == 1


def test_operators_and_spans_are_paired_in_order(run_analyze: Analyze, tmp_path: Path) -> None:
    # Two threads run the spans of one group; the order of their starts is the order of the launches.
    trace = Trace(backend="gloo")
    trace.step(1, 0, 1000)
    trace.cpu_op("aten::mm", 0, 5)
    sizes = [1000, 3000, 2000, 500]
    for place, (operator, size) in enumerate(
        zip(("allreduce_", "_reduce_scatter_base_", "allreduce_", "allreduce_"), sizes, strict=True)
    ):
        dims = {"Input Dims": [[[size]]] if operator == "allreduce_" else [[size // 2], [size]]}
        trace.cpu_op(
            f"c10d::{operator}", 10 + 10 * place, 15 + 10 * place, args={**dims, "Input type": ["float", "float"]}
        )
    for place, (start, end) in enumerate([(12, 300), (25, 100), (101, 400), (301, 350)]):
        trace.annotation("gloo:all_reduce", start, end, tid=201 + (place in (1, 2)))

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = [(call["op"], call["duration_ns"] // 1000, call["size_bytes"]) for call in run.report["collectives"]]
    assert rows == [
        ("all_reduce", 288, 4000),
        ("reduce_scatter", 75, 12000),
        ("all_reduce", 299, 8000),
        ("all_reduce", 49, 2000),
    ]


def test_idle_time_of_a_cpu_has_names(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = gloo()
    trace.cpu_op("aten::linear", 0, 400)
    trace.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 450, 500)
    trace.cpu_op("c10d::barrier", 650, 730)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    # 400-600 and 700-1000 hold no operator that computes: 450-500 is the loader, 590-595 and 700-730 are calls that
    # start or await a collective; of the rest the trace has no event.
    found = {row["cause"]: row["idle_ns"] for row in run.report["idle"]}
    assert found == {"input": 50_000, "dispatch": 35_000, "between-operators": 415_000}
    text = " ".join(run.stdout.split())
    assert "What idle time is, per step" in text
    assert "between operators 415 µs No operator ran: Python, the autograd engine, the profiler" in text
    assert "Why the device idles" not in text
