"""Where ranks sit, which links they have, and which groups they form."""

from __future__ import annotations

from commprof.synth import Cluster, Fault, Link, make_plan, preset
from commprof.synth.cluster import Placement
from commprof.synth.mesh import Mesh
from tests.synth.by_hand import round_job

# Two hosts of four GPUs; pairs share an NVLink domain and an adapter.
CLUSTER = Cluster(
    gpus_per_host=4, nvlink_domain=2, nics_per_host=2, nvlink=Link(1, 300), pcie=Link(2, 20), nic=Link(5, 50)
)  # fmt: skip


def test_path_goes_over_the_narrowest_link_there_is() -> None:
    placement = Placement.in_order(CLUSTER, 8)

    found = [placement.path(ranks) for ranks in ((0, 1), (1, 2), (0, 4), (0, 1, 4, 5), tuple(range(8)))]

    # A domain: NVLink. Two domains: PCIe. Hosts: one shared adapter for 0 and 1, two for all four ranks of a host.
    assert [(p.latency_ns, p.bytes_per_s, p.hosts) for p in found] == [
        (1, 300, 1), (2, 20, 1), (5, 50, 2), (5, 50, 2), (5, 100, 2),
    ]  # fmt: skip


def test_ranks_that_share_an_adapter_share_its_resource() -> None:
    placement = Placement.in_order(CLUSTER, 8)

    first, second, other = (placement.path(ranks).resources for ranks in ((0, 4), (1, 5), (2, 6)))

    assert first == second
    assert not set(first) & set(other)


def test_message_takes_one_direction_of_each_port() -> None:
    placement = Placement.in_order(CLUSTER, 8)

    there = placement.path((0, 1), one_way=True).resources
    back = placement.path((1, 0), one_way=True).resources

    assert there == (0, 3)  # out of port 0, into port 1
    assert back == (2, 1)
    assert placement.path((0, 1)).resources == (0, 1, 2, 3)


def test_slow_link_narrows_every_path_through_it() -> None:
    plan = make_plan(round_job(1000, faults=(Fault("slow-link", 1, 100),), inner=4), 0)

    assert plan.placement.path((0, 1)).bytes_per_s == 100
    assert plan.placement.path((0, 2)).bytes_per_s == 1000


def test_groups_of_a_three_dimensional_job() -> None:
    # tp fastest, then dp, then pp: rank = (stage * 2 + d) * 2 + t.
    mesh = Mesh(tp=2, inner=2, pp=2, roles={"inner": "dp"})

    groups = {axis: [g.ranks for g in mesh.groups if g.axis == axis] for axis in ("tp", "inner", "pp")}

    assert groups["tp"] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert groups["inner"] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert groups["pp"] == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert mesh.group(5, "dp") is mesh.group(5, "inner")
    assert [g.ranks for g in mesh.groups_of(5)] == [tuple(range(8)), (4, 5), (5, 7), (1, 5)]


def test_groups_of_hsdp() -> None:
    mesh = preset("hsdp").mesh()

    found = {g.role: [] for g in mesh.groups}
    for group in mesh.groups:
        found[group.role].append(group.ranks)

    # Two shards next to each other, two replicas; dp spans both and is not the same set as either.
    assert found["shard"] == [(0, 1), (2, 3)]
    assert found["replicate"] == [(0, 2), (1, 3)]
    assert found["dp"] == [(0, 1, 2, 3)]


def test_one_rank_talks_to_nobody() -> None:
    mesh = Mesh()

    assert [g.ranks for g in mesh.groups] == [(0,)]
    assert mesh.group(0, "dp") is None
