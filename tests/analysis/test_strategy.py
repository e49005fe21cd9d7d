"""Names of strategies from the calls of single groups: what looks alike, what does not, and what is said of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.group_use import GroupUse
from commprof.analysis.roles import find_roles
from commprof.analysis.strategy import Strategy, find_strategy
from tests.analysis.uses import B, Call, F, O, traffic, use

MB = 1_000_000
RANKS = (0, 1, 2, 3)
FSDP = FrameworkMarks({"fsdp": 30, "fsdp-forward": 1})
GATHERS: list[Call] = [("all_gather", 4 * MB, F), ("all_gather", 8 * MB, F)]
SCATTERS: list[Call] = [("reduce_scatter", 8 * MB, B), ("reduce_scatter", 4 * MB, B)]
UNEVEN: list[Call] = [("reduce_scatter", 6 * MB, B)] * 2
SUMS: list[Call] = [("all_reduce", 8 * MB, B), ("all_reduce", 4 * MB, B)]
LATE_SUMS: list[Call] = [("all_reduce", 8 * MB, O), ("all_reduce", 4 * MB, O)]
BACK: list[Call] = [("all_gather", 12 * MB, O)]
OWNERS: list[Call] = [("broadcast", 3 * MB, O)] * 4


def strategy_of(calls: list[Call], marks: Mapping[str, int] | FrameworkMarks | None = None) -> Strategy:
    """The strategy of a job of four ranks with one group."""
    found = marks if isinstance(marks, FrameworkMarks) else FrameworkMarks(marks or {})
    uses: list[GroupUse] = [use(calls, RANKS)] if calls else []
    facts = [one.facts for one in uses]
    roles = find_roles(facts, uses, 4, {}, found)
    return find_strategy(traffic(calls, 4), facts, roles, uses, found)


@pytest.mark.parametrize(
    ("calls", "marks", "name", "alternatives"),
    [
        ([*GATHERS, *[("all_gather", 4 * MB, B)] * 3, *SCATTERS], FSDP, "fsdp", {"fsdp": ("fsdp", "zero3")}),
        ([*GATHERS, *[("all_gather", 4 * MB, B)] * 3, *SCATTERS], None, "zero3", {"zero3": ("fsdp", "zero3")}),
        # Parameters gathered once: by intent with FSDP, in Megatron's buckets, or by ZeRO-3 that has the memory.
        ([*GATHERS, *SCATTERS], FSDP, "fsdp", {"fsdp": ("fsdp", "zero2")}),
        ([*GATHERS, *SCATTERS], None, "zero1", {"zero1": ("fsdp", "zero1", "zero2")}),
        ([*GATHERS, *UNEVEN], None, "zero3", {"zero3": ("fsdp", "zero3")}),
        ([*SCATTERS, *BACK], None, "zero1", {"zero1": ("zero1", "zero2")}),
        # Gradients in every one of two backward passes, parameters once: no stage 1 does that.
        ([*SCATTERS, *SCATTERS, *BACK], None, "zero2", {}),
        # DeepSpeed reduces beside the backward pass in stage 2 and after it in stage 1.
        ([*SUMS, *BACK], None, "zero2", {"zero2": ("zero1", "zero2")}),
        ([*LATE_SUMS, *BACK], None, "zero1", {"zero1": ("zero1", "zero2")}),
        ([*SUMS, *OWNERS], {"zero-optimizer": 1}, "zero1", {}),
        (SUMS, None, "ddp", {}),
        (LATE_SUMS, None, "ddp", {}),
    ],
    ids=[
        "FSDP", "ZeRO-3", "FSDP keeps", "Megatron overlaps", "ZeRO-3 keeps", "ZeRO-1 or 2", "ZeRO-2", "DeepSpeed 2",
        "DeepSpeed 1", "ZeroRedundancyOptimizer", "DDP", "by hand",
    ],
)  # fmt: skip
def test_names_of_data_parallelism(
    calls: list[Call], marks: Mapping[str, int] | None, name: str, alternatives: Mapping[str, tuple[str, ...]]
) -> None:
    found = strategy_of(calls, marks)

    assert found.name == name
    assert found.alternatives == alternatives
    assert found.evidence
    assert found.measured is not None


def test_passes_that_are_marked_count_only_where_calls_repeat() -> None:
    twice = strategy_of([*SUMS, *SUMS], {"ddp": 2})
    two_modules = strategy_of(SUMS, {"ddp": 2})

    assert twice.parts[0].volume.formula == "m 2(N-1)/N P bg, m = 2"
    assert twice.parts[0].volume.assumed is not None
    assert "12000000 B" in twice.parts[0].volume.assumed
    assert two_modules.parts[0].volume.formula == "2(N-1)/N P bg"


def test_one_sum_per_gradient_is_said_to_be_that() -> None:
    many: list[Call] = [("all_reduce", 1_000 * (k + 1), B) for k in range(50)]

    single, bucketed = strategy_of(many, {"gradients": 50}), strategy_of(many, {"gradients": 160})

    assert any("one per parameter" in line for line in single.evidence)
    assert not any("one per parameter" in line for line in bucketed.evidence)


def test_experts_and_data_parallelism_share_a_group() -> None:
    tokens: list[Call] = [*[("all_to_all", MB, F)] * 4, *[("all_to_all", MB, B)] * 4]

    found = strategy_of([*tokens, *SUMS])

    assert found.name == "ep+ddp"
    assert [(part.kind, part.volume.measured) for part in found.parts] == [("ep", 6 * MB), ("dp", 18 * MB)]
    assert found.expected == found.measured == 24 * MB


def test_without_communication_there_is_none_and_what_is_no_strategy_is_unknown() -> None:
    nothing = strategy_of([])
    barriers = strategy_of([("barrier", 0, None)])
    gathers = strategy_of([("all_gather", 8 * MB, F)] * 2)

    assert (nothing.name, nothing.parts, nothing.measured) == ("none", (), 0)
    assert (barriers.name, barriers.expected) == ("none", None)
    assert gathers.name == "unknown"
    # What belongs to no strategy is a part all the same, so that the parts add up.
    assert [part.volume.measured for part in gathers.parts] == [gathers.measured] == [12 * MB]


def test_without_sizes_bytes_are_not_known() -> None:
    found = strategy_of([("all_reduce", -1, B)] * 3)

    assert (found.name, found.measured, found.expected) == ("ddp", None, None)


def test_calls_that_name_no_group_stand_by_what_they_do() -> None:
    calls: list[Call] = [*GATHERS, *[("all_gather", 4 * MB, B)] * 3, *SCATTERS]
    alone = use(calls, RANKS, group=-1)
    table = traffic(calls, 4)
    table.group = np.full(len(table), -1, np.int64)

    found = find_strategy(table, [], [], [alone], FSDP)

    assert found.name == "fsdp"
    assert found.parts[0].groups == ()
    assert found.expected is None  # of how many ranks nobody says
