"""Collectives noted while a CUDA graph is captured: a stand-in for the graph, real operators on a fake group of 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*is deprecated.*:FutureWarning")]

F32 = 4


class StandIn:
    """The two methods of ``torch.cuda.CUDAGraph`` that a capture goes through."""

    def capture_begin(self, pool: Any = None) -> str:
        return f"begun {pool}"

    def capture_end(self) -> str:
        return "ended"


@pytest.fixture(scope="module", autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


@pytest.fixture
def notes() -> Iterator[Any]:
    from commprof.capture.graph_notes import GraphNotes

    notes = GraphNotes()
    before = StandIn.capture_begin, StandIn.capture_end
    notes.begin(StandIn)
    yield notes
    notes.end()
    assert (StandIn.capture_begin, StandIn.capture_end) == before


def test_operation_group_size_and_order(notes: Any) -> None:
    pair = dist.new_group([0, 2], group_desc="pair")
    graph, x = StandIn(), torch.ones(100)
    dist.all_reduce(torch.ones(3))  # before: not noted

    assert graph.capture_begin(pool=1) == "begun 1"
    dist.all_reduce(x)
    dist.all_gather_into_tensor(torch.empty(200), x, group=pair)
    dist.reduce_scatter_tensor(torch.empty(25, dtype=torch.bfloat16), torch.ones(100, dtype=torch.bfloat16))
    dist.all_to_all_single(torch.empty(100), x)
    dist.broadcast(x, src=2, group=pair)
    dist.send(x, dst=2, group=pair)
    assert graph.capture_end() == "ended"
    dist.all_reduce(torch.ones(3))  # after: not noted

    (noted,) = notes.graphs
    whole, half = dist.group.WORLD.group_name, pair.group_name
    assert [(c.op, c.group, c.group_size, c.dtype, c.size_bytes, c.root, c.peer) for c in noted.calls] == [
        ("all_reduce", whole, 4, "float32", 100 * F32, None, None),
        ("all_gather", half, 2, "float32", 200 * F32, None, None),  # the gathered output
        ("reduce_scatter", whole, 4, "bfloat16", 100 * 2, None, None),  # the full input
        ("all_to_all", whole, 4, "float32", 100 * F32, None, None),
        ("broadcast", half, 2, "float32", 100 * F32, 2, None),
        ("send", half, 2, "float32", 100 * F32, None, 2),
    ]


def test_functional_collectives_of_compiled_code(notes: Any) -> None:
    import torch.distributed._functional_collectives as funcol

    graph, x = StandIn(), torch.ones(100)

    graph.capture_begin()
    for result in (
        funcol.all_reduce(x, "sum", dist.group.WORLD),
        funcol.all_gather_tensor(x, 0, dist.group.WORLD),
        funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD),
    ):
        funcol.wait_tensor(result)
    graph.capture_end()

    assert [(c.op, c.group_size, c.size_bytes) for c in notes.graphs[0].calls] == [
        ("all_reduce", 4, 100 * F32),
        ("all_gather", 4, 400 * F32),
        ("reduce_scatter", 4, 100 * F32),
    ]


def test_results_and_errors_of_the_capture_are_the_program_s_own(notes: Any) -> None:
    graph, x = StandIn(), torch.arange(6.0, requires_grad=True)

    graph.capture_begin()
    (x * 2).sum().backward()
    with pytest.raises(RuntimeError):
        torch.ones(2) @ torch.ones(3)
    graph.capture_end()

    assert x.grad.tolist() == [2.0] * 6
    assert notes.graphs == []  # a graph without communication needs no note


def test_graphs_are_kept_apart_in_their_order(notes: Any) -> None:
    for size in (5, 6):
        graph = StandIn()
        graph.capture_begin()
        dist.all_reduce(torch.ones(size))
        graph.capture_end()

    assert [[call.size_bytes for call in graph.calls] for graph in notes.graphs] == [[5 * F32], [6 * F32]]
    assert notes.graphs[0].captured_ns <= notes.graphs[1].captured_ns


def test_compilation_goes_on_under_the_observer(notes: Any) -> None:
    from torch.utils._python_dispatch import any_torch_dispatch_mode_on_stack

    StandIn().capture_begin()
    seen = any_torch_dispatch_mode_on_stack()
    StandIn().capture_end()

    assert not seen  # what torch.compile asks before it decides to skip a frame
