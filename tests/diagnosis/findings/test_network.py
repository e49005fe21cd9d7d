"""Links: which groups make one case, and what has to cross hosts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import commprof
from commprof.analysis.slow_links import SlowLink
from commprof.diagnosis.findings.links import by_rank, common_hosts, common_ranks
from commprof.diagnosis.findings.tensor import _has_to_cross, _inside_a_host, crossing
from commprof.diagnosis.ground import lay_ground
from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged
from tests.diagnosis.findings.pairs.network import tp_across_hosts


def link(*ranks: int) -> SlowLink:
    none = np.empty(0, np.int64)
    return SlowLink(0, 0, ranks, 3.0, 2, 4, none, none)


def test_groups_that_share_a_rank_are_one_slow_link() -> None:
    rows = [link(0, 1), link(0, 2), link(1, 3), link(4, 5)]

    found = by_rank(rows)

    # 0 is in the first two; the third shares 1 with the first alone, and so stands for itself.
    assert [common_ranks(case) for case in found] == [(0,), (1, 3), (4, 5)]


def test_links_between_hosts_that_share_a_host_are_one() -> None:
    # Two GPUs share the adapter of host b, and two pairs go over it; ranks 6 and 7 exchange on one host.
    hosts = dict(zip(range(8), "aabbccdd", strict=True))

    found = by_rank([link(0, 2), link(1, 3), link(3, 4), link(6, 7)], hosts)

    assert [[row.ranks for row in case] for case in found] == [[(0, 2), (1, 3), (3, 4)], [(6, 7)]]
    assert common_hosts(found[0], hosts) == ["b"]


def test_a_group_larger_than_any_host_has_to_cross() -> None:
    hosts = {rank: f"host{rank // 4}" for rank in range(8)}
    groups = [SimpleNamespace(ranks=tuple(range(8))), SimpleNamespace(ranks=(0, 4))]
    analysis = cast(Any, SimpleNamespace(hosts=hosts, groups=groups))

    assert _has_to_cross(analysis, {0})
    assert not _has_to_cross(analysis, {0, 1}), "two ranks fit into a host of four"


def test_inside_a_host_a_group_needs_what_the_link_there_takes(tmp_path: Path) -> None:
    for rank, trace in enumerate(tp_across_hosts(True).traces):
        trace.write(tmp_path / f"rank{rank}.json")
    analysis = commprof.analyze(tmp_path, jobs=1)
    ground = lay_ground(analysis)
    assert ground is not None

    shorter = _inside_a_host(ground, crossing(analysis), 100.0)

    # Two groups with twelve calls of 1000 us each: 10 MB at 100 GB/s need 100, and 7 for latency. Data parallel stays.
    assert shorter is not None
    assert sorted(shorter[shorter > 0].tolist()) == [893_000] * 24


def reducing(rank: int, hosts: str = "AB", elements: int = 2_500_000, length: int = 1_000) -> Trace:
    """Two ranks, tensor parallel: four all-reduces of fp32 per step, ``length`` us each; on two hosts 10 MB in 1000."""
    trace = Trace(rank=rank, world_size=2)
    trace.top["host_name"] = hosts[rank]
    for step in range(3):
        at = 10_000 * step
        trace.step(step, at, at + 10_000)
        for number in range(4):
            tensor = {"group": "tp", "description": "tp", "ranks": [0, 1], "seq": 4 * step + number}
            trace.gemm(at, at + 500)
            trace.all_reduce(at + 500, at + 500 + length, metadata={**tensor, "elements": elements})
            at += 500 + length
        trace.gemm(at, 10_000 * (step + 1))
    return trace


def described(folder: Path) -> Path:
    """A machine of one GPU and one adapter of 50 GB/s per host, or of GPUs that 100 GB/s join."""
    machine = folder / "machine.json"
    machine.write_text(json.dumps({"link_gbps": 100, "nic_gbps": 50, "nics": 1, "gpus": 1}))
    return machine


def test_a_slow_network_comes_before_a_group_that_has_to_cross_it(judge: Callable[..., Judged], tmp_path: Path) -> None:
    machine = described(tmp_path)

    judged = judge(*map(reducing, range(2)), options=("--hardware", str(machine)))

    # No placement helps. At 50 GB/s 10 MB need 200 us, and at least 10 for latency: of 1000 us 790 are too much.
    assert judged.named[:2] == ["low-bandwidth", "tp-across-hosts"]
    assert judged.by_id["low-bandwidth"]["recoverable_ns"] == pytest.approx(4 * 790_000, rel=0.001)


@pytest.mark.parametrize(
    ("hosts", "length", "low"), [("AB", 100, True), ("AB", 90, False), ("AA", 55, True), ("AA", 45, False)]
)
def test_a_small_message_pays_the_base_of_latency_once_and_each_hop(
    hosts: str, length: int, low: bool, judge: Callable[..., Judged], tmp_path: Path
) -> None:
    judged = judge(
        *(reducing(rank, hosts, 125_000, length) for rank in range(2)), options=("--hardware", str(described(tmp_path)))
    )

    # 500 kB go up and down one level. Between hosts: 10 us at 50 GB/s, 8.4 and twice 14 for latency: 46.4, more than
    # half of 90 and less than half of 100. Inside one: 5 us at 100 GB/s, 8.4 and twice 5.7: 24.8.
    assert ("low-bandwidth" in judged.by_id) == low


@pytest.mark.parametrize(
    ("elements", "length", "low"), [(3_000_000, 262, True), (3_000_000, 250, False), (1_000_000, 104, False)]
)
def test_of_many_bytes_latency_is_not_granted_twice(
    elements: int, length: int, low: bool, judge: Callable[..., Judged], tmp_path: Path
) -> None:
    judged = judge(
        *(reducing(rank, "AA", elements, length) for rank in range(2)), options=("--hardware", str(described(tmp_path)))
    )

    # 12 MB need 120 us at 100 GB/s: without 15 for latency they are more than half of 235 and less than half of 247.
    # 4 MB need 40, of which 15 is no small part: 55 are more than half of 104, though 40 are less than half of 89.
    assert ("low-bandwidth" in judged.by_id) == low
