"""Random timelines: the report equals the tick-by-tick oracle, and every identity holds with ``==``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import commprof
from commprof.report.view import build_view
from commprof.report.write import json_text
from tests.builders.command import strict_json
from tests.builders.kineto import Trace
from tests.oracle.exposure import calls_of, exposures
from tests.oracle.identities import check_identities
from tests.oracle.model import Blocking, Launch, Rank, Step, Work
from tests.oracle.random_ranks import linked_ranks, trace_of, unlinked_ranks
from tests.oracle.split import split, union_length
from tests.oracle.windows import find_windows, step_of

OFFSETS_NS = [0, 5_000_000_000, 1_712_345_678_901_234_567]
HOST_KEYS = ["exposed_host_ns", "exposed_blocking_ns", "idle_host_ns"]

random_traces = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)


@random_traces
@given(rank=linked_ranks(), offset=st.sampled_from(OFFSETS_NS))
def test_c084_windows_by_launch_split_and_exposure_equal_the_oracle(rank: Rank, offset: int) -> None:
    """C084 with launch links: windows, holes, host-bound parts and shares with remainders of 1 ns."""
    assume(_links_are_decisive(rank))

    report = _report(rank, offset)

    _compare(report, rank)
    check_identities(report)


@random_traces
@given(rank=unlinked_ranks(), offset=st.sampled_from(OFFSETS_NS))
def test_c084_windows_by_marks_split_and_exposure_equal_the_oracle(rank: Rank, offset: int) -> None:
    """C084 without launch links: the windows cut the device's timeline anywhere."""
    report = _report(rank, offset)

    _compare(report, rank)
    check_identities(report)


@settings(random_traces, max_examples=25)
@given(first=unlinked_ranks(), second=unlinked_ranks(), offset=st.sampled_from(OFFSETS_NS))
def test_c084_every_device_has_a_split_of_its_own(first: Rank, second: Rank, offset: int) -> None:
    """C084 on two devices of one rank: the same marks, work of the one hides nothing of the other."""
    second = Rank(second.work, first.steps)
    trace = trace_of(first, offset)
    other = trace_of(Rank(second.work), offset, device=1, first_id=1000)
    trace.events += other.events

    report = _run(trace)

    zero = min(first.start, second.start)
    for device, rank in enumerate((first, second)):
        part = {key: [row for row in report[key] if row["device"] == device] for key in ("ranks", "collectives")}
        _compare(part, rank, zero)
    check_identities(report)


# What the oracle says for timelines small enough to do by hand; it is no oracle otherwise.


def test_the_oracle_shares_out_c087_as_by_hand() -> None:
    # AR 0-100 alone until 50; neither ends by 80, where compute resumes: 50-80 is halved; AG 120-150.
    rank = Rank(
        [
            Work("comm", 0, 100, 20, call=0),
            Work("comm", 50, 150, 21, call=1),
            Work("compute", 80, 120, 7),
        ]
    )

    shares = exposures(rank, [])

    assert (shares[0].exposed, shares[0].sole, shares[0].touched) == (65, 50, 80)
    assert (shares[1].exposed, shares[1].sole, shares[1].touched) == (45, 30, 60)
    assert split(rank, 0, 150)["exposed_comm_ns"] == 110 == shares[0].exposed + shares[1].exposed


def test_the_oracle_gives_an_instant_to_the_call_that_compute_waited_for() -> None:
    # Compute resumes at 10; only the first call has ended by then, so it answers for all of 0-10.
    rank = Rank([Work("comm", 0, 10, 20, call=0), Work("comm", 0, 15, 21, call=1), Work("compute", 10, 20, 7)])

    shares = exposures(rank, [])

    assert (shares[0].exposed, shares[1].exposed) == (10, 0)
    assert (shares[0].touched, shares[1].touched) == (10, 10)


@pytest.mark.parametrize(
    ("streams", "starts", "winner"),
    [([20, 21, 22], [0, 1, 1], 0), ([22, 21, 20], [1, 1, 1], 2), ([20, 20, 20], [1, 1, 1], 0)],
    ids=["earliest start", "lower stream", "order in the file"],
)
def test_the_oracle_gives_a_remainder_to_the_first_by_start_stream_and_order(
    streams: list[int], starts: list[int], winner: int
) -> None:
    # From 1 to 12 three calls run: 11 = 3 * 3 + 2, and the 2 go to one of them.
    work = [Work("comm", starts[i], 12, streams[i], call=i) for i in range(3)]

    shares = exposures(Rank(work), [])

    assert [shares[i].exposed - (1 - starts[i]) for i in range(3)] == [5 if i == winner else 3 for i in range(3)]


