"""C142: copies of gradients into their buckets are copies, and views of the buckets would avoid them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import call
from tests.builders.kineto import BACKWARD_THREAD, Trace
from tests.diagnosis.findings.conftest import Judged

Judge = Callable[..., Judged]
ACCUMULATE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
COPY_BACK = "torch.distributed.ddp.reducer::copy_bucket_to_grad"


def buckets(kind: str = "DtoD", *, count: int = 4, linked: bool = True, stream: int = 7) -> Trace:
    """Of each bucket: 100 µs of compute, a copy of 50 with nothing beside it, and a reduction of 100."""
    trace = Trace()
    trace.step(1, 0, 2000)
    if linked:
        trace.cpu_op(ACCUMULATE, 0, 90, tid=BACKWARD_THREAD)

    def launched(at: int) -> dict[str, Any]:
        return {"launch": at, "thread": BACKWARD_THREAD} if linked else {}

    for place in range(count):
        at, cpu = 100 + 300 * place, 2 + 20 * place
        trace.gemm(at, at + 100, **launched(cpu))
        trace.copy(at + 100, at + 150, kind, stream=stream, **launched(cpu + 4))
        trace.all_reduce(at + 150, at + 250, **launched(cpu + 8))
    return trace


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("count", [4, 6])
def test_c142_copies_before_each_bucket(count: int, linked: bool, judge: Judge) -> None:
    trace = buckets(count=count, linked=linked)

    judged = judge(trace)

    # Each of the copies runs 50 µs between compute and reduction: all of it would be gone.
    finding = judged.by_id["bucket-copies"]
    assert (finding["charged_ns"], finding["recoverable_ns"]) == (50_000 * count, 50_000 * count)
    assert f"bucket copies of {50 * count} µs per step" in finding["title"]
    assert judged.evidence("bucket-copies")["copies per step"] == count
    assert "gradient_as_bucket_view=True" in finding["advice"][0]
    assert "copy-bound" not in judged.by_id
    assert judged.report["overall"]["comm_ns"] == 100_000 * count


def test_c142_copies_out_of_the_buckets_after_the_last_reduction(judge: Judge) -> None:
    trace = buckets("HtoD", count=2)
    trace.cpu_op(COPY_BACK, 60, 80, tid=BACKWARD_THREAD)
    for place in range(3):
        at = 650 + 40 * place
        trace.copy(at, at + 40, "DtoD", launch=61 + 5 * place, thread=BACKWARD_THREAD)

    judged = judge(trace)

    # The two copies from the host are not of buckets and stay what they are.
    assert judged.by_id["bucket-copies"]["charged_ns"] == 120_000
    assert judged.by_id["copy-bound"]["charged_ns"] == 100_000


@pytest.mark.parametrize("name", ["CopyDeviceToDevice", "Memcpy DtoD (Device -> Device)", "hipMemcpyAsync"])
def test_c142_copies_inside_the_device_by_other_names(name: str, judge: Judge) -> None:
    trace = buckets()
    for event in trace.events:
        if event["cat"] == "gpu_memcpy":
            event["name"] = name

    judged = judge(trace)

    assert judged.by_id["bucket-copies"]["charged_ns"] == 200_000


@pytest.mark.parametrize("kind", ["HtoD", "DtoH", "HtoD (Pinned -> Device)"])
def test_copies_that_leave_the_device_are_not_of_buckets(kind: str, judge: Judge) -> None:
    judged = judge(buckets(kind))

    assert "bucket-copies" not in judged.by_id
    assert judged.by_id["copy-bound"]["charged_ns"] == 200_000


def test_copies_that_come_before_compute_are_not_of_buckets(judge: Judge) -> None:
    # The same copies one place earlier: the next thing on the thread is a kernel.
    trace = Trace()
    trace.step(1, 0, 2000)
    trace.cpu_op(ACCUMULATE, 0, 90, tid=BACKWARD_THREAD)
    for place in range(4):
        at, cpu = 100 + 300 * place, 2 + 20 * place
        where = {"thread": BACKWARD_THREAD}
        if place:
            trace.copy(at, at + 50, "DtoD", stream=7, launch=cpu, **where)
        trace.gemm(at + 50, at + 150, launch=cpu + 4, **where)
        trace.all_reduce(at + 150, at + 250, launch=cpu + 8, **where)

    judged = judge(trace)

    assert "bucket-copies" not in judged.by_id
    assert judged.by_id["copy-bound"]["charged_ns"] == 150_000


def test_bucket_copies_beside_compute_cost_nothing(judge: Judge) -> None:
    trace = buckets(stream=30)
    trace.gemm(100, 1300, stream=8, launch=80)

    judged = judge(trace)

    assert judged.report["overall"]["copy_ns"] == 200_000
    assert "bucket-copies" not in judged.by_id


def test_gradients_that_are_views_already_are_not_advised_to_be(tmp_path: Path) -> None:
    from commprof.diagnosis.findings.bucket_copies import bucket_copies
    from commprof.manifest import DdpModule, Manifest
    from tests.diagnosis.findings.ground import ground_of

    ground = ground_of(buckets(), environment={})
    known = DdpModule(module="", buckets=(), options={"gradient_as_bucket_view": 1})
    without = list(bucket_copies(ground))

    ground.analysis.manifests = [Manifest(rank=0, rank_source="default", world_size=2, host="a", ddp=(known,))]

    assert [case.id for case in without] == ["bucket-copies"]
    assert list(bucket_copies(ground)) == []


def test_bucket_copies_are_in_the_terminal_and_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    code, shown, _ = call("analyze", buckets().write(tmp_path / "rank0.json"), "-o", page)

    assert code == 0
    for text in (" ".join(shown.split()), page.read_text()):
        assert "bucket copies of 200 µs" in text
        assert "gradient_as_bucket_view=True" in text
    assert "Copies of gradients inside the device" in page.read_text()
