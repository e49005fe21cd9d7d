"""What groups are for: from their calls, from the groups beside them, from descriptions, and from shape alone."""

from __future__ import annotations

import pytest

from commprof.analysis.frameworks import FrameworkMarks
from commprof.analysis.group_use import GroupUse
from commprof.analysis.roles import Role, find_roles
from tests.analysis.uses import B, Call, F, O, use

MB = 1_000_000
FSDP: list[Call] = [
    *[("all_gather", 8 * MB, F)] * 4, *[("all_gather", 8 * MB, B), ("reduce_scatter", 8 * MB, B)] * 4,
]  # fmt: skip
DDP: list[Call] = [("all_reduce", 4 * MB, B), ("all_reduce", 25 * MB, B), ("all_reduce", 13 * MB, B)]
TP: list[Call] = [*[("all_reduce", 2 * MB, F)] * 8, *[("all_reduce", 2 * MB, B)] * 8]
SP: list[Call] = [
    *[("all_gather", 2 * MB, F), ("reduce_scatter", 2 * MB, F)] * 4,
    *[("all_gather", 2 * MB, B), ("all_gather", 2 * MB, B), ("reduce_scatter", 2 * MB, B)] * 4,
]  # fmt: skip
ZERO: list[Call] = [*[("reduce_scatter", 8 * MB, B)] * 3, *[("all_gather", 4 * MB, O)] * 3]
EXPERTS: list[Call] = [*[("all_to_all", MB, F)] * 4, *[("all_to_all", MB, B)] * 4]
STAGES: list[Call] = [*[("send", MB, F)] * 4, *[("recv", MB, B)] * 4]
AHEAD: list[Call] = [("send", MB, F)] * 2 + [("recv", MB, B), ("send", MB, F)] * 6 + [("recv", MB, B)] * 2
NORMS: list[Call] = [("all_reduce", 4, O), ("barrier", 0, None)]


def roles(*uses: GroupUse, world: int = 16, marks: FrameworkMarks | None = None) -> list[Role]:
    facts = [one.facts for one in uses]
    return find_roles(facts, uses, world, {}, marks or FrameworkMarks())


def names(*uses: GroupUse, world: int = 16) -> list[str]:
    return [role.name for role in roles(*uses, world=world)]


def without_phases(calls: list[Call]) -> list[Call]:
    return [(op, size, None) for op, size, _ in calls]


@pytest.mark.parametrize(
    ("calls", "role", "purpose"),
    [
        (FSDP, "dp", "sharded"),
        (DDP, "dp", "gradients"),
        (ZERO, "dp", "partitioned"),
        ([*DDP, ("all_gather", 40 * MB, O)], "dp", "partitioned"),
        ([*DDP, *[("broadcast", 10 * MB, O)] * 4], "dp", "partitioned"),
        (TP, "tp", "tensor"),
        (SP, "tp", "sequence"),
        (EXPERTS, "ep", "exchange"),
        (STAGES, "pp", "pipeline"),
        (NORMS, "control", "control"),
        ([("barrier", 0, None)], "control", "control"),
    ],
    ids=["fsdp", "ddp", "zero", "deepspeed", "zero-torch", "tp", "sp", "ep", "pp", "norms", "barrier"],
)
def test_a_group_is_what_its_calls_do(calls: list[Call], role: str, purpose: str) -> None:
    found = roles(use(calls, (0, 1, 2, 3)))[0]

    assert found.name == role
    assert found.purposes[0] == purpose
    assert len(found.evidence) >= 2


@pytest.mark.parametrize(
    ("calls", "role"),
    [(FSDP, "dp"), (ZERO, "dp"), (SP, "tp"), (DDP, "dp"), (EXPERTS, "ep"), (STAGES, "pp")],
    ids=["fsdp", "zero", "sp", "ddp", "ep", "pp"],
)
def test_order_and_sizes_tell_where_no_phase_is_known(calls: list[Call], role: str) -> None:
    assert names(use(without_phases(calls), (0, 1, 2, 3))) == [role]


