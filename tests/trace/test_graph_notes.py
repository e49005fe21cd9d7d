"""Calls of CUDA graphs, named by what the hook noted while the graph was captured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commprof.manifest import CudaGraph, GraphCall, Manifest, ProcessGroup, trace_name, write_manifest
from tests.builders.command import Run
from tests.builders.kineto import COMM_STREAM, NCCL_KERNELS, SEND_RECV, Trace

REDUCE, GATHER = NCCL_KERNELS["allreduce"], NCCL_KERNELS["_allgather_base"]
ANALYZE = Callable[..., Run]

FIRST = GraphCall(op="all_reduce", group="7", group_size=2, dtype="bfloat16", size_bytes=4000)
SECOND = GraphCall(op="all_gather", group="0", group_size=4, dtype="float32", size_bytes=8000)
EXCHANGE = GraphCall(op="all_to_all", group="0", group_size=4, dtype="float32", size_bytes=1600)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def replays(kernels: list[str], nodes: list[int], count: int = 2) -> Trace:
    """``count`` replays of one graph; ``nodes`` are the ids of its kernels in the order in which they run."""
    trace = Trace(0, 4)
    for step in range(count):
        at = 1000 * step
        trace.step(step, at, at + 900)
        launch = trace.runtime("cudaGraphLaunch", at + 1, at + 5)
        for place, (name, node) in enumerate(zip(kernels, nodes, strict=True)):
            begin = at + 100 + 200 * place
            args = {"correlation": launch["args"]["correlation"], "graph node id": node, "device": 0}
            trace.add("kernel", name, begin, begin + 100, 0, COMM_STREAM, {**args, "stream": COMM_STREAM})
    return trace


def analysed(folder: Path, trace: Trace, graphs: list[list[GraphCall]], analyze: ANALYZE) -> Run:
    folder.mkdir()
    trace.write(folder / trace_name(0))
    groups = (
        ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3)),
        ProcessGroup(name="7", description="mesh_tp", ranks=(0, 2)),
    )
    noted = tuple(CudaGraph(captured_ns=number, calls=tuple(calls)) for number, calls in enumerate(graphs))
    write_manifest(
        folder,
        Manifest(
            rank=0,
            rank_source="process group",
            world_size=4,
            host="h",
            trace=trace_name(0),
            groups=groups,
            cuda_graphs=noted,
        ),
    )
    return analyze(folder)


def told(run: Run) -> list[tuple[object, ...]]:
    assert run.report is not None
    return [(c["op"], c["group"], c["group_size"], c["dtype"], c["size_bytes"]) for c in run.report["collectives"]]


def graph_notes(run: Run) -> list[str]:
    assert run.report is not None
    return [note["message"] for note in run.report["notes"] if note["code"] == "graph-calls"]


def test_calls_are_named_in_the_order_of_their_nodes(folder: Path, run_analyze: ANALYZE) -> None:
    # The gather runs first but was captured second.
    run = analysed(folder, replays([GATHER, REDUCE], [12, 11]), [[FIRST, SECOND]], run_analyze)

    assert told(run) == 2 * [("all_gather", "0", 4, "float32", 8000), ("all_reduce", "7", 2, "bfloat16", 4000)]
    assert [call["launched_ns"] for call in run.report["collectives"]] == [None] * 4
    assert graph_notes(run) == [
        "4 calls in CUDA graphs are named by what the hook noted while the graphs were captured; "
        "when they were launched is not known."
    ]
    groups = {group["group"]: group["ranks"] for group in run.report["groups"]}
    assert groups == {"0": [0, 1, 2, 3], "7": [0, 2]}


def test_an_exchange_is_a_kernel_of_send_and_receive(folder: Path, run_analyze: ANALYZE) -> None:
    run = analysed(folder, replays([SEND_RECV], [5]), [[EXCHANGE]], run_analyze)

    assert told(run) == 2 * [("all_to_all", "0", 4, "float32", 1600)]


@pytest.mark.parametrize(
    "graphs",
    [
        [[FIRST]],  # another number of calls
        [[SECOND, FIRST]],  # other operations
        [[FIRST, SECOND], [FIRST, GraphCall(op="all_gather", group="7", group_size=2, dtype="float32", size_bytes=8)]],
    ],
)
def test_without_one_note_that_agrees_they_have_operation_and_time_only(
    folder: Path, run_analyze: ANALYZE, graphs: list[list[GraphCall]]
) -> None:
    run = analysed(folder, replays([REDUCE, GATHER], [11, 12]), graphs, run_analyze)

    assert told(run) == 2 * [("all_reduce", None, None, None, None), ("all_gather", None, None, None, None)]
    assert graph_notes(run) == [
        "4 calls in CUDA graphs have an operation and a time only: no note of a captured graph agrees with them."
    ]


def test_without_any_note_the_report_says_how_to_get_one(folder: Path, run_analyze: ANALYZE) -> None:
    run = analysed(folder, replays([REDUCE], [11]), [], run_analyze)

    assert told(run)[0][1:] == (None, None, None, None)
    assert "make Capture before the graphs are captured" in graph_notes(run)[0]


def test_two_graphs_with_the_same_calls_are_as_good_as_one(folder: Path, run_analyze: ANALYZE) -> None:
    run = analysed(folder, replays([REDUCE, GATHER], [11, 12]), [[FIRST, SECOND], [FIRST, SECOND]], run_analyze)

    assert told(run)[0] == ("all_reduce", "7", 2, "bfloat16", 4000)


def test_a_node_that_comes_twice_is_no_single_replay(folder: Path, run_analyze: ANALYZE) -> None:
    run = analysed(folder, replays([REDUCE, REDUCE], [11, 11]), [[FIRST, FIRST]], run_analyze)

    assert told(run)[0][1:] == (None, None, None, None)
