"""The realistic model and the clocks: what may differ from the ideal one, and within which bounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commprof.synth import Cluster, Link
from commprof.synth.clock import START_NS, Clock, clocks, observe
from commprof.synth.sampling import PROGRAM_NAMES, possible_faults, random_fault, random_scenario
from commprof.synth.timing import factor, hops
from commprof.synth.traffic import received, sent, traffic
from commprof.synth.waiting import call_truth
from tests.synth.by_hand import round_job, rows, run

PIPE = {"strategy": "none", "inner": 1, "pp": 2, "layers": 2, "microbatches": 2, "schedule": "1f1b"}


def test_factors_and_hops() -> None:
    # nccl-tests: 2(n-1)/n and (n-1)/n; a binary tree of 8 has depth 3, of 5 as well.
    assert factor("all_reduce", 8) == (14, 8)
    assert factor("all_gather", 4) == (3, 4)
    assert factor("send", 2) == (1, 1)
    assert [hops("all_gather", n) for n in (2, 4, 5, 8)] == [1, 2, 3, 3]
    assert hops("all_reduce", 8) == 6


def test_ends_of_a_collective_differ_but_nobody_ends_before_the_last_entered() -> None:
    scenario = replace(random_scenario(4, program="ddp", real=True), inner=4)
    timeline = run(scenario, seed=4)

    spreads = [call_truth(timeline, call).end_skew_ns for call in timeline.calls]

    assert any(spreads)
    assert max(spreads) < 50_000
    for call in timeline.calls:
        assert min(timeline.ends(call).values()) > max(timeline.starts(call).values())


def test_small_message_leaves_before_its_receiver_comes() -> None:
    # 200 B fit the 4 MiB buffer. In the ideal model the second send waits until 412.4 (see the 1F1B example).
    ideal = rows(run(round_job(10**12, **PIPE)), 0)
    real = rows(run(round_job(10**12, real=True, **PIPE)), 0)

    assert (ideal[4][0], real[4][0]) == ("send", "send")
    assert float(ideal[4][2]) > 400
    assert float(real[4][2]) < 210


def test_large_message_waits_for_its_receiver() -> None:
    # 30,000 x 100 bf16 activations: 6 MB do not fit.
    real = run(round_job(10**12, real=True, batch=30_000, **PIPE))

    call = next(c for c in timeline_sends(real) if c.order == 1)

    source, sink = call.members
    assert real.ends(call)[source] > real.starts(call)[sink]
    assert call_truth(real, call).waits[source] > 0


def timeline_sends(timeline):
    return [call for call in timeline.calls if call.op == "send" and call.members == (0, 1)]


def test_broadcast_leaves_its_root_early() -> None:
    # Sinks end one latency (5 us) after the data left; ends of 4 ranks in a host spread by less than 4 us.
    scenario = round_job(10**9, strategy="zero1-torch", real=True, comm_base_ns=5_000)
    timeline = run(replace(scenario, inner=4), seed=1)

    broadcasts = [call for call in timeline.calls if call.op == "broadcast"]

    assert [call.source for call in broadcasts] == [0, 1, 2, 3]
    for call in broadcasts:
        ends = timeline.ends(call)
        assert min(ends, key=lambda rank: ends[rank]) == call.source


def test_small_messages_use_a_protocol_with_half_the_bandwidth() -> None:
    # 40,000 B per rank would be LL128, 20,000 B is LL: 40,000 B, factor 1, at half of 1 GB/s takes 80.
    link = Link(0, 10**9)
    scenario = replace(round_job(1, strategy="none", tp=2, inner=1, batch=200, real=True), cluster=Cluster(nvlink=link))

    timeline = run(scenario)

    # The first call, which both enter together; the first to end does so within the skew of 2 x 1 us.
    assert 80_000 <= call_truth(timeline, timeline.calls[0]).transfer_ns < 82_000


def test_clock_with_offset_and_drift() -> None:
    # 1 s into the run a drift of 2000 ppb shows 2000 ns.
    clock = Clock(offset_ns=500, drift_ppb=2_000, device_error_ns=-30)

    assert clock.cpu(10**9) - START_NS == 10**9 + 500 + 2_000
    assert clock.device(10**9) - clock.cpu(10**9) == -30
    assert Clock(tick_ns=1_000).cpu(1_999) - START_NS == 1_000


def test_ranks_of_a_host_share_its_clock_and_devices_are_1_to_5_us_off() -> None:
    scenario = replace(
        random_scenario(1, program="ddp", real=True), inner=4, clock_offset_ns=10**6, clock_drift_ppb=5_000,
        cluster=Cluster(gpus_per_host=2),
    )  # fmt: skip
    timeline = run(scenario, seed=1)

    found = clocks(timeline.plan)

    assert found[0].offset_ns == found[1].offset_ns != found[2].offset_ns == found[3].offset_ns
    assert all(1_000 <= abs(clock.device_error_ns) <= 5_000 for clock in found)
    shown = observe(timeline.ranks[2], found[2])
    assert shown.cpu_start[5] == found[2].cpu(timeline.ranks[2].cpu_start[5])


def test_traffic_rows_add_up_and_go_back_the_way_they_came() -> None:
    matrix = traffic(1, 2, (3, 4, 5), 4, 1000, 800)

    assert [sum(row) for row in matrix] == [1000] * 4
    assert sum(sum(received(matrix, i, False)) for i in range(4)) == 4000
    assert received(matrix, 2, False) == sent(matrix, 2, True)
    assert len(set(matrix[0])) > 1


@pytest.mark.parametrize("program", PROGRAM_NAMES)
def test_every_program_runs_in_both_models_with_its_faults(program: str) -> None:
    for real in (False, True):
        scenario = random_scenario(7, program=program, regime="gpu", real=real, steps=1)
        for kind in possible_faults(scenario)[real::2]:
            fault = random_fault(scenario, 7, kind=kind)

            timeline = run(replace(scenario, faults=(fault,)), seed=7)

            for times in timeline.ranks:
                assert all(start < end for start, end in zip(times.dev_start, times.dev_end, strict=True) if start >= 0)


def test_shortest_duration_is_the_transfer_within_the_spread_of_ends() -> None:
    # The rank that enters last ends at most the spread after the first end; nobody is shorter than the transfer.
    scenario = replace(random_scenario(9, program="tp-dp", regime="mixed", real=True), noise_permille=20)
    timeline = run(scenario, seed=9)

    for call in timeline.calls:
        starts, ends = timeline.starts(call), timeline.ends(call)
        known = call_truth(timeline, call)
        shortest = min(ends[rank] - starts[rank] for rank in call.members)
        assert known.transfer_ns is not None
        assert 0 <= shortest - known.transfer_ns <= known.end_skew_ns