def test_the_oracle_finds_windows_holes_and_the_open_end() -> None:
    # Step 1 launches 5-9 and step 2 nothing, so window 1 ends with its own work at 12; step 4 only copies.
    marks = [Step(f"ProfilerStep#{n}", 10 * (n - 1), 10 * n) for n in range(1, 6)]
    rank = Rank(
        [
            Work("compute", 5, 9, 7, Launch(2, 1)),
            Work("comm", 8, 12, 20, Launch(3, 1), call=0),
            Work("compute", 25, 28, 7, Launch(22, 1)),
            Work("copy", 33, 35, 30, Launch(31, 1)),
            Work("compute", 44, 46, 7, Launch(41, 1)),
        ],
        marks,
    )

    found = find_windows(rank)

    assert [(w.name[-1], w.start, w.end, w.open) for w in found.windows] == [
        ("1", 5, 12, False),
        ("3", 25, 28, False),
        ("5", 44, 46, True),
    ]
    assert found.without == {"ProfilerStep#2": "no device work", "ProfilerStep#4": "no main compute"}


def test_the_oracle_calls_time_host_bound_until_the_launch_of_the_next_compute() -> None:
    # Idle 10-20 and exposed 20-30; the next compute is launched at 26, the CPU is held at 12-15.
    rank = Rank(
        [
            Work("compute", 0, 10, 7, Launch(0, 1)),
            Work("comm", 20, 30, 20, Launch(5, 1), call=0),
            Work("compute", 30, 40, 7, Launch(26, 1)),
        ]
    )
    held = Rank(rank.work, [], [Blocking(1, 12, 15)])

    free_split, held_split = split(rank, 0, 40), split(held, 0, 40)

    assert (free_split["exposed_host_ns"], free_split["idle_host_ns"]) == (6, 10)
    assert (held_split["exposed_host_ns"], held_split["idle_host_ns"]) == (6, 7)
    assert free_split["exposed_blocking_ns"] == 4


def _links_are_decisive(rank: Rank) -> bool:
    """No unlinked compute starts together with the first linked one, where the definition has no answer."""
    compute = rank.of("compute")
    first = min(work.start for work in compute if work.launch is not None)
    return all(work.start != first for work in compute if work.launch is None)


def _report(rank: Rank, offset: int) -> Any:
    """The report of commprof on the trace of this timeline."""
    return _run(trace_of(rank, offset))


def _run(trace: Trace) -> Any:
    """Without the command line, whose part in hundreds of runs would be a third of their time."""
    with tempfile.TemporaryDirectory() as folder:
        analysis = commprof.analyze(trace.write(Path(folder) / "trace_rank0.json", style="compact"), jobs=1)
    return strict_json(json_text(build_view(analysis, commprof.diagnose(analysis))["report"]))


def _compare(report: Any, rank: Rank, zero: int | None = None) -> None:
    """The report of one rank on one device against the oracle, every figure that both know."""
    zero = rank.start if zero is None else zero
    found = find_windows(rank)
    (row,) = report["ranks"]
    assert row["windows"] == found.source
    assert {step["name"]: step["reason"] for step in row["steps_without_window"]} == found.without
    assert [(s["name"], s["start_ns"] + zero, s["end_ns"] + zero, s["open"]) for s in row["steps"]] == [
        (window.name, window.start, window.end, window.open) for window in found.windows
    ]
    _compare_split(row["whole"], split(rank, rank.start, rank.end), host=True)
    undecided = found.source == "annotation" and any(work.launch is not None for work in rank.work)
    for step, window in zip(row["steps"], found.windows, strict=True):
        _compare_split(step, split(rank, window.start, window.end), host=not undecided)
    _compare_calls(report, rank, zero)


def _compare_split(got: Any, wanted: dict[str, int | None], *, host: bool) -> None:
    keys = [key for key in wanted if host or key not in HOST_KEYS]
    assert {key: got[key] for key in keys} == {key: wanted[key] for key in keys}


def _compare_calls(report: Any, rank: Rank, zero: int) -> None:
    windows = find_windows(rank).windows
    shares = exposures(rank, windows)
    wanted = {}
    for call, kernels in calls_of(rank).items():
        first = min(kernels, key=lambda kernel: kernel.start)
        wanted[first.start - zero, first.stream] = {
            "op": "all_to_all",
            "kernels": len(kernels),
            "duration_ns": union_length(kernels),
            "step": step_of(rank, kernels, windows),
            "exposed_ns": shares[call].exposed,
            "sole_ns": shares[call].sole,
            "touched_ns": shares[call].touched,
            "exposed_by_step": {name: part for name, part in shares[call].by_step.items() if part},
            "launched_ns": None if first.launch is None else first.launch.time - zero,
        }
    rows = report["collectives"]
    assert [row["start_ns"] for row in rows] == sorted(row["start_ns"] for row in rows)
    got = {
        (row["start_ns"], row["stream"]): {
            **row,
            "exposed_by_step": {name: part for name, part in row["exposed_by_step"].items() if part},
        }
        for row in rows
    }
    assert len(got) == len(rows)
    assert {at: {key: got[at][key] for key in wanted[at]} for at in got} == wanted
