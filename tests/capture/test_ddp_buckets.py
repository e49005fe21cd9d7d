"""Buckets as DDP logs them, in a process group of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from commprof.manifest import DdpModule

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

LAYER = 4 * (64 * 64 + 64)  # bytes of one Linear(64, 64)


@pytest.fixture(scope="module", autouse=True)
def _group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    import torch.distributed as dist

    meeting = tmp_path_factory.mktemp("group") / "store"
    # Without it gloo needs a host name that resolves.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(iterations: int, layers: int = 4, **options: Any) -> Any:
    module = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(layers)])
    ddp = torch.nn.parallel.DistributedDataParallel(module, bucket_cap_mb=LAYER / 2**20, **options)
    for _ in range(iterations):
        ddp(torch.ones(2, 64)).sum().backward()
    return ddp


def describe(model: Any) -> tuple[DdpModule, ...]:
    from commprof.capture.ddp_buckets import describe_ddp

    return describe_ddp([("", model)])


def test_rebuilt_buckets_name_their_parameters_in_the_order_of_ready_gradients() -> None:
    (ddp,) = describe(trained(3))

    # A bucket is closed when it reaches the cap, so each holds one layer, the last layer first.
    assert [bucket.size_bytes for bucket in ddp.buckets] == [LAYER] * 4
    assert [set(bucket.parameters) for bucket in ddp.buckets] == [{f"{i}.weight", f"{i}.bias"} for i in (3, 2, 1, 0)]
    assert {bucket.layout for bucket in ddp.buckets} == {"rebuilt"}


def test_before_the_second_iteration_there_is_one_bucket() -> None:
    (ddp,) = describe(trained(1))

    (bucket,) = ddp.buckets
    assert (bucket.size_bytes, bucket.layout) == (4 * LAYER, "first-iteration")
    assert set(bucket.parameters) == {f"{i}.{name}" for i in range(4) for name in ("weight", "bias")}


def test_with_unused_parameters_searched_for_the_first_layout_stays() -> None:
    (ddp,) = describe(trained(3, find_unused_parameters=True))

    assert sum(bucket.size_bytes for bucket in ddp.buckets) == 4 * LAYER
    assert {bucket.layout for bucket in ddp.buckets} == {"static"}
    assert ddp.options["find_unused_parameters"] == 1


def test_options_hold_no_measurements() -> None:
    (ddp,) = describe(trained(3, gradient_as_bucket_view=True))

    assert ddp.options["gradient_as_bucket_view"] == 1
    assert ddp.options["bucket_cap_bytes"] == LAYER
    assert not [name for name in ddp.options if "time" in name or "indices" in name]


def test_a_shared_parameter_counts_once_and_a_frozen_one_not() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    module[2].weight = module[0].weight
    module[1].bias.requires_grad_(False)
    ddp = torch.nn.parallel.DistributedDataParallel(module)
    for _ in range(3):
        ddp(torch.ones(2, 64)).sum().backward()

    (described,) = describe(ddp)

    names = sorted(name for bucket in described.buckets for name in bucket.parameters)
    assert names == ["0.bias", "0.weight", "1.weight", "2.bias"]


def test_ddp_is_found_inside_other_modules_and_several_times() -> None:
    both = torch.nn.ModuleDict({"generator": trained(3), "critic": torch.nn.Sequential(trained(3, layers=2))})

    found = describe(both)

    assert [(ddp.module, len(ddp.buckets)) for ddp in found] == [("generator", 4), ("critic.0", 2)]


def test_without_ddp_there_is_nothing() -> None:
    assert describe(torch.nn.Linear(2, 2)) == ()
