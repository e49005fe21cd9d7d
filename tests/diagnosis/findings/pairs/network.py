"""Findings that compare ranks: bandwidth, links, late ranks, unequal exchanges, groups over hosts."""

from __future__ import annotations

from typing import Any

from tests.builders.kineto import Trace
from tests.cases.test_causes import pipeline
from tests.cases.test_uneven_exchanges import exchange
from tests.diagnosis.findings.pairs.pair import Pair, Setting

MB = 1_000_000


def low_bandwidth(fires: bool) -> Setting:
    """100 MB between two ranks of a machine that reaches 100 GB/s need 1000 µs, and 7 to 15 of latency. They take
    5000, so 3993 come back; of 1500 that would be less than half."""
    length = 5_000 if fires else 1_500
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for step in range(4):
            at = 20_000 * step
            trace.step(step, at, at + 20_000)
            trace.gemm(at, at + 10_000)
            trace.all_reduce(at + 10_000, at + 10_000 + length, metadata={"elements": 25 * MB, "seq": step})
            trace.gemm(at + 10_000 + length, at + 20_000)
        ranks.append(trace)
    return Setting(ranks, hardware="100")


def slow_link(fires: bool) -> Setting:
    """Eight pairs, ten equal all-reduces of 100 µs in every step; those of one pair take 1000, nobody comes late. Nine
    tenths of its 10,000 µs come back. 130 µs are within the spread of healthy links."""
    ranks = []
    for rank in range(16):
        pair = rank // 2
        trace = Trace(rank=rank, world_size=16)
        for step in range(3):
            trace.step(step, 30_000 * step, 30_000 * (step + 1))
            for i in range(10):
                at = 30_000 * step + 3_000 * i
                length = (1_000 if fires else 130) if pair == 5 else 100
                metadata = {"group": f"g{pair}", "ranks": [2 * pair, 2 * pair + 1], "seq": 10 * step + i}
                trace.gemm(at, at + 1_500)
                trace.all_reduce(at + 1_500, at + 1_500 + length, metadata={**metadata, "elements": 2_500_000})
                trace.gemm(at + 1_500 + length, at + 3_000)
        ranks.append(trace)
    return Setting(ranks)


def network_intermittent(fires: bool) -> Setting:
    """Twenty all-reduces in every step, 100 µs each but for three of 1000: they last 900 longer than usual. In the
    neighbour they last 130: links differ as much."""
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        for step in range(3):
            begin = at = 40_000 * step
            trace.step(step, begin, begin + 40_000)
            for i in range(20):
                length = (1_000 if fires else 130) if i in (4, 9, 15) else 100
                trace.gemm(at, at + 1_000)
                trace.all_reduce(at + 1_000, at + 1_000 + length, metadata={"seq": 20 * step + i})
                at += 1_000 + length
            trace.gemm(at, begin + 40_000)
        ranks.append(trace)
    return Setting(ranks)


def straggler(fires: bool) -> Setting:
    """The kernels of rank 2 take 5000 µs where those of its three peers take 3000: they wait for 2000 in every step.
    In the neighbour 20 µs, under 2 % of the step."""
    longer = 2_000 if fires else 20
    ranks = []
    for rank in range(4):
        trace = Trace(rank=rank, world_size=4)
        for step in range(4):
            at = 10_000 * step
            entry = at + 3_000 + (longer if rank == 2 else 0)
            trace.step(step, at, at + 10_000)
            trace.gemm(at, entry)
            trace.all_reduce(entry, at + 3_000 + longer + 200, metadata={"seq": step})
            trace.gemm(at + 3_000 + longer + 200, at + 10_000)
        ranks.append(trace)
    return Setting(ranks)


