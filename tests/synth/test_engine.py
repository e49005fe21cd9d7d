"""The event loop: contention, shared links, launch queue, blocking calls, faults. Times in µs, worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commprof.errors import UsageError
from commprof.synth import Cluster, Fault, Link, make_plan, simulate
from commprof.synth.engine import Engine
from commprof.synth.program import Builder, Comm
from tests.synth.by_hand import micros, round_job, rows, run


def run_program(scenario, write):
    """Run what ``write`` puts into a builder on every rank of ``scenario``."""
    plan = make_plan(scenario, 0)
    builder = Builder(1)
    builder.step = 0
    builder.begin("ProfilerStep#1")
    write(builder)
    builder.end()
    plan.programs = [builder.program]
    return simulate(plan)


def test_compute_beside_communication_goes_slower_and_recovers() -> None:
    # Contention 25 %: rate 1000/1.25 = 800 of 1000. Bucket 1 lasts 402.4 to 502.4.
    scenario = round_job(4_816_000_000, layers=2, contention_permille=250)

    device = rows(run(scenario))

    # In those 100 the backward pass of layer 0 does 80 of its 200; 120 are left: 502.4 + 120 = 622.4.
    assert device[5] == ("mm", "402.4", "622.4")


def test_two_transfers_share_a_link_evenly() -> None:
    # A alone: 100. B joins at 50, both at half speed. A has 50 left: ends at 50 + 100 = 150.
    # B then has done 50 of its 100 and ends at 200.
    def write(builder: Builder) -> None:
        builder.communicate(Comm("all_reduce", "dp", 25_000, 25_000, "Float"), stream=24)
        builder.compute("k", "aten::mm", 48_000)
        builder.wait(25, 7)
        builder.communicate(Comm("all_reduce", "dp", 25_000, 25_000, "Float"), stream=25)

    scenario = round_job(1_000_000_000, launch_ns=1_000, comm_launch_ns=1_000)

    device = rows(run_program(scenario, write))

    # Launches at 0.4, 1.4, 2.4: A starts at 0.4, the kernel ends at 49.4, B starts there.
    # A has 51 left at 49.4 and ends at 49.4 + 102 = 151.4; B has 49 left then and ends at 200.4.
    assert device == [("all_reduce", "0.4", "151.4"), ("mm", "1.4", "49.4"), ("all_reduce", "49.4", "200.4")]


def test_opposite_messages_do_not_share_a_link() -> None:
    scenario = round_job(
        1_000_000_000, strategy="none", inner=1, pp=2, layers=2, microbatches=2, schedule="1f1b", batch=500
    )

    first = rows(run(scenario), 0)

    # 100,000 B at 1 GB/s are 100 alone: the gradient of microbatch 0 comes while the activation of 1 goes.
    going, coming = first[4], first[5]
    assert (going[0], coming[0]) == ("send", "recv")
    assert going[2] == coming[2]
    assert float(going[2]) - float(rows(run(scenario), 1)[5][1]) == pytest.approx(100)


def test_full_launch_queue_holds_the_cpu_back() -> None:
    def write(builder: Builder) -> None:
        for _ in range(10):
            builder.compute("k", "aten::mm", 100_000)

    timeline = run_program(round_job(1, launch_queue=8), write)
    times = timeline.ranks[0]

    # Launches cost 1 each until 8 are outstanding; the ninth enters when the first ends at 100.4.
    assert [micros(t) for t in times.cpu_end[1:11]] == [
        "1", "2", "3", "4", "5", "6", "7", "8", "101", "201",
    ]  # fmt: skip
    assert micros(times.launch[9]) == "8.4"


def test_synchronising_call_blocks_the_cpu_until_the_device_is_done() -> None:
    def write(builder: Builder) -> None:
        builder.compute("k", "aten::mm", 100_000)
        builder.sync("cudaStreamSynchronize", [7])
        builder.compute("k", "aten::mm", 100_000)

    timeline = run_program(round_job(1), write)
    times = timeline.ranks[0]

    # Kernel 0.4 to 100.4; the CPU waits from 1 to 100.4; the next launch begins 0.4 later.
    assert (micros(times.cpu_start[2]), micros(times.cpu_end[2])) == ("1", "100.4")
    assert rows(timeline)[1] == ("mm", "100.8", "200.8")


def test_a_job_whose_launches_are_slower_than_its_kernels_is_host_bound() -> None:
    def write(builder: Builder) -> None:
        for _ in range(4):
            builder.compute("k", "aten::mm", 2_000)

    device = rows(run_program(round_job(1, launch_ns=10_000), write))

    assert device == [("mm", "4", "6"), ("mm", "14", "16"), ("mm", "24", "26"), ("mm", "34", "36")]


def test_ranks_that_call_different_things_are_refused() -> None:
    scenario = round_job(1_000_000_000, strategy="none", inner=1, pp=2, layers=2, microbatches=2)
    plan = make_plan(scenario, 0)
    for program, nelems in zip(plan.programs, (10, 20), strict=True):
        builder = Builder(1)
        builder.communicate(Comm("all_reduce", "pp", nelems, nelems, "Float"), stream=24)
        program.instructions = builder.program.instructions

    with pytest.raises(RuntimeError, match="calls all_reduce where group"):
        Engine(plan).run()


def test_ranks_that_wait_for_each_other_for_ever_are_found() -> None:
    scenario = round_job(1_000_000_000, strategy="none", inner=1, pp=2, layers=2, microbatches=2)
    plan = make_plan(scenario, 0)
    for program, order in zip(plan.programs, (("send", "recv"), ("send", "recv")), strict=True):
        stage = plan.programs.index(program)
        builder = Builder(1)
        for op in order:
            builder.communicate(Comm(op, "pp", 10, 10, "Float", peer=1 - stage), stream=24)
        program.instructions = builder.program.instructions

    with pytest.raises(RuntimeError, match="deadlock"):
        Engine(plan).run()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        # Forward 100 and backward 200 take a fifth longer on rank 1: its bucket starts at 2.4 + 360.
        (Fault("slow-gpu", 1, 200), "362.4"),
        # The loader holds the CPU of rank 1 for 40, the copy is launched at 40.4.
        (Fault("loader-stall", 1, 40_000), "342.4"),
        # Rank 1 begins 70 later altogether.
        (Fault("profiler-start", 1, 70_000), "372.4"),
    ],
)
def test_fault_makes_rank_1_arrive_late(fault: Fault, expected: str) -> None:
    timeline = run(round_job(4_816_000_000, faults=(fault,)))

    on_time, late = rows(timeline, 0)[3], rows(timeline, 1)[3]

    assert (on_time[1], late[1]) == ("302.4", expected)
    assert on_time[2] == late[2]


def test_slow_link_takes_longer_without_making_anyone_late() -> None:
    timeline = run(round_job(4_816_000_000, faults=(Fault("slow-link", 1, 250),)))

    both = [rows(timeline, rank)[3] for rank in (0, 1)]

    assert both == [("all_reduce", "302.4", "702.4")] * 2  # a quarter of the bandwidth: 400


def test_faults_in_the_program() -> None:
    base = round_job(4_816_000_000, layers=2)

    late = rows(run(replace(base, faults=(Fault("no-overlap"),))))
    huge = rows(run(replace(base, faults=(Fault("huge-bucket"),))))
    tiny = rows(run(replace(base, faults=(Fault("tiny-buckets", None, 1),))))

    assert [row[1] for row in late if row[0] == "all_reduce"] == ["602.4", "702.4"]
    assert [row[1:] for row in huge if row[0] == "all_reduce"] == [("602.4", "802.4")]
    assert sum(row[0] == "all_reduce" for row in tiny) == 12  # one for each of 2 x 6 tensors


def test_misplaced_group_goes_over_the_network() -> None:
    # NVLink 10 GB/s, one adapter of 1 GB/s per GPU, 2 hosts of 2 GPUs; 100,000 B among 2 ranks: 10 or 100.
    cluster = Cluster(gpus_per_host=2, nics_per_host=2, nvlink=Link(0, 10**10), nic=Link(0, 10**9))
    base = replace(round_job(1, strategy="none", tp=2, inner=2, batch=500), cluster=cluster)

    well = rows(run(base))[2]
    badly = rows(run(replace(base, faults=(Fault("misplaced-group"),))))[2]

    assert well == ("all_reduce", "52.56", "62.56")
    assert badly == ("all_reduce", "52.56", "152.56")


def test_noise_does_not_depend_on_faults() -> None:
    # The pause moves rank 0, but every kernel of it lasts as long as without.
    noisy = round_job(4_816_000_000, layers=2, noise_permille=50)

    without = rows(run(noisy, seed=3))
    paused = rows(run(replace(noisy, faults=(Fault("loader-stall", 0, 12_345),)), seed=3))

    def lengths(device):
        return [round(float(b) - float(a), 3) for name, a, b in device if name == "mm"]

    assert lengths(without) == lengths(paused)
    assert len(set(lengths(without))) > 2


@pytest.mark.parametrize(
    "changes",
    [
        {"layers": 3, "pp": 2, "microbatches": 2},
        {"pp": 4, "layers": 4, "microbatches": 2},
        {"strategy": "magic"},
        {"faults": (Fault("gremlins"),)},
        {"faults": (Fault("slow-gpu", 7),)},
        {"outer": 2},
        {"chunks": 2},
    ],
)
def test_impossible_scenarios_are_refused_in_one_line(changes) -> None:
    with pytest.raises(UsageError) as caught:
        make_plan(round_job(1, **changes), 0)

    assert "\n" not in str(caught.value)