def test_equal_sums_that_begin_with_the_step_are_tensors_and_later_ones_gradients() -> None:
    calls = without_phases(TP)
    soon = use(calls, (0, 1), place=[0.05 + 0.05 * k for k in range(16)])
    late = use(calls, (0, 1), place=[0.4 + 0.03 * k for k in range(16)])

    assert names(soon) == ["tp"]
    assert names(late) == ["dp"]


def test_of_two_groups_that_sum_without_phases_the_neighbours_share_tensors() -> None:
    near = use(without_phases(DDP), (0, 1, 2, 3), group=0)
    far = use(without_phases(TP), (0, 4, 8, 12), group=1, place=[0.05] * 16)

    assert names(near, far) == ["tp", "dp"]


def test_where_a_group_shards_parameters_the_sums_beside_it_are_tensors() -> None:
    sharded = use(without_phases(FSDP), (0, 4, 8, 12), group=0)
    sums = use(without_phases(TP), (0, 1, 2, 3), group=1, place=[0.5] * 16)

    assert names(sharded, sums) == ["dp", "tp"]


def test_replicas_sum_what_the_shards_scattered() -> None:
    shard = use(FSDP, (0, 1, 2, 3), group=0)
    replicate = use([("all_reduce", 2 * MB, B)] * 4, (0, 4, 8, 12), group=1)
    other = use([("all_reduce", 5 * MB, B)] * 4, (0, 4, 8, 12), group=1)

    # Reduced in twice the precision, the same elements are twice the bytes.
    wide = use([("all_reduce", 2 * MB, B)] * 4, (0, 4, 8, 12), group=1, width=4)
    narrow = use([(op, size // 2, phase) for op, size, phase in FSDP], (0, 1, 2, 3), group=0, width=2)

    assert names(shard, replicate) == ["shard", "replicate"]
    assert names(narrow, wide) == ["shard", "replicate"]
    assert names(shard, other) == ["dp", "dp"]


def test_copies_of_experts_are_data_parallel_beside_a_larger_group() -> None:
    experts = use(EXPERTS, (0, 1, 2, 3), group=0)
    copies = use(DDP, (0, 4), group=1)
    dense = use(DDP, tuple(range(8)), group=2)

    assert names(experts, copies, dense, world=8) == ["ep", "edp", "dp"]
    # Without the larger group all parameters are shared over these two ranks.
    assert names(experts, copies, world=8) == ["ep", "dp"]


def test_first_and_last_stage_that_sum_one_tensor_tie_their_embeddings() -> None:
    stages = use(STAGES, (0, 4, 8, 12), group=0)
    tied = use([("all_reduce", 100 * MB, B)], (0, 12), group=1)
    middle = use([("all_reduce", 100 * MB, B)], (0, 8), group=1)

    assert names(stages, tied) == ["pp", "embedding"]
    assert names(stages, middle) == ["pp", "dp"]


def test_one_group_may_serve_experts_and_data_parallelism() -> None:
    found = roles(use([*EXPERTS, *DDP], (0, 1, 2, 3)))[0]

    assert found.name == "ep"
    assert (found.of("all_to_all"), found.of("all_reduce")) == ("ep", "dp")


def test_all_to_alls_of_embedding_bags_are_no_experts() -> None:
    marks = FrameworkMarks(embedding_bags=True)

    found = roles(use([*EXPERTS, *DDP], (0, 1, 2, 3)), marks=marks)[0]

    assert (found.of("all_to_all"), found.of("all_reduce")) == ("embedding", "dp")


@pytest.mark.parametrize("description", ["mesh_cp", "CONTEXT_PARALLEL_GROUP", "mesh_sp"])
def test_a_description_decides_what_calls_leave_open(description: str) -> None:
    # All-to-alls of experts and of Ulysses look alike.
    assert names(use(EXPERTS, (0, 1, 2, 3), description=description)) == ["cp"]


@pytest.mark.parametrize(
    ("calls", "description", "role"),
    [(TP, "mesh_dp", "tp"), (DDP, "mesh_tp", "dp"), (STAGES, "mesh_ep", "pp"), (EXPERTS, "mesh_pp", "ep")],
)
def test_a_description_that_contradicts_the_calls_is_mentioned_and_not_followed(
    calls: list[Call], description: str, role: str
) -> None:
    found = roles(use(calls, (0, 1, 2, 3), description=description))[0]

    assert found.name == role
    assert any(description in sentence and "does not fit" in sentence for sentence in found.evidence)


def test_products_of_megatron_are_named_as_such() -> None:
    found = roles(use(DDP, (0, 1, 2, 3), description="DATA_PARALLEL_GROUP_WITH_CP"))[0]

    assert found.name == "dp"
    assert any("dp x cp" in sentence for sentence in found.evidence)


def test_a_data_parallel_group_that_holds_another_dimension_says_so() -> None:
    ring = [("send", MB, F), ("recv", MB, F)] * 3
    context = use(ring, (0, 1, 2, 3), group=0, peers=[1, 3] * 3)
    data = use(FSDP, tuple(range(8)), group=1)

    found = roles(context, data, world=8)

    assert [role.name for role in found] == ["cp", "dp"]
    assert any("product" in sentence for sentence in found[1].evidence)


@pytest.mark.parametrize(
    ("calls", "peers", "ranks", "role"),
    [
        # A ring of four: always to the next, always from the one before.
        ([("send", MB, F), ("recv", MB, F)] * 3, [1, 3] * 3, (0, 1, 2, 3), "cp"),
        # A middle stage meets both neighbours either way.
        ([("recv", MB, F), ("send", MB, F), ("recv", MB, B), ("send", MB, B)], [0, 2, 2, 0], (0, 1, 2), "pp"),
        # Two ranks: a ring sends with every receive, in each of its layers.
        ([("send", MB, F), ("recv", MB, F)] * 8, [1] * 16, (0, 1), "cp"),
        # The first stage of two sends ahead (1F1B), the last receives first, and one microbatch is no ring.
        (AHEAD, [1] * 16, (0, 1), "pp"),
        ([("recv", MB, F), ("send", MB, B)] * 8, [0] * 16, (0, 1), "pp"),
        ([("send", MB, F), ("recv", MB, B)], [1, 1], (0, 1), "pp"),
    ],
    ids=["ring of four", "middle stage", "ring of two", "first of two", "last of two", "one microbatch"],
)  # fmt: skip
def test_rings_and_pipelines(calls: list[Call], peers: list[int], ranks: tuple[int, ...], role: str) -> None:
    assert names(use(calls, ranks, peers=peers)) == [role]


@pytest.mark.parametrize(
    ("counts", "ranks", "role"),
    [((8, 8, 8, 8), (0, 1, 2, 3), "cp"), ((4, 8, 8, 4), (0, 1, 2, 3), "pp"), ((8, 8), (0, 1), "pp")],
    ids=["all alike", "ends with half", "two alike"],
)
def test_grouped_messages_without_peers(counts: tuple[int, ...], ranks: tuple[int, ...], role: str) -> None:
    assert names(use([("send_recv", MB, F)] * 4 + [("send_recv", MB, B)] * 4, ranks, messages_of=counts)) == [role]


def test_side_effects_do_not_name_a_group() -> None:
    # Norms over the tensor-parallel group, buffers and a loss beside gradients, a flag beside shards.
    assert names(use([*TP, ("all_reduce", 4, O)], (0, 1))) == ["tp"]
    assert names(use([("broadcast", 200_000, F), *DDP, ("all_reduce", 4, F)], (0, 1))) == ["dp"]
    assert names(use([*FSDP, ("all_reduce", 8, O)], (0, 1))) == ["dp"]
    assert names(use([*SP, *[("all_reduce", 4096, O)] * 20], (0, 1))) == ["tp"]


def test_a_group_without_calls_in_a_step_is_unknown() -> None:
    facts = use(DDP, (0, 1)).facts

    found = find_roles([facts], [], 2, {0: "a", 1: "b"}, FrameworkMarks())[0]

    assert (found.name, found.crosses_hosts) == ("unknown", True)