def tp_across_hosts(fires: bool) -> Setting:
    """Four tensor-parallel all-reduces of 10 MB in every step, 1000 µs each: 10 GB/s, where groups inside a host move
    the same in 100 µs. Nine tenths of 4000 µs come back if the group moves into one host, as in the neighbour."""
    hosts = ["A", "A", "B", "B"]
    if not fires:
        hosts = ["A", "B", "A", "B"]  # now {0, 2} and {1, 3} are on one host each
    ranks = []
    for rank in range(4):
        trace = Trace(rank=rank, world_size=4)
        trace.top["host_name"] = hosts[rank]
        tensor = {"group": f"tp{rank % 2}", "description": "tp", "ranks": [rank % 2, rank % 2 + 2]}
        data = {"group": f"dp{rank // 2}", "description": "dp", "ranks": [rank // 2 * 2, rank // 2 * 2 + 1]}
        for step in range(3):
            at = 10_000 * step
            trace.step(step, at, at + 10_000)
            for i in range(4):
                trace.gemm(at, at + 500)
                trace.all_reduce(
                    at + 500, at + 1_500, metadata={**tensor, "elements": 2_500_000, "seq": 4 * step + i}
                )  # fmt: skip
                at += 1_500
            trace.gemm(at, at + 1_000)
            # Alone on its links, and again beside compute: what it exposes is the same in both neighbours.
            for i in range(2):
                trace.all_reduce(
                    at + 1_000 + 200 * i, at + 1_100 + 200 * i,
                    metadata={**data, "elements": 2_500_000, "seq": 2 * step + i},
                )  # fmt: skip
            trace.gemm(at + 1_300, 10_000 * (step + 1))
        ranks.append(trace)
    return Setting(ranks)


def all_to_all_imbalance(fires: bool) -> Setting:
    """Four ranks send 10, 10, 10 and 40 MB in 1000 µs: 17.5 on average. With that each the largest sender would be done
    in 17.5/40 of the time: 562.5 µs come back. Of 10, 10, 10 and 10.5 nothing is worth a word."""
    sent = [10 * MB, 10 * MB, 10 * MB, 40 * MB if fires else 10 * MB + MB // 2]
    sizes = [[whole // 4] * 4 for whole in sent]
    ranks = []
    for rank in range(4):
        trace = Trace(rank=rank, world_size=4)
        for step in range(3):
            at = 5_000 * step
            trace.step(step, at, at + 5_000)
            trace.gemm(at, at + 2_000)
            exchange(trace, rank, sizes, at + 2_000, at + 3_000, seq=step)
            trace.gemm(at + 3_000, at + 5_000)
        ranks.append(trace)
    return Setting(ranks)


def pipeline_bubble(fires: bool) -> Setting:
    """Four stages and eight micro-batches, 100 µs each way: 2200 µs of which every stage computes 1600. With two stages
    and 100 micro-batches the bubble is one part in 101."""
    return Setting(pipeline(4, 8) if fires else pipeline(2, 100))


def profiler_start(fires: bool) -> Setting:
    """C108, C109: the first of twenty equal all-reduces waits 15 ms for the other rank to start its recording; in the
    neighbour the tenth does, which is no artefact."""
    odd = 0 if fires else 9
    ranks = []
    for rank in (0, 1):
        trace = Trace(rank=rank)
        trace.step(1, 0, 40_000)
        at = 0
        for index in range(20):
            trace.gemm(at, at + 986)
            late = 14_986 if index == odd else 0
            trace.all_reduce(at + 986 + (late if rank else 0), at + 1_000 + late)
            at += 1_000 + late
        ranks.append(trace)
    return Setting(ranks)


def tp_structural(fires: bool) -> Setting:
    """C163: 50 µs of a tensor-parallel all-reduce between two kernels; in the neighbour a kernel runs beside it."""
    trace = Trace(world_size=4)
    trace.step(1, -60, 1000)
    tensor: dict[str, Any] = {"group": "1", "description": "tp", "ranks": [0, 1]}
    trace.gemm(0, 100, launch=-50)
    trace.all_reduce(100, 150, stream=21, launch=-45, metadata=tensor)
    if not fires:
        trace.gemm(100, 150, launch=-42)
    trace.gemm(150, 250, launch=-40)
    trace.gemm(250, 500, launch=-25)
    return Setting([trace])


PAIRS = {
    "low-bandwidth": Pair(low_bandwidth, 3_993, 3_993),
    "slow-link": Pair(slow_link, 9_000, 9_000),
    "network-intermittent": Pair(network_intermittent, 2_700, 2_700),
    "straggler": Pair(straggler, 2_000, 2_000),
    "tp-across-hosts": Pair(tp_across_hosts, 3_600, 3_600),
    "all-to-all-imbalance": Pair(all_to_all_imbalance, 562.5, 562.5),
    "pipeline-bubble": Pair(pipeline_bubble, 600, 600),
    "profiler-start": Pair(profiler_start, 15_000, None),
    "tp-structural": Pair(tp_structural, 50, 50),
}
