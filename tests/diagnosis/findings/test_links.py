"""Links that are not slow: calls that share them with others, and calls of which nobody knows the group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.builders.kineto import Trace
from tests.diagnosis.findings.conftest import Judged

NETWORK = {"slow-link", "network-intermittent", "low-bandwidth", "tp-across-hosts"}
UNNAMED = {"Process Group Name": None, "Process Group Description": None, "Process Group Ranks": None}


def twenty(rank: int, length: int, *, shared: bool) -> Trace:
    """Twenty all-reduces of 100 µs in each of three steps; three of them last ``length``, beside another group's call
    if they are ``shared``."""
    trace = Trace(rank=rank)
    for step in range(3):
        begin = at = 40_000 * step
        trace.step(step, begin, begin + 40_000)
        for i in range(20):
            odd = i in (4, 9, 15)
            trace.gemm(at, at + 1_000)
            end = at + 1_000 + (length if odd else 100)
            trace.all_reduce(at + 1_000, end, metadata={"seq": 20 * step + i})
            if odd and shared:
                other = {"group": "other", "seq": 3 * step + i, "elements": 64}
                trace.all_gather(at + 1_000, end, stream=21, metadata=other)
            at = end
        trace.gemm(at, begin + 40_000)
    return trace


@pytest.mark.parametrize(
    ("length", "shared", "found"), [(250, False, True), (250, True, False), (350, True, True)],
    ids=["alone", "two share the link", "slower than sharing makes it"],
)  # fmt: skip
def test_a_call_that_shares_its_link_may_take_longer(
    judge: Callable[..., Judged], length: int, shared: bool, found: bool
) -> None:
    # Two that share a link need up to twice as long each; 2.5 times is less than twice the usual on half of a link.
    judged = judge(*(twenty(rank, length, shared=shared) for rank in (0, 1)))

    assert ("network-intermittent" in judged.by_id) is found


def unnamed(rank: int) -> Trace:
    """An old trace: nothing says which ranks a call is among. Four on two hosts; all-reduces in forward and backward,
    of which three take ten times as long as the others."""
    trace = Trace(rank=rank, world_size=4)
    trace.top["host_name"] = "AABB"[rank]
    for step in range(3):
        begin = at = 40_000 * step
        trace.step(step, begin, begin + 40_000)
        for i in range(20):
            end = at + 1_000 + (1_000 if i in (4, 9, 15) else 100)
            trace.gemm(at, at + 1_000)
            options: dict[str, Any] = {"metadata": {"elements": 2_500}, "args": UNNAMED}
            trace.all_reduce(at + 1_000, end, **options)
            at = end
        trace.gemm(at, begin + 40_000)
    return trace


def test_where_groups_are_assumed_no_network_is_accused(judge: Callable[..., Judged]) -> None:
    judged = judge(*map(unnamed, range(4)), options=("--hardware", "100"))

    assert {note["code"] for note in judged.report["notes"]} >= {"group-assumed"}
    assert not NETWORK & set(judged.by_id)


def sharded(rank: int, *, alone: int, beside: int) -> Trace:
    """Four steps, each with four gathers of 100 MB among two ranks: one alone, three behind compute."""
    trace = Trace(rank=rank)
    for step in range(4):
        at = begin = 40_000 * step
        trace.step(step, begin, begin + 40_000)
        for i in range(4):
            end = at + (beside if i else alone)
            sizes = {"seq": 4 * step + i, "elements": 12_500_000, "output_elements": 25_000_000}
            trace.all_gather(at, end, metadata=sizes)
            trace.gemm(at if i else end, end if i else end + 500)
            at = end + (0 if i else 500)
        trace.gemm(at, begin + 40_000)
    return trace


@pytest.mark.parametrize(
    ("alone", "beside", "found"),
    [(3_000, 3_000, True), (1_000, 5_000, False)],
    ids=["slow link", "slow beside compute"],
)  # fmt: skip
def test_few_calls_that_nothing_is_beside_speak_for_their_link(
    judge: Callable[..., Judged], alone: int, beside: int, found: bool
) -> None:
    # 50 MB on the bus: at 60 GB/s 0.83 ms. Alone in 3 ms that is 28 % of it, in 1 ms 83 %;
    # what compute slows is no link.
    judged = judge(*(sharded(rank, alone=alone, beside=beside) for rank in (0, 1)), options=("--hardware", "60"))

    assert ("low-bandwidth" in judged.by_id) is found
    assert all(row["clean_calls"] == 4 for row in judged.report["groups"])
