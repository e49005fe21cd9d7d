"""Which ranks record, as each of them decides by itself."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from commprof.capture.engine import Whereabouts
from commprof.capture.selection import parse_ranks
from commprof.errors import UsageError
from commprof.manifest import ProcessGroup


def cluster(sizes: dict[str, int], described: dict[str, str] | None = None) -> list[Whereabouts]:
    """All ranks of a grid: the last dimension varies fastest; each dimension is one kind of process group."""
    places = list(product(*(range(size) for size in sizes.values())))
    found = []
    for rank, place in enumerate(places):
        groups = [ProcessGroup(name="0", description="default_pg", ranks=tuple(range(len(places))))]
        for number, name in enumerate(sizes):
            members = tuple(
                other
                for other, there in enumerate(places)
                if all(a == b for k, (a, b) in enumerate(zip(place, there, strict=True)) if k != number)
            )
            description = (described or {}).get(name, f"mesh_{name}")
            groups.append(ProcessGroup(name=f"{name}-{members[0]}", description=description, ranks=members))
        found.append(
            Whereabouts(
                rank=rank, source="process group", world_size=len(places), local_rank=rank % 4, groups=tuple(groups)
            )
        )
    return found


def chosen(ranks: Any, everybody: list[Whereabouts]) -> list[int]:
    choice = parse_ranks(ranks)
    return [where.rank for where in everybody if choice.takes(where)]


def test_replica_of_data_and_tensor_and_pipeline_parallel() -> None:
    # rank = 6 pp + 2 dp + tp, sizes pp 2, dp 3, tp 2. The first replica has dp = 0: 0, 1, 6, 7. The
    # data-parallel group of rank 0 is 0, 2, 4.
    everybody = cluster({"pp": 2, "dp": 3, "tp": 2})

    assert chosen("replica", everybody) == [0, 1, 2, 4, 6, 7]


@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 4}, {"pp": 3, "dp": 2, "tp": 2}, {"dp_replicate": 2, "dp_shard": 3}])
def test_every_group_of_rank_0_is_complete(sizes: dict[str, int]) -> None:
    everybody = cluster(sizes)

    found = set(chosen("replica", everybody))

    assert all(set(group.ranks) <= found for group in everybody[0].groups if group.description != "default_pg")
    assert len(found) < len(everybody)


@pytest.mark.parametrize(
    "names",
    [
        {"dp": "DATA_PARALLEL_GROUP", "tp": "TENSOR_MODEL_PARALLEL_GROUP"},
        {"dp": "data_parallel", "tp": "model_parallel"},
        {"dp": "mesh_fsdp", "tp": "mesh_tp"},
    ],
)
def test_names_of_several_frameworks(names: dict[str, str]) -> None:
    # rank = 2 dp + tp: the first replica is 0 and 1, the data-parallel group of rank 0 is 0, 2, 4.
    assert chosen("replica", cluster({"dp": 3, "tp": 2}, names)) == [0, 1, 2, 4]


def test_plain_data_parallel_is_one_group_of_all() -> None:
    everybody = [
        Whereabouts(
            rank=r,
            source="process group",
            world_size=3,
            groups=(ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2)),),
        )
        for r in range(3)
    ]

    assert chosen("replica", everybody) == [0, 1, 2]
    assert parse_ranks("replica").doubt(everybody[0]) is None


def test_without_names_all_record_and_one_line_says_so() -> None:
    everybody = cluster({"a": 2, "b": 2}, {"a": "undefined", "b": "undefined"})

    assert chosen("replica", everybody) == [0, 1, 2, 3]
    assert "no process group is named as data-parallel" in str(parse_ranks("replica").doubt(everybody[0]))


def test_a_group_of_all_ranks_beside_smaller_ones_does_not_take_them_all() -> None:
    everybody = cluster({"dp": 3, "tp": 2})
    loss = ProcessGroup(name="9", description="mesh_dp_loss", ranks=tuple(range(6)))
    everybody = [Whereabouts(rank=w.rank, source=w.source, world_size=6, groups=(*w.groups, loss)) for w in everybody]

    assert chosen("replica", everybody) == [0, 1, 2, 4]


def test_one_per_host_is_the_first_local_rank() -> None:
    everybody = cluster({"dp": 8})

    assert chosen("one-per-host", everybody) == [0, 4]


def test_one_per_host_without_a_launcher_records_all_and_says_so() -> None:
    lost = Whereabouts(rank=1, source="process group", world_size=2)

    assert chosen("one-per-host", [lost]) == [1]
    assert "LOCAL_RANK" in str(parse_ranks("one-per-host").doubt(lost))


def test_a_list_is_what_it_says() -> None:
    everybody = cluster({"dp": 4})

    assert chosen([3, 0], everybody) == [0, 3]
    assert chosen(range(2), everybody) == [0, 1]
    assert str(parse_ranks([3, 0])) == "0, 3"


@pytest.mark.parametrize(
    ("ranks", "world", "said", "speaker"),
    [
        ([5], 1, "ranks=[5]: no rank records, the job has rank 0 alone", 0),
        ([7, 5], 4, "ranks=[5, 7]: no rank records, the job has ranks 0 to 3", 0),
        ([2, 9, 4], 4, "ranks=[2, 4, 9]: no rank 4, 9, the job has ranks 0 to 3", 2),
        ([1, 3], 4, None, 1),
    ],
)
def test_ranks_that_the_job_does_not_have_are_told_by_one_of_it(
    ranks: list[int], world: int, said: str | None, speaker: int
) -> None:
    everybody, choice = cluster({"dp": world}), parse_ranks(ranks)

    assert [choice.doubt(where) for where in everybody] == [said] * world
    assert [where.rank for where in everybody if choice.speaks(where)] == [speaker]


@pytest.mark.parametrize("wrong", ["some", "rank0", "", [], [0.5], [-1], 3, None, [True]])
def test_what_is_no_choice_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="ranks="):
        parse_ranks(wrong)
