"""C021 to C023, C045 and C102: times are integer nanoseconds, whatever their size, base, unit or order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders.command import Run
from tests.builders.kineto import BASE_NS, Trace, t0
from tests.builders.text import Raw
from tests.cases.t0_numbers import assert_t0, faults

Analyze = Callable[..., Run]


@pytest.mark.parametrize("base", ["0", "1712345678901234", "4458676416788", "1000000000000000"])
def test_c021_times_beyond_a_double_stay_exact(base: str, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace(rank=0, world_size=1)
    trace.gemm(f"{base}.100", f"{base}.400")
    trace.gemm(f"{base}.400", f"{base}.700")
    if base == "0":
        trace.shift(1000)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (rank,) = run.report["ranks"]
    assert (rank["whole"]["compute_ns"], rank["whole"]["duration_ns"]) == (600, 600)


@pytest.mark.parametrize(
    ("ts", "dur", "start", "length"),
    [
        ("10.2", "0.7", 10_200, 700),
        ("10.200", "0.700", 10_200, 700),
        ("10.20", "0.7000", 10_200, 700),
        ("1e1", "1e0", 10_000, 1_000),
        ("1.02E1", "7e-1", 10_200, 700),
        ("1712345678901234.567", "0.001", 1_712_345_678_901_234_567, 1),
        ("-5.5", "1.25", -5_500, 1_250),
    ],
)
def test_c021_every_way_to_write_a_time(
    ts: str, dur: str, start: int, length: int, run_analyze: Analyze, tmp_path: Path
) -> None:
    # A second kernel, 1 µs long, ends where it can be compared: 1 ms after the start of the first.
    trace = Trace(rank=0, world_size=1)
    first = trace.gemm(0, 1)
    first |= {"ts": Raw(ts), "dur": Raw(dur)}
    whole, fraction = divmod(start + 999_000, 1000)
    second = trace.gemm(0, 1)
    second |= {"ts": Raw(f"{whole}.{fraction:03d}"), "dur": 1}

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (rank,) = run.report["ranks"]
    assert rank["whole"]["compute_ns"] == length + 1000
    assert rank["whole"]["duration_ns"] == 1_000_000


def test_c021_overlap_of_touching_kernels_is_zero(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.gemm("1712345678901234.100", "1712345678901234.400")
    trace.all_reduce("1712345678901234.400", "1712345678901234.700")

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (rank,) = run.report["ranks"]
    assert (rank["whole"]["overlap_ns"], rank["whole"]["exposed_comm_ns"]) == (0, 300)


def test_c022_absolute_time_is_base_plus_ts(run_analyze: Analyze, tmp_path: Path) -> None:
    for rank, base, start in ((0, BASE_NS, 6_000_000), (1, BASE_NS + 5_000_000_000, 1_000_000)):
        trace = Trace(rank=rank, base_ns=base)
        trace.step(1, start, start + 1000)
        trace.gemm(start, start + 600)
        trace.all_reduce(start + 500, start + 900)
        trace.write(tmp_path / "in" / f"rank{rank}.json")

    run = run_analyze(tmp_path / "in")

    assert [call["start_ns"] for call in run.report["collectives"]] == [500_000, 500_000]
    assert {call["skew_ns"] for call in run.report["collectives"]} <= {0, None}
    for rank in (0, 1):
        assert_t0(run, rank=rank)


@pytest.mark.parametrize("unit", ["ns", "ms", "us", None])
def test_c023_the_display_unit_changes_nothing(unit: str | None, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.top["displayTimeUnit"] = unit
    if unit is None:
        del trace.top["displayTimeUnit"]

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)
    assert faults(run) == 0


# C102: what may change a trace without changing its numbers.


@pytest.mark.parametrize("factor", [3, 1000])
def test_c102_scaled_times_keep_the_ratios(factor: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.scale(factor)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    (step,) = run.report["ranks"][0]["steps"]
    assert (step["overlap_ratio"], step["comm_share"]) == (0.25, 0.3)
    assert (step["duration_ns"], step["idle_ns"]) == (1_000_000 * factor, 100_000 * factor)


@pytest.mark.parametrize("ns", [10**18, -(10**9), 1, 10**18 + 1])
def test_c102_shifted_times_keep_every_number(ns: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.shift(ns)

    plain = run_analyze(t0().write(tmp_path / "a" / "rank0.json"))
    shifted = run_analyze(trace.write(tmp_path / "b" / "rank0.json"))

    assert_t0(shifted)
    assert _numbers(shifted.report) == _numbers(plain.report)


@pytest.mark.parametrize("cut", [1, 250, 599])
def test_c102_a_kernel_split_in_two_keeps_every_number(cut: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.gemm(0, cut)
    trace.gemm(cut, 600)
    trace.all_reduce(500, 900)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


def test_c102_the_order_of_the_files_changes_nothing(run_analyze: Analyze, tmp_path: Path) -> None:
    paths = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 1000)
        trace.gemm(0, 600 + 50 * rank)
        trace.all_reduce(500, 900)
        paths.append(trace.write(tmp_path / f"part{rank}.json"))

    one, other = run_analyze(paths), run_analyze(paths[::-1])

    assert _numbers(one.report) == _numbers(other.report)
    assert one.report["input"]["ranks"] == other.report["input"]["ranks"] == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_c045_events_in_any_order(seed: int, run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    for _ in range(30):
        trace.cpu_op("aten::empty", 10, 20)
    rng = random.Random(seed)
    trace.events.reverse()
    if seed:
        rng.shuffle(trace.events)

    run = run_analyze(trace.write(tmp_path / "rank0.json"))

    assert_t0(run)


def _numbers(report: Any) -> Any:
    """The report without what names or measures the input files."""
    return {key: value for key, value in report.items() if key != "input"}


def test_one_event_years_away_from_the_others_is_said(run_analyze: Analyze, tmp_path: Path) -> None:
    trace = t0()
    trace.shift(10**18)
    trace.gemm(0, 1)

    found = run_analyze(trace.write(tmp_path / "rank0.json"))

    notes = [note["message"] for note in found.report["notes"] if note["code"] == "events-apart"]
    assert len(notes) == 1
    assert "a timestamp is broken" in notes[0]
    usual = run_analyze(t0().write(tmp_path / "b" / "rank0.json"))
    assert "events-apart" not in {note["code"] for note in usual.report["notes"]}
