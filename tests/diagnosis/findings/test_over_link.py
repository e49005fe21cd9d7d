"""Calls over a slow link that do not tell it by themselves: what it makes them last longer, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import commprof
from commprof.diagnosis.findings.over_link import excess_beside
from commprof.diagnosis.ground import Ground, lay_ground
from tests.builders.kineto import Trace
from tests.cases.test_uneven_exchanges import exchange


def ground_of(folder: Path, traces: list[Trace], hardware: str | None, hosts: dict[int, str] | None = None) -> Ground:
    for rank, trace in enumerate(traces):
        trace.write(folder / f"rank{rank}.json")
    analysis = commprof.analyze(folder, jobs=1, hardware=hardware)
    analysis.hosts = hosts or analysis.hosts
    ground = lay_ground(analysis)
    assert ground is not None
    return ground


def in_pairs(rank: int, length: int) -> Trace:
    """Pairs 0 1 and 2 3: in each of four steps an all-reduce of 4 MB, 407 us in the pair 0 1 and 107 in the other, then
    an all-to-all of 3 MB with unequal splits, of so many us in the pair 0 1 and 50 in the other."""
    trace, low = Trace(rank=rank, world_size=4), rank - rank % 2
    group = {"ranks": [low, low + 1], "group": "pair", "description": "pair"}
    for step in range(4):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        trace.gemm(at, at + 1_000)
        end = at + 1_000 + (407 if rank < 2 else 107)
        trace.all_reduce(at + 1_000, end, metadata={**group, "elements": 1_000_000, "seq": 2 * step})
        trace.gemm(end, at + 2_000)
        end = at + 2_000 + (length if rank < 2 else 50)
        sizes = [[1_000_000, 2_000_000], [2_000_000, 1_000_000]]
        exchange(trace, rank - low, sizes, at + 2_000, end, **group, seq=2 * step + 1)
        trace.gemm(end, at + 5_000)
    return trace


@pytest.mark.parametrize(("length", "excess"), [(247, 180), (27, 5), (20, None)])
def test_an_exchange_over_a_slow_link_lasts_too_long(tmp_path: Path, length: int, excess: int | None) -> None:
    ground = ground_of(tmp_path, [in_pairs(rank, length) for rank in range(4)], "100")

    (link,) = ground.slow_links
    found = excess_beside(ground, link, (0, 1))

    # But for the 7 us that latency is at least, the slow pair takes 400 us and the other 100: of what its bytes take
    # three quarters are too much. Of 247 us 240 are of bytes: 180. The half of 3 MB that goes over the link needs 15 us
    # at 100 GB/s, and 7 for latency: of 27 us 5 are too many, though three quarters of 20 were more, and of 20 none.
    assert link.ranks == (0, 1)
    assert sorted(found.values()) == ([] if excess is None else [pytest.approx(1_000 * excess, abs=2)] * 4)


def test_hardware_that_is_not_known_lets_nothing_be_claimed(tmp_path: Path) -> None:
    ground = ground_of(tmp_path, [in_pairs(rank, 247) for rank in range(4)], None)

    assert excess_beside(ground, ground.slow_links[0], (0, 1)) == {}


def stage(rank: int) -> Trace:
    """Four stages; in each of nine steps 4 MB go on from each to the next: in 207 us from rank 0, in 607 from rank 1
    and in 57 from rank 2."""
    trace = Trace(rank=rank, world_size=4)
    for step in range(9):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        trace.gemm(at, at + 500)
        for source, length in enumerate((207, 607, 57)):
            if rank in (source, source + 1):
                sent = at + 1_000 * (source + 1)
                ends = {"ranks": [0, 1, 2, 3], "group": "5", "description": "pp", "elements": 1_000_000}
                name = "send" if rank == source else "recv"
                trace.collective(
                    name, sent, sent + length,
                    metadata={**ends, "Src Rank": source, "Dst Rank": source + 1, "seq": 3 * step + source},
                )  # fmt: skip
        trace.gemm(at + 4_000, at + 5_000)
    return trace


def test_messages_of_the_only_pair_between_hosts_go_over_the_slow_link_too(tmp_path: Path) -> None:
    hosts = {0: "a", 1: "a", 2: "b", 3: "b"}
    ground = ground_of(tmp_path, [stage(rank) for rank in range(4)], "100", hosts)

    (link,) = ground.slow_links
    found = excess_beside(ground, link, (0, 1))

    # Inside a host the link of 0 and 1 takes 200 us for what that of 2 and 3 takes 50 for, but for 7 us of latency: of
    # what bytes take three quarters are too much. Between the hosts there is one pair: of its 607 us 10 are latency.
    assert link.ranks == (0, 1)
    assert sorted(found.values()) == [pytest.approx(447_750, abs=9)] * 9


def reducing_and_sending(rank: int, length: int) -> Trace:
    """Pairs 0 1 and 2 3: in each of nine steps an all-reduce of 4 MB, 407 us in the pair 0 1 and 107 in the other, then
    a message of 4 MB to the second of them, of so many us in the pair 0 1 and 47 in the other."""
    trace, low = Trace(rank=rank, world_size=4), rank - rank % 2
    group = {"ranks": [low, low + 1], "group": f"pair{low}", "description": "pair", "elements": 1_000_000}
    for step in range(9):
        at = 5_000 * step
        trace.step(step, at, at + 5_000)
        trace.gemm(at, at + 1_000)
        end = at + 1_000 + (407 if rank < 2 else 107)
        trace.all_reduce(at + 1_000, end, metadata={**group, "seq": 2 * step})
        trace.gemm(end, at + 2_000)
        end = at + 2_000 + (length if rank < 2 else 47)
        ends = {"Src Rank": low, "Dst Rank": low + 1, "seq": 2 * step + 1}
        trace.collective("recv" if rank % 2 else "send", at + 2_000, end, metadata={**group, **ends})
        trace.gemm(end, at + 5_000)
    return trace


@pytest.mark.parametrize(("length", "excess"), [(67, 20), (50, None)])
def test_messages_that_last_a_little_longer_do_so_for_the_slow_link(
    tmp_path: Path, length: int, excess: int | None
) -> None:
    ground = ground_of(tmp_path, [reducing_and_sending(rank, length) for rank in range(4)], "100")

    (link,) = ground.slow_links
    found = excess_beside(ground, link, (0, 1))

    # 20 us more than the other pair are too few to call a link slow, but here one is. 4 MB at 100 GB/s need 40 us and 7
    # for latency, so that of 67 no more than 20 come back. What is within 5 us of the others is as fast as they.
    assert link.ranks == (0, 1)
    assert sorted(found.values()) == ([] if excess is None else [pytest.approx(1_000 * excess, abs=2)] * 9)
