"""C046, C083 to C090, C096 and C101: the split and the exposure of calls, worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import Trace, t0
from tests.cases.t0_numbers import assert_t0
from tests.oracle.identities import check_identities

Analyze = Callable[..., Run]


@pytest.fixture
def whole(run_analyze: Analyze, tmp_path: Path) -> Callable[[Trace], Any]:
    """The report of a trace of one rank and one device, and the split of its whole capture."""

    def read(trace: Trace) -> tuple[Any, Any]:
        run = run_analyze(trace.write(tmp_path / "rank0.json"))
        check_identities(run.report)
        (row,) = run.report["ranks"]
        return run.report, row["whole"]

    return read


def test_c046_work_on_another_device_hides_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(0, 100, device=1)
    trace.all_reduce(0, 100, device=0)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    rows = [(row["rank"], row["device"], row["whole"]["exposed_comm_ns"]) for row in run.report["ranks"]]
    assert rows == [(0, 0, 100_000), (0, 1, 0)]
    assert [row["whole"]["compute_ns"] for row in run.report["ranks"]] == [0, 100_000]
    check_identities(run.report)


def test_c083_the_numbers_of_t0(run_analyze: Analyze, tmp_path: Path) -> None:
    run = run_analyze(t0().write(tmp_path / "rank0.json"))

    assert_t0(run)
    (call,) = run.report["collectives"]
    assert (call["group"], call["group_size"], call["dtype"], call["size_bytes"]) == ("0", 2, "float32", 4_000_000)
    assert (call["wait_ns"], call["transfer_ns"], call["algbw_gbps"], call["busbw_gbps"]) == (None, None, None, None)
    assert run.notes("single-rank")
    assert run.notes("missing-ranks")
    check_identities(run.report)


def test_c083_all_eight_numbers_are_printed(run_analyze: Analyze, tmp_path: Path) -> None:
    # Step 1000, compute 600, communication 400, hidden 100, exposed 300, idle 100, overlap 25.0 %, exposed 30.0 %.
    run = run_analyze(t0().write(tmp_path / "rank0.json"))

    for figure in ("1.00 ms", "600 µs", "400 µs", "100 µs", "300 µs", "25.0 %", "30.0 %"):
        assert figure in run.stdout, run.stdout


def test_c085_short_kernels_lose_nothing(whole: Callable[[Trace], Any]) -> None:
    trace = Trace(world_size=1)
    for number in range(1000):
        trace.gemm(2 * number, f"{2 * number}.8")

    _, split = whole(trace)

    assert (split["compute_ns"], split["duration_ns"]) == (800_000, 1_998_800)


@pytest.mark.parametrize(("start", "end"), [("10.2", "10.9"), ("10.999", "11.001"), ("0.001", "0.002")])
def test_c085_ends_between_two_microseconds(start: str, end: str, whole: Callable[[Trace], Any]) -> None:
    trace = Trace(world_size=1)
    trace.gemm(start, end)
    length = round((float(end) - float(start)) * 1000)

    _, split = whole(trace)

    assert (split["compute_ns"], split["duration_ns"], split["idle_ns"]) == (length, length, 0)


def test_c086_two_kernels_at_once_are_communication_once(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.all_reduce(0, 100, stream=20)
    trace.all_reduce(0, 100, stream=21)

    report, split = whole(trace)

    assert (split["comm_ns"], split["comm_share"]) == (100_000, 1.0)
    assert [(call["exposed_ns"], call["sole_ns"], call["touched_ns"]) for call in report["collectives"]] == [
        (50_000, 0, 100_000),
        (50_000, 0, 100_000),
    ]


def test_c087_exposed_time_is_tied_to_collectives(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.all_reduce(0, 100, stream=20)
    trace.all_gather(50, 150, stream=21)
    trace.gemm(80, 120)

    report, split = whole(trace)

    assert (split["comm_ns"], split["overlap_ns"], split["exposed_comm_ns"]) == (150_000, 40_000, 110_000)
    # 0-50 AR alone; 50-80 both, neither ends when compute resumes at 80: 15 each; 120-150 AG alone.
    assert [call["exposed_ns"] for call in report["collectives"]] == [65_000, 45_000]
    assert sum(call["duration_ns"] for call in report["collectives"]) == 200_000


def test_c087_compute_waited_only_for_the_call_that_ended(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.all_reduce(0, 100, stream=20)
    trace.all_gather(20, 180, stream=21)
    trace.gemm(100, 200)

    report, split = whole(trace)

    # Compute resumes at 100, where AR has ended and AG has not: 0-100 belongs to AR alone.
    assert split["exposed_comm_ns"] == 100_000
    assert [call["exposed_ns"] for call in report["collectives"]] == [100_000, 0]
    assert [call["touched_ns"] for call in report["collectives"]] == [100_000, 80_000]
    assert [call["sole_ns"] for call in report["collectives"]] == [20_000, 0]


def test_c087_after_the_last_compute_every_active_call_shares(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.gemm(0, 10)
    trace.all_reduce(0, 50, stream=20)
    trace.all_gather(10, 90, stream=21)

    report, split = whole(trace)

    assert split["exposed_comm_ns"] == 80_000
    assert [call["exposed_ns"] for call in report["collectives"]] == [20_000, 60_000]


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_c087_a_remainder_goes_to_the_first(parts: int, whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    for stream in range(20 + parts, 20, -1):
        trace.all_reduce(0, "0.100", stream=stream)

    report, _ = whole(trace)

    share, left = divmod(100, parts)
    by_stream = {call["stream"]: call["exposed_ns"] for call in report["collectives"]}
    assert by_stream == {20 + n: share + (left if n == 1 else 0) for n in range(1, parts + 1)}


def test_c087_several_kernels_of_one_call_count_once(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    operator = trace.comms_op("all_to_all", 0, 1)
    for start in (0, 10, 40):
        trace.collective("all_to_all", start, start + 20, under=operator, stream=20 + start)
    trace.all_reduce(40, 60, stream=99)

    report, split = whole(trace)

    # The call runs 0-30 and 40-60, alone until 30, beside the all-reduce in 40-60.
    rows = {call["op"]: call for call in report["collectives"]}
    assert len(report["collectives"]) == 2
    assert split["exposed_comm_ns"] == 50_000
    call = rows["all_to_all"]
    assert (call["kernels"], call["duration_ns"], call["start_ns"]) == (3, 50_000, 0)
    assert (call["exposed_ns"], call["sole_ns"], call["touched_ns"]) == (40_000, 30_000, 50_000)
    assert rows["all_reduce"]["exposed_ns"] == 10_000


def test_c088_a_copy_hides_nothing(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.copy(0, 100)
    trace.all_reduce(0, 100)

    _, split = whole(trace)

    assert (split["exposed_comm_ns"], split["copy_ns"], split["exposed_copy_ns"]) == (100_000, 100_000, 0)


def test_c089_a_collective_on_the_compute_stream_says_so(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm(0, 100)
    trace.all_gather(100, 200, stream=7)
    trace.gemm(200, 300)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (row,) = run.report["ranks"]
    assert (row["whole"]["comm_ns"], row["whole"]["exposed_comm_ns"]) == (100_000, 100_000)
    (call,) = run.report["collectives"]
    assert call["on_compute_stream"] is True
    assert "compute stream" in run.everything


def test_c090_work_on_any_stream_is_no_idle_time(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, 500)
    trace.all_reduce(500, 1000)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert run.report["ranks"][0]["steps"][0]["idle_ns"] == 0


def test_c096_every_call_keeps_its_own_time_however_many_names(run_analyze: Analyze, tmp_path: Path) -> None:
    # Twelve kernels of communication and twelve of compute, three calls of 10 µs each.
    trace = Trace(world_size=32)
    trace.step(1, 0, 1000)
    for place in range(12):
        for call in range(3):
            start = 20 * (3 * place + call)
            trace.all_reduce(start, start + 10, metadata={"group": f"g{place}", "ranks": [0, place + 1]})
            trace.kernel(f"ampere_sgemm_{place}", start + 10, start + 20)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert [call["duration_ns"] for call in run.report["collectives"]] == 36 * [10_000]
    groups = run.report["groups"]
    assert [(group["calls"], group["comm_ns"], group["exposed_ns"]) for group in groups] == 12 * [(3, 30_000, 30_000)]


def test_c101_no_share_is_above_one(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, "0.333", "3.667")
    trace.gemm("0.333", "2.001")
    trace.all_reduce("0.333", "3.667")
    trace.annotation("nccl:all_reduce", 0, 5)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (step,) = run.report["ranks"][0]["steps"]
    assert (step["comm_ns"], step["duration_ns"], step["exposed_comm_ns"]) == (3334, 3334, 1666)
    shares = [float(text) for text in re.findall(r"(\d+(?:\.\d+)?)\s?%", run.everything)]
    assert shares
    assert max(shares) <= 100.0
    assert all(0 <= share <= 1 for share in _shares(run.report))


def test_c101_the_same_share_shows_the_same_figure_everywhere(run_analyze: Analyze, tmp_path: Path) -> None:
    # Exposed 1666 of 3334 ns is 49.970 %: 50.0 % wherever it shows, never 49.9 or 49.97.
    trace = Trace()
    trace.step(1, "0.333", "3.667")
    trace.gemm("0.333", "2.001")
    trace.all_reduce("0.333", "3.667")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    figures = {text for text in re.findall(r"(\d+(?:\.\d+)?)\s?%", run.everything) if 49 <= float(text) <= 51}
    assert figures == {"50.0"}


def _shares(value: Any, key: str = "") -> list[float]:
    """Every share in the report: keys that end in ``share`` or ``ratio``."""
    if isinstance(value, dict):
        return [share for name, part in value.items() for share in _shares(part, name)]
    if isinstance(value, list):
        return [share for part in value for share in _shares(part, key)]
    is_share = key.endswith(("_share", "_ratio")) or key == "share"
    return [value] if is_share and isinstance(value, int | float) else []


# Parts of overlap that are worth less: hidden only by kernels that exist for communication, or by thin ones.


CHUNK_CAT = "void at::native::(anonymous namespace)::chunk_cat_cuda_kernel<float, c10::BFloat16>(...)"
SPLIT_COPY = "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel(...)"


@pytest.mark.parametrize("name", [CHUNK_CAT, SPLIT_COPY])
def test_overlap_with_copies_for_communication_is_shown_apart(name: str, whole: Callable[[Trace], Any]) -> None:
    # 500-600 is hidden by the copy alone, 700-750 by the copy and a GEMM, 750-800 by the GEMM.
    trace = Trace()
    trace.all_reduce(500, 900)
    trace.kernel(name, 500, 600)
    trace.kernel(name, 700, 750, stream=9)
    trace.gemm(700, 800)

    _, split = whole(trace)

    assert (split["overlap_ns"], split["overlap_comm_copies_ns"]) == (200_000, 100_000)


@pytest.mark.parametrize(
    "operator",
    [
        "torch::distributed::reducer::mul_out",
        "fsdp::all_gather_copy_in",
        "fsdp::split_with_sizes_copy",
        "fsdp::chunk_cat",
    ],
)
def test_overlap_with_kernels_launched_for_communication(operator: str, whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.all_reduce(500, 900, launch=90)
    under = trace.cpu_op(operator, 10, 20)
    trace.kernel("void at::native::vectorized_elementwise_kernel<4>", 500, 600, launch=12, under=under)
    other = trace.cpu_op("aten::add", 30, 40)
    trace.kernel("void at::native::vectorized_elementwise_kernel<4>", 700, 750, launch=32, under=other)

    _, split = whole(trace)

    assert (split["overlap_ns"], split["overlap_comm_copies_ns"]) == (150_000, 100_000)


@pytest.mark.parametrize(
    ("blocks", "thin"), [([10, 1, 1], 100_000), ([11, 1, 1], 0), ([2, 5, 1], 100_000), ([4, 3, 1], 0)]
)
def test_overlap_with_thin_kernels_needs_the_number_of_sms(
    blocks: list[int], thin: int, whole: Callable[[Trace], Any]
) -> None:
    # A tenth of 108 SMs is 10.8 blocks.
    trace = Trace()
    trace.top["deviceProperties"] = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]
    trace.all_reduce(500, 900)
    trace.kernel("void at::native::vectorized_elementwise_kernel<4>", 500, 600, args={"grid": blocks})

    report, split = whole(trace)

    assert (split["overlap_ns"], split["overlap_thin_ns"]) == (100_000, thin)
    assert report["input"]["devices"] == ["NVIDIA A100-SXM4-80GB"]


def test_overlap_with_thin_kernels_is_unknown_without_the_device(whole: Callable[[Trace], Any]) -> None:
    trace = Trace()
    trace.all_reduce(500, 900)
    trace.kernel("void at::native::vectorized_elementwise_kernel<4>", 500, 600, args={"grid": [1, 1, 1]})

    _, split = whole(trace)

    assert (split["overlap_ns"], split["overlap_thin_ns"]) == (100_000, None)
